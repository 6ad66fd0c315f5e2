"""The consoles for the output and the errors of commands."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

out = Console()
err = Console(stderr=True)


def print_plain(text: str, style: str = "", to: Console = out) -> None:
    """Print a text unchanged: without interpreting square brackets, colouring numbers or breaking lines."""
    to.print(Text(text, style=style), soft_wrap=True)
