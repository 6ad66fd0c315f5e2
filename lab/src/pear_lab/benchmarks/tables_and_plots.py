"""Text tables for Markdown and the terminal, and plots of time against size on logarithmic scales."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pear.pages import figure_style


@dataclass(frozen=True)
class TextTable:
    """A title, headings and cells.

    Attributes:
        title: what it shows.
        headings: one heading per column.
        rows: one tuple of cells per line.
        left: number of columns at the left that hold words; the others hold numbers.
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


@dataclass(frozen=True)
class Series:
    """One line of a figure.

    Attributes:
        name: name in the legend; one name has one color in all panels.
        x, y: positive coordinates of the points.
        ours: whether the line shows this package.
        panel: title of the axes that the line belongs to.
        joined: whether a line joins the points.
        remark: text after the name in the legend.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    ours: bool = True
    panel: str = ""
    joined: bool = True
    remark: str = ""


def draw_series(path: Path, title: str, x_label: str, y_label: str, series: Sequence[Series]) -> Path:
    """Save the lines as an SVG with its panels side by side; points that are not positive are left out.

    Args:
        path: the SVG file to write.
        title: heading of the picture.
        x_label, y_label: labels of the axes.
        series: the lines to draw; lines of one panel share its axes.
    """
    panels = tuple(dict.fromkeys(one.panel for one in series)) or ("",)
    colors = _series_colors(series)
    size = (max(5.6, 4.2 * len(panels)), 4.6)
    with figure_style.styled_figure(size, "both", (1.0,) * len(panels), squeeze=False, sharey=True) as (figure, grid):
        figure_style.write_figure_headline(figure, title)
        for axes, panel in zip(grid[0], panels, strict=True):
            for one in series:
                if one.panel == panel:
                    _draw_line(axes, one, colors[one.name])
            axes.set(title=panel, xlabel=x_label)
            figure_style.style_plain_log_scale(axes, "x")
            figure_style.style_plain_log_scale(axes, "y")
            if axes.get_legend_handles_labels()[1]:
                axes.legend()
        grid[0][0].set_ylabel(y_label)
        return figure_style.save_figure(figure, path)


def _series_colors(series: Sequence[Series]) -> dict[str, str]:
    """Choose one color for each name. Lines of this package are green."""
    colors = {}
    for ours, palette in ((True, figure_style.OURS), (False, figure_style.OTHERS)):
        names = dict.fromkeys(one.name for one in series if one.ours is ours)
        colors.update({name: palette[i % len(palette)] for i, name in enumerate(names)})
    return colors


def _draw_line(axes: Any, one: Series, color: str) -> None:
    points = [(x, y) for x, y in zip(one.x, one.y, strict=True) if x > 0 and y > 0]
    if points:
        shape = {"linewidth": 2.2 if one.ours else 1.4, "linestyle": "-" if one.joined else "", "marker": "o"}
        axes.plot(*zip(*sorted(points), strict=True), label=one.name + one.remark, color=color, markersize=4, **shape)
