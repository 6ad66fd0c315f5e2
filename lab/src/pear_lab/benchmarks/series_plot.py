"""The figure of a benchmark: series of points on logarithmic scales."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pear.pages import figure_style


@dataclass(frozen=True)
class Series:
    """The points of one line of a figure.

    Attributes:
        name: the name in the legend. A name has the same color in all panels.
        x, y: the coordinates of the points, which are positive.
        ours: whether the line shows PEAR.
        panel: the title of the axes that the line is drawn in.
        joined: whether a line joins the points.
        remark: a text after the name in the legend.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    ours: bool = True
    panel: str = ""
    joined: bool = True
    remark: str = ""


def draw_series(path: Path, title: str, x_label: str, y_label: str, series: Sequence[Series]) -> Path:
    """Draw series, with their panels side by side, and save an SVG. Return its path.

    Points that are not positive are left out.

    Args:
        path: the SVG file to write.
        title: the heading of the picture.
        x_label, y_label: the labels of the axes.
        series: the series to draw. Series of the same panel share its axes.
    """
    panels = tuple(dict.fromkeys(one.panel for one in series)) or ("",)
    colors = _choose_series_colors(series)
    size = (max(5.6, 4.2 * len(panels)), 4.6)
    with figure_style.styled_figure(size, "both", (1.0,) * len(panels), squeeze=False, sharey=True) as (figure, grid):
        figure_style.write_figure_headline(figure, title)
        for axes, panel in zip(grid[0], panels, strict=True):
            for one in series:
                if one.panel == panel:
                    _plot_series(axes, one, colors[one.name])
            axes.set(title=panel, xlabel=x_label)
            figure_style.style_plain_log_scale(axes, "x")
            figure_style.style_plain_log_scale(axes, "y")
            if axes.get_legend_handles_labels()[1]:
                axes.legend()
        grid[0][0].set_ylabel(y_label)
        return figure_style.save_figure(figure, path)


def _choose_series_colors(series: Sequence[Series]) -> dict[str, str]:
    """Return a color for each name, from one palette for PEAR and from another for everything else."""
    colors = {}
    for ours, palette in ((True, figure_style.OURS), (False, figure_style.OTHERS)):
        names = dict.fromkeys(one.name for one in series if one.ours is ours)
        colors.update({name: palette[i % len(palette)] for i, name in enumerate(names)})
    return colors


def _plot_series(axes: Any, one: Series, color: str) -> None:
    """Plot the positive points of one series, ordered by x."""
    points = [(x, y) for x, y in zip(one.x, one.y, strict=True) if x > 0 and y > 0]
    if points:
        shape = {"linewidth": 2.2 if one.ours else 1.4, "linestyle": "-" if one.joined else "", "marker": "o"}
        axes.plot(*zip(*sorted(points), strict=True), label=one.name + one.remark, color=color, markersize=4, **shape)
