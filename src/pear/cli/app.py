"""The command ``pear`` with its subcommands. Each subcommand has a file of its name in this folder."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from pear.cli import advise, calibrate, compare, decide, demo, diagnose, predict, solvers, train
from pear.cli.compile import compile_command
from pear.cli.console import err, print_plain
from pear.cli.lazy_commands import LazyCommands
from pear.errors import MissingExtraError, PearError
from pear.plugins import COMMANDS
from pear.version import __version__

LAB = {
    "reproduce": "Run the paper's experiments, or resume them where they stopped.",
    "report": "Write a page that compares the results of experiments with the published numbers.",
    "bench": "Measure the time, memory and exactness of this installation.",
    "stress": "Look for wrong answers and lost work under difficult conditions.",
}
"""The commands of the package pear-lab with their help texts. The help lists them even if pear-lab is not installed."""


class AppCommands(LazyCommands):
    """The commands of this package and of the laboratory.

    Those of the laboratory are imported when a user runs them.
    """

    lazy = LAB

    def invoke(self, ctx: Any) -> Any:
        """Run the command that the user named.

        An error of this package is printed as one red sentence, with exit code 2.
        """
        try:
            return super().invoke(ctx)
        except PearError as error:
            print_plain(f"Error: {error}", "red", err)
            raise typer.Exit(2) from None

    def load_command(self, name: str) -> Any:
        """Import a command of the laboratory by its entry point, and return it.

        Raises:
            MissingExtraError: the package pear-lab, which contains the command, is not installed.
        """
        from importlib.metadata import entry_points

        for found in entry_points(group=COMMANDS, name=name):
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
    cls=AppCommands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Train forecasters on the regret of the decisions they lead to.",
)
app.command("demo")(demo.demo_command)
app.command("train")(train.train_command)
app.command("compare")(compare.compare_command)
app.command("predict")(predict.predict_command)
app.command("calibrate")(calibrate.calibrate_command)
app.command("decide")(decide.decide_command)
app.command("diagnose")(diagnose.diagnose_command)
app.command("advise")(advise.advise_command)
app.command("compile")(compile_command)
app.command("solvers")(solvers.solvers_command)


def _show_app_version(wanted: bool) -> None:
    """Print the version and exit, if the option ``--version`` is given."""
    if wanted:
        print_plain(f"pear {__version__}")
        raise typer.Exit


@app.callback()
def _app_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_app_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass
