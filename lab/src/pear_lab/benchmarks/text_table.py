"""Tables of text, for Markdown and for the terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class TextTable:
    """A title, headings and cells.

    Attributes:
        title: what it shows.
        headings: one a column.
        rows: of as many cells.
        left: the first so many columns hold words, the others numbers.
    """

    title: str
    headings: tuple[str, ...]
    rows: list[tuple[str, ...]] = field(default_factory=list)
    left: int = 1

    @classmethod
    def of(
        cls, title: str, rows: Iterable[Any], columns: Mapping[str, Callable[[Any], str]], left: int = 1
    ) -> TextTable:
        """One line for each row, with a function for every heading that makes its cell.

        Example:
            >>> TextTable.of("Squares", [2, 3], {"x": str, "x²": lambda x: str(x * x)}).rows
            [('2', '4'), ('3', '9')]
        """
        return cls(title, tuple(columns), [tuple(cell(row) for cell in columns.values()) for row in rows], left)

    def markdown(self) -> str:
        """The table in Markdown, under its title.

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
        lines = [_markdown_row(self.headings), rule, *map(_markdown_row, self.rows)]
        title = self.title.replace("\n", "; ")
        return f"**{title}**\n\n" + "\n".join(lines) + "\n"


def profile_table(
    title: str, headings: tuple[str, ...], rows: Iterable[tuple[tuple[str, ...], Mapping[str, float]]], left: int = 1
) -> TextTable:
    """A table of times: the given cells of each row, and a column for every name that occurs in a profile."""
    spent = list(rows)
    names = list(dict.fromkeys(name for _, profile in spent for name in profile))
    cells = [(*who, *(format_number(profile.get(name)) for name in names)) for who, profile in spent]
    return TextTable(title, (*headings, *names), cells, left)


def _markdown_row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def format_error(value: float) -> str:
    """An error, to one digit.

    Example:
        >>> format_error(2.34e-15), format_error(float("nan"))
        ('2e-15', '–')
    """
    return "–" if math.isnan(value) else f"{value:.0e}" if math.isfinite(value) else "∞"


def format_number(value: float | None, digits: int = 3) -> str:
    """A number to some significant digits, without an exponent where it is readable without one.

    Example:
        >>> format_number(12345.6), format_number(0.01234), format_number(1.5e-7), format_number(None)
        ('12,346', '0.0123', '1.5e-07', '–')
    """
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞"
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def format_share(value: float | None) -> str:
    """A share in percent.

    Example:
        >>> format_share(0.735), format_share(None)
        ('74 %', '–')
    """
    return "–" if value is None or math.isnan(value) else f"{value:.0%}".replace("%", " %")
