"""The figures of the page, one small SVG each, so that they stack on a phone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pear.pages.style import CARD, INK, LIGHT, LINE, canvas, page_svg, plain_log, save
from pear_lab.experiments.catalogue import METHODS
from pear_lab.report.bootstrap import Interval

METHOD_COLORS = dict(
    zip(METHODS, ("mse", "spo", "spo-relaxed", "pfyl", "dbb", "lava", "pear", "pear-deep"), strict=True)
)
"""Method → name of its colour."""
PARTS = {"solve": "pear", "gradient": "pear-pale", "validation": "validation", "rest": "rest"}
"""Part of the training time → name of its colour."""

_SIZE = (4.9, 3.7)
_LEAST_RATIO = 0.1


@dataclass(frozen=True)
class Series:
    """One line: ``x`` and ``y`` of the same length, named after a method."""

    method: str
    x: Sequence[float]
    y: Sequence[float]


@dataclass(frozen=True)
class Contrast:
    """A method's regret over the reference's in one cell: ``ratio`` with its interval, 1 where they are equal."""

    method: str
    cell: str
    ratio: Interval


def _color(method: str) -> str:
    return LIGHT[METHOD_COLORS.get(method, "ink")]


def lines(
    ours: Sequence[Series], published: Sequence[Series], x_label: str, log_x: bool = False, steps: bool = False
) -> str:
    """Regret, on a log scale, over something: ours as lines, the published numbers as dashes with open marks."""
    with canvas(_SIZE) as (figure, axes):
        for one in published:
            axes.plot(one.x, one.y, "--o", markersize=5, markerfacecolor=CARD, color=_color(one.method), lw=1.2)
        single = all(len(one.x) == 1 for one in ours)
        shape = {"drawstyle": "steps-post"} if steps else {"marker": "o", "markersize": 7 if single else 5.5}
        for one in ours:
            strong = {"lw": 2.4, "zorder": 3} if one.method == "pear" else {"lw": 1.8, "zorder": 2}
            axes.plot(one.x, one.y, color=_color(one.method), **shape, **strong)
        if log_x:
            plain_log(axes, "x")
        else:
            ticks = sorted({x for one in (*ours, *published) for x in one.x})
            axes.set_xticks(ticks, [f"{x:g}" for x in ticks])
        plain_log(axes, "y")
        axes.set_xlabel(x_label)
        return page_svg(figure)


def pairs(before: Mapping[str, float], after: Mapping[str, float], published: Mapping[str, float]) -> str:
    """Bars of the regret before (pale) and after a shift, by method; open marks are the published numbers after it."""
    with canvas(_SIZE) as (figure, axes):
        for place, name in enumerate(after):
            if name in before:
                axes.bar(place - 0.2, before[name], 0.36, color=_color(name), alpha=0.4)
            axes.bar(place + 0.2, after[name], 0.36, color=_color(name))
            if name in published:
                axes.plot(place + 0.2, published[name], "D", markersize=6, markerfacecolor=CARD, color=INK, zorder=4)
        axes.set_xticks(range(len(after)), [METHODS.get(name, name) for name in after])
        axes.tick_params(axis="x", labelsize=9.5, labelrotation=20 if len(after) > 6 else 0)
        return page_svg(figure)


def split_bars(seconds: Mapping[str, Mapping[str, float]]) -> str:
    """Stacked bars of where the time went, by method, with the total in seconds at the end of each bar."""
    with canvas((4.9, 0.95 + 0.42 * len(seconds)), grid="x") as (figure, axes):
        longest = max(sum(parts.values()) for parts in seconds.values()) or 1.0
        for place, parts in enumerate(seconds.values()):
            left = 0.0
            for part, color in PARTS.items():
                width = max(0.0, parts.get(part, 0.0))
                axes.barh(place, width, 0.62, left=left, color=LIGHT[color])
                left += width
            axes.text(left + 0.015 * longest, place, f"{left:.3g} s", va="center", fontsize=9.5)
        axes.set_yticks(range(len(seconds)), [METHODS.get(name, name) for name in seconds])
        axes.invert_yaxis()
        axes.set_xlim(0, 1.17 * longest)
        axes.set_xlabel("seconds, mean over the seeds")
        return page_svg(figure)


def contrast_panel(points: Sequence[Contrast]) -> str:
    """Ratios of regret with their intervals, on a log scale: methods side by side in each cell."""
    with canvas(_SIZE) as (figure, axes):
        _draw_contrasts(axes, points)
        return page_svg(figure)


def save_contrasts(panels: Mapping[str, Sequence[Contrast]], to: Path) -> None:
    """The panels side by side, by their titles, with a legend, as a picture of its own."""
    widths = tuple(max(2.9, len({one.cell for one in points})) for points in panels.values())
    with canvas((2.2 + 0.62 * sum(widths), 3.9), widths=widths, squeeze=False, sharey=True) as (figure, axes):
        for one, (title, points) in zip(axes[0], panels.items(), strict=True):
            _draw_contrasts(one, points)
            one.set_title(title)
        axes[0][0].set_ylabel("regret / regret of PEAR as published")
        shown = {point.method for points in panels.values() for point in points}
        methods, names = [name for name in METHODS if name in shown], {**METHODS, "pear": "PEAR as published"}
        marks = [figure.axes[0].plot([], [], "o", color=_color(name), label=names[name])[0] for name in methods]
        line = figure.axes[0].plot([], [], color=LIGHT["pear"], label=names["pear"])[0]
        figure.legend(handles=[*marks, line], loc="outside upper left", ncols=len(methods) + 1)
        save(figure, to)


def _draw_contrasts(axes: Any, points: Sequence[Contrast]) -> None:
    cells = list(dict.fromkeys(one.cell for one in points))
    methods = list(dict.fromkeys(point.method for point in points))
    axes.axhline(1.0, color=LIGHT["pear"], lw=1.6, zorder=1)
    for point in points:
        shift = 0.2 * (methods.index(point.method) - (len(methods) - 1) / 2)
        low, high = (max(value, _LEAST_RATIO) for value in (point.ratio.low, point.ratio.high))
        x = cells.index(point.cell) + shift
        axes.plot([x, x], [low, high], color=_color(point.method), lw=1.8, zorder=2)
        axes.plot(x, max(point.ratio.estimate, _LEAST_RATIO), "o", color=_color(point.method), markersize=5.5)
    axes.set_xticks(range(len(cells)), cells, rotation=30, ha="right", fontsize=9.5)
    axes.set_xlim(-0.6, len(cells) - 0.4)
    plain_log(axes, "y")


def value_lines(
    values: Mapping[str, Sequence[float]], colors: Mapping[str, str], shaded: Sequence[tuple[int, int]]
) -> str:
    """The value of portfolios over the days, one line each, with spans of days shaded.

    Args:
        values: at the end of each day, by name.
        colors: the name of each line's colour.
        shaded: first and last day of each span.
    """
    with canvas(_SIZE) as (figure, axes):
        for first, last in shaded:
            axes.axvspan(first, last, color=LINE, alpha=0.6, lw=0)
        for name, value in values.items():
            width = 2.4 if colors[name] == "pear" else 1.6
            axes.plot(range(1, len(value) + 1), value, color=LIGHT[colors[name]], lw=width)
        axes.set_xlabel("trading days of the test")
        return page_svg(figure)
