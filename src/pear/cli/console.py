"""Where commands print, and how an error of the package reaches the user."""

from __future__ import annotations

from typing import Any

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup

from pear.errors import PearError

out = Console()
err = Console(stderr=True)


def percent(share: float) -> str:
    """A share as people read it.

    Example:
        >>> percent(0.0805)
        '8.05 %'
    """
    return f"{100 * share:.2f} %"


class ErrorsAsSentences(TyperGroup):
    """Prints what the package raises on purpose as one red sentence, with exit code 2 and no traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that the user named."""
        try:
            return super().invoke(ctx)
        except PearError as error:
            # As Text: an error may hold square brackets, which rich would take for markup.
            err.print(Text(f"Error: {error}", style="red"), soft_wrap=True)
            raise typer.Exit(2) from None
