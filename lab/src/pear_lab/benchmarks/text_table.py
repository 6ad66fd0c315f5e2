"""``TextTable``: a table for Markdown and the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pear_lab.benchmarks.number_formats import format_number


@dataclass(frozen=True)
class TextTable:
    """A table with a title, headings and cells.

    Attributes:
        title: the text above the table.
        headings: a heading for each column.
        rows: a tuple of cells for each line.
        left: the number of columns at the left that hold words. The other columns hold numbers.
    """

    title: str
    headings: tuple[str, ...]
    rows: list[tuple[str, ...]] = field(default_factory=list)
    left: int = 1

    @classmethod
    def of(
        cls, title: str, rows: Iterable[Any], columns: Mapping[str, Callable[[Any], str]], left: int = 1
    ) -> TextTable:
        """Make a table with a line for each row.

        Args:
            title: as for the class.
            rows: the objects to show.
            columns: for each heading the function that makes the cell below it from a row.
            left: as for the class.

        Example:
            >>> TextTable.of("Squares", [2, 3], {"x": str, "x²": lambda x: str(x * x)}).rows
            [('2', '4'), ('3', '9')]
        """
        return cls(title, tuple(columns), [tuple(cell(row) for cell in columns.values()) for row in rows], left)

    @classmethod
    def of_profiles(
        cls,
        title: str,
        headings: tuple[str, ...],
        rows: Iterable[tuple[tuple[str, ...], Mapping[str, float]]],
        left: int = 1,
    ) -> TextTable:
        """Make a table of the time that phases take, with a column for every phase that any line names.

        Args:
            title: as for the class.
            headings: the headings of the given cells.
            rows: for each line its first cells, and its profile: the time of each phase by name.
            left: as for the class.
        """
        spent = list(rows)
        names = list(dict.fromkeys(name for _, profile in spent for name in profile))
        cells = [(*who, *(format_number(profile.get(name)) for name in names)) for who, profile in spent]
        return cls(title, (*headings, *names), cells, left)

    def markdown(self) -> str:
        """Return the table in Markdown, under its title.

        Example:
            >>> print(TextTable("Speed", ("who", "ms"), [("a", "1.0")]).markdown())
            **Speed**
            <BLANKLINE>
            | who | ms |
            |---|---:|
            | a | 1.0 |
            <BLANKLINE>
        """
        rule = "|" + "|".join("---" if i < self.left else "---:" for i in range(len(self.headings))) + "|"
        lines = [_markdown_line(self.headings), rule, *map(_markdown_line, self.rows)]
        title = self.title.replace("\n", "; ")
        return f"**{title}**\n\n" + "\n".join(lines) + "\n"


def _markdown_line(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
