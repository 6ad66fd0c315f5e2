"""The parts of a page: sections of sentences, tables and figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple


class RankedText(NamedTuple):
    """A text that may be marked: place 1 is bold, 2 underlined, 0 neither."""

    text: str
    place: int = 0


@dataclass(frozen=True)
class Grid:
    """A table.

    Attributes:
        title: stands above it.
        header: of the columns; empty where the title and the caption say it all.
        rows: the entries of each line, the first of which names it: a text, a :class:`RankedText`, or an object that
            compares a number of ours with a published one and has the attribute ``not_run``.
        caption: stands between the title and the table.
    """

    title: str
    header: tuple[str, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()
    caption: str = ""

    @property
    def cells(self) -> list[Any]:
        """Entries that compare ours with the paper's, in reading order."""
        return [entry for row in self.rows for entry in row if not isinstance(entry, str | RankedText)]

    @property
    def not_run(self) -> bool:
        """Whether it compares with the paper, and nothing of it was run."""
        return bool(self.cells) and all(cell.not_run for cell in self.cells)


@dataclass(frozen=True)
class PageFigure:
    """One figure of a page, or its place where nothing was run yet.

    Attributes:
        title, caption: texts above and below it.
        draw: gives the ``<svg>`` element; None where nothing was run. It alone needs matplotlib.
        legend: name → colour of ``pear.pages.figure_style``.
    """

    title: str
    caption: str = ""
    draw: Callable[[], str] | None = None
    legend: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Section:
    """One section of a page.

    Attributes:
        name: unique in the page.
        title: its heading.
        sentences: one paragraph each.
        grids, figures: shown in this order, unless figures_first.
        save: writes its figures, legend included, as one picture; None where no such file is needed.
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
