"""The table of all commands. Each command has a file and a line here, or comes from another package's entry point."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from pear.cli import advise, compile, decide, demo, diagnose, solvers, train
from pear.cli.console import ErrorsAsSentences, print_plain
from pear.errors import MissingExtraError
from pear.version import __version__

GROUP = "pear.commands"
"""Name of the entry-point group through which other packages add commands; each entry is a ``typer.Typer``."""

LAB = {
    "reproduce": "Run the paper's experiments; a run that was stopped goes on where it was.",
    "report": "Show the results of experiments beside the published numbers, as one page.",
    "bench": "Measure this installation.",
    "stress": "Look for wrong answers and lost work under awkward conditions.",
}
"""Commands of the package pear-lab, listed whether it is installed or not."""


class Commands(ErrorsAsSentences):
    """The commands of this package and of the laboratory. A command of the laboratory is imported when it is run."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands, in the order of the help."""
        return [*super().list_commands(ctx), *LAB]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of a name. For a command of the laboratory, return a stub with its name and help."""
        if cmd_name in LAB:
            return TyperCommand(cmd_name, help=LAB[cmd_name])
        return super().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command to run and its arguments. A command of the laboratory is imported here."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, _load_lab_command(name) if name in LAB else command, rest


def _load_lab_command(name: str) -> Any:
    """Load a command of the laboratory from its entry point.

    Raises:
        MissingExtraError: the package pear-lab, which has the command, is not installed.
    """
    from importlib.metadata import entry_points

    for found in entry_points(group=GROUP, name=name):
        try:
            return typer.main.get_command(found.load())
        except ModuleNotFoundError as error:
            if error.name != found.module.partition(".")[0]:
                raise
    raise MissingExtraError(
        f"pear {name} is a command of the laboratory, a package of its own that is not installed here; "
        "run pip install pear-lab"
    )


app = typer.Typer(
    name="pear",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Train forecasters on the regret of the decisions they lead to.",
)
app.command("demo")(demo.demo)
app.command("train")(train.train)
app.command("decide")(decide.decide)
app.command("diagnose")(diagnose.diagnose)
app.command("advise")(advise.advise)
app.command("compile")(compile.compile_now)
app.command("solvers")(solvers.solvers)


def _show_version(wanted: bool) -> None:
    if wanted:
        print_plain(f"pear {__version__}")
        raise typer.Exit


@app.callback()
def _global_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass
