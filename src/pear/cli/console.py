"""The consoles that commands print to, and how errors of the package are printed."""

from __future__ import annotations

from typing import Any

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup

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
