"""Tables on the terminal, and the exit code of a command that was stopped. Nothing here imports torch."""

from __future__ import annotations

import rich.table
from rich.box import SIMPLE_HEAD
from rich.text import Text

from pear.cli.console import out
from pear_lab.benchmarks.text_table import TextTable

INTERRUPTED = 130
"""Exit code of a command that the user stopped."""


def print_table(table: TextTable) -> None:
    """Print a table on the terminal, under its title."""
    shown = rich.table.Table(box=SIMPLE_HEAD, padding=0, pad_edge=False)
    for i, heading in enumerate(table.headings):
        # in a narrow terminal words are broken before numbers are, and the first column stays whole
        shown.add_column(heading, justify="left" if i < table.left else "right", no_wrap=i == 0, overflow="fold")
    for row in table.rows:
        shown.add_row(*map(Text, row))
    out.print(Text(f"\n{table.title}", style="bold"))
    out.print(shown)
