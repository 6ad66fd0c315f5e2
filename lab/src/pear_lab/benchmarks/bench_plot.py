"""Pictures of the speed benchmarks: time over size, both on a log scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pear.pages import figure_style


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
        figure_style.write_headline(figure, title)
        for axes, panel in zip(grid[0], panels, strict=True):
            for one in series:
                if one.panel == panel:
                    _draw_line(axes, one, colors[one.name])
            axes.set(title=panel, xlabel=x_label)
            figure_style.set_plain_log_scale(axes, "x")
            figure_style.set_plain_log_scale(axes, "y")
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
