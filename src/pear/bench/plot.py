"""Pictures of the speed benchmarks: time over size, both on a log scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_OURS = ("#2f7d4f", "#5aa679", "#93c9a8", "#1d5736")
_THEIRS = ("#d9822b", "#8e5ea2", "#3a78b5", "#b5483a", "#7f7f7f", "#c2a02e")
_INK, _GREY, _FAINT = "#2b2f36", "#6a7280", "#e1e4e8"


@dataclass(frozen=True)
class Series:
    """One line.

    Attributes:
        name: whose it is; the same name has the same color in every panel.
        x, y: positive numbers, one a point.
        ours: whether it is this package's.
        panel: title of the axes that it belongs to.
        joined: whether a line joins the points.
        remark: stands behind the name in the legend.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    ours: bool = True
    panel: str = ""
    joined: bool = True
    remark: str = ""


def draw(path: Path, title: str, x_label: str, y_label: str, series: Sequence[Series]) -> Path:
    """Save the lines as an SVG, one panel beside the other; points without a positive place are left out.

    Args:
        path: of the file.
        title: what the picture says.
        x_label, y_label: of the axes.
        series: the lines, those of one panel sharing its axes.
    """
    from matplotlib.figure import Figure  # no pyplot: no window and no global state

    panels = list(dict.fromkeys(one.panel for one in series)) or [""]
    colors = _colors(series)
    figure = Figure(figsize=(max(5.6, 4.2 * len(panels)), 4.6), layout="constrained")
    figure.suptitle(title, fontsize=13, fontweight="bold", color=_INK, x=0.01, ha="left")
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False, sharey=True)[0], panels, strict=True):
        for one in series:
            if one.panel == panel:
                _line(axes, one, colors[one.name])
        axes.set(xscale="log", yscale="log")
        axes.set_title(panel, loc="left", fontsize=11, color=_INK)
        axes.set_xlabel(x_label, color=_GREY)
        _clean(axes)
        if axes.get_legend_handles_labels()[1]:
            axes.legend(frameon=False, fontsize=8.5)
    figure.axes[0].set_ylabel(y_label, color=_GREY)
    figure.savefig(path, format="svg")
    return path


def _colors(series: Sequence[Series]) -> dict[str, str]:
    """One color a name, ours green."""
    colors = {}
    for ours, palette in ((True, _OURS), (False, _THEIRS)):
        names = dict.fromkeys(one.name for one in series if one.ours is ours)
        colors.update({name: palette[i % len(palette)] for i, name in enumerate(names)})
    return colors


def _line(axes: Any, one: Series, color: str) -> None:
    points = [(x, y) for x, y in zip(one.x, one.y, strict=True) if x > 0 and y > 0]
    if points:
        width = 2.2 if one.ours else 1.4
        style = "o-" if one.joined else "o"
        axes.plot(
            *zip(*sorted(points), strict=True),
            style,
            label=one.name + one.remark,
            color=color,
            linewidth=width,
            markersize=4,
        )


def _clean(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(_FAINT)
    axes.grid(which="major", color=_FAINT, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=_INK, which="both", length=0)
