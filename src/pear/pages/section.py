"""The parts of a page: sections of sentences, tables and figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple


class RankedText(NamedTuple):
    """A text with its place in a ranking: place 1 is printed bold, place 2 underlined, place 0 plain."""

    text: str
    place: int = 0


@dataclass(frozen=True)
class Grid:
    """A table.

    Attributes:
        title: heading above the table.
        header: headings of the columns; empty for a table without headings.
        rows: the entries of each line; the first one names the line. An entry is a text, a :class:`RankedText`, or an
            object with the attribute ``not_run`` that compares our number with a published one.
        caption: text between the heading and the table.
    """

    title: str
    header: tuple[str, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()
    caption: str = ""

    @property
    def cells(self) -> list[Any]:
        """Entries that compare our number with the paper's, in reading order."""
        return [entry for row in self.rows for entry in row if not isinstance(entry, str | RankedText)]

    @property
    def not_run(self) -> bool:
        """Whether it compares with the paper, and nothing of it was run."""
        return bool(self.cells) and all(cell.not_run for cell in self.cells)


@dataclass(frozen=True)
class PageFigure:
    """One figure of a page, or its place where nothing was run yet.

    Attributes:
        title: text above the figure.
        caption: text below the figure.
        draw: function that returns the ``<svg>`` element and needs matplotlib; None if nothing was run.
        legend: colour of each name, from ``pear.pages.figure_style``.
    """

    title: str
    caption: str = ""
    draw: Callable[[], str] | None = None
    legend: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Section:
    """One section of a page.

    Attributes:
        name: name that is unique on the page.
        title: heading of the section.
        sentences: texts, one paragraph each.
        grids: tables of the section.
        figures: figures of the section, shown after the tables.
        figures_first: True to show the figures before the tables.
        save: function that writes all figures with their legend as one picture; None if no such file is needed.
    """

    name: str
    title: str
    sentences: tuple[str, ...] = ()
    grids: tuple[Grid, ...] = ()
    figures: tuple[PageFigure, ...] = ()
    save: Callable[[Path], object] | None = None
    figures_first: bool = False

    @property
    def cells(self) -> list[Any]:
        """The cells of all grids, in reading order."""
        return [cell for grid in self.grids for cell in grid.cells]

    @property
    def not_run(self) -> bool:
        """Whether it compares with the paper, and nothing of it was run."""
        return bool(self.cells) and all(grid.not_run for grid in self.grids if grid.cells)
