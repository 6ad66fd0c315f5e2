"""The table of commands. A command is one file and one row here."""

from __future__ import annotations

from typing import Annotated

import typer

import pear
from pear.cli import advise, bench, compile, decide, demo, diagnose, report, reproduce, solvers, stress, train
from pear.cli.console import ErrorsAsSentences, out

app = typer.Typer(
    name="pear",
    cls=ErrorsAsSentences,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Train forecasters on the regret of the decisions they lead to.",
)
app.command("demo")(demo.demo)
app.command("train")(train.train)
app.command("decide")(decide.decide)
app.command("diagnose")(diagnose.diagnose)
app.command("advise")(advise.advise)
app.command("compile")(compile.compile_now)
app.command("reproduce")(reproduce.reproduce)
app.command("report")(report.report)
app.command("solvers")(solvers.solvers)
app.add_typer(bench.app, name="bench")
app.add_typer(stress.app, name="stress")


def _show_version(wanted: bool) -> None:
    if wanted:
        out.print(f"pear {pear.__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass
