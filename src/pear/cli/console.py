"""The consoles that commands print to, and how errors of the package are printed."""

from __future__ import annotations

from typing import Any, ClassVar

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

from pear.errors import PearError

out = Console()
err = Console(stderr=True)


def print_plain(text: str, style: str = "", to: Console = out) -> None:
    """Print a text unchanged: without markup in square brackets, colours for numbers or line breaks."""
    to.print(Text(text, style=style), soft_wrap=True)


def two_decimal_percent(share: float) -> str:
    """Write a share as a percentage.

    Example:
        >>> two_decimal_percent(0.0805)
        '8.05 %'
    """
    return f"{100 * share:.2f} %"


class ErrorsAsSentences(TyperGroup):
    """A group of commands that prints the errors of this package as one red sentence, with exit code 2."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that the user named."""
        try:
            return super().invoke(ctx)
        except PearError as error:
            print_plain(f"Error: {error}", "red", err)
            raise typer.Exit(2) from None


class LazyCommands(TyperGroup):
    """A group of commands some of which are imported only when they are run, so that help needs no imports.

    Attributes:
        lazy: the help of each such command, by name.
    """

    lazy: ClassVar[dict[str, str]] = {}

    def load(self, name: str) -> Any:
        """Import a command of ``lazy``."""
        raise NotImplementedError

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands, in the order of the help."""
        return [*super().list_commands(ctx), *self.lazy]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of a name. For a command that is not imported yet, return a stub with name and help."""
        if cmd_name in self.lazy:
            return TyperCommand(cmd_name, help=self.lazy[cmd_name])
        return super().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command to run and its arguments. A command of ``lazy`` is imported here."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, self.load(name) if name in self.lazy else command, rest
