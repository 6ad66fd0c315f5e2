"""Tables on the terminal, and the exit code of an interrupted command. This module does not import torch."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from pear.cli.console import out
from pear_lab.benchmarks.text_table import TextTable

INTERRUPTED = 130
"""The exit code of a command that the user interrupted."""


def print_terminal_table(table: TextTable) -> None:
    """Print the title of a table, and the table below it."""
    shown = Table(box=SIMPLE_HEAD, padding=0, pad_edge=False)
    for i, heading in enumerate(table.headings):
        # a narrow terminal breaks words before numbers, and never the first column
        shown.add_column(heading, justify="left" if i < table.left else "right", no_wrap=i == 0, overflow="fold")
    for row in table.rows:
        shown.add_row(*map(Text, row))
    out.print(Text(f"\n{table.title}", style="bold"))
    out.print(shown)


def make_terminal_table(*words: str, numbers: tuple[str, ...]) -> Table:
    """Make a table without rows. The columns of ``numbers`` follow those of ``words``, and are aligned to the right."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in words:
        table.add_column(heading)
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    return table
