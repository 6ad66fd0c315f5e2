"""The pictures of the page, one small SVG each, so that they stack on a phone.

Colours are written as CSS variables of the page, so that one picture serves the light and the dark page.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from pear.report.tables import METHODS

# Stand-ins that matplotlib can draw with; no two alike, and each becomes a variable of the page.
_VARIABLES = {
    "#010101": "--ink",
    "#020202": "--muted",
    "#030303": "--line",
    "#040404": "--card",
    "#110001": "--mse",
    "#110002": "--spo",
    "#110003": "--spo-relaxed",
    "#110004": "--pfyl",
    "#110005": "--dbb",
    "#110006": "--lava",
    "#110007": "--pear",
    "#120001": "--solve",
    "#120002": "--gradient",
    "#120003": "--validation",
    "#120004": "--rest",
}
_COLOR = {name: color for color, name in _VARIABLES.items()}
_INK, _MUTED, _LINE, _CARD = (_COLOR[name] for name in ("--ink", "--muted", "--line", "--card"))
_NAMES = ("--mse", "--spo", "--spo-relaxed", "--pfyl", "--dbb", "--lava", "--pear")
METHOD_COLORS = dict(zip(METHODS, _NAMES, strict=True))
PARTS = ("solve", "gradient", "validation", "rest")
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: small, sharp, and in the font of the page
    "svg.hashsalt": "pear",  # the same picture gives the same bytes
    "font.size": 10.5,
    "font.family": "sans-serif",
}


@dataclass(frozen=True)
class Series:
    """One line: ``x`` and ``y`` of the same length, named after a method."""

    method: str
    x: Sequence[float]
    y: Sequence[float]


def color(method: str) -> str:
    """The stand-in of a method's colour."""
    return _COLOR[METHOD_COLORS[method]] if method in METHOD_COLORS else _INK


@mpl.rc_context(_STYLE)
def lines(
    ours: Sequence[Series], published: Sequence[Series], x_label: str, log_x: bool = False, steps: bool = False
) -> str:
    """Regret, on a log scale, over something: ours as lines, the published numbers as dashes with open marks."""
    figure, axes = _axes((4.9, 3.7))
    single = all(len(series.x) == 1 for series in ours)
    for series in published:
        axes.plot(series.x, series.y, "--o", markersize=5, markerfacecolor=_CARD, color=color(series.method), lw=1.2)
    for series in ours:
        mark = "" if steps else "o"
        axes.plot(
            series.x,
            series.y,
            drawstyle="steps-post" if steps else "default",
            marker=mark,
            markersize=5.5 if not single else 7,
            color=color(series.method),
            lw=2.4 if series.method == "pear" else 1.8,
            zorder=3 if series.method == "pear" else 2,
        )
    axes.set_yscale("log")
    if log_x:
        axes.set_xscale("log")
        _plain_log(axes.xaxis)
    else:
        axes.set_xticks(sorted({x for series in (*ours, *published) for x in series.x}))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:g}"))
    _plain_log(axes.yaxis)
    axes.set_xlabel(x_label, color=_MUTED)
    return _svg(figure)


@mpl.rc_context(_STYLE)
def pairs(before: Mapping[str, float], after: Mapping[str, float], published: Mapping[str, float]) -> str:
    """Bars of the regret before (pale) and after a shift, by method; open marks are the published numbers after it."""
    figure, axes = _axes((4.9, 3.7))
    names = list(after)
    for place, name in enumerate(names):
        if name in before:
            axes.bar(place - 0.2, before[name], 0.36, color=color(name), alpha=0.4)
        axes.bar(place + 0.2, after[name], 0.36, color=color(name))
        if name in published:
            axes.plot(place + 0.2, published[name], "D", markersize=6, markerfacecolor=_CARD, color=_INK, zorder=4)
    axes.set_xticks(range(len(names)), [METHODS.get(name, name) for name in names])
    axes.tick_params(axis="x", labelsize=9.5, labelrotation=20 if len(names) > 6 else 0)
    return _svg(figure)


@mpl.rc_context(_STYLE)
def split_bars(seconds: Mapping[str, Mapping[str, float]]) -> str:
    """Stacked bars of where the time went, by method, with the total in seconds at the end of each bar."""
    figure, axes = _axes((4.9, 0.95 + 0.42 * len(seconds)), grid="x")
    names = list(seconds)
    longest = max(sum(parts.values()) for parts in seconds.values()) or 1.0
    for place, name in enumerate(names):
        left = 0.0
        for part in PARTS:
            width = max(0.0, seconds[name].get(part, 0.0))
            axes.barh(place, width, 0.62, left=left, color=_COLOR[f"--{part}"])
            left += width
        axes.text(left + 0.015 * longest, place, f"{left:.3g} s", va="center", color=_INK, fontsize=9.5)
    axes.set_yticks(range(len(names)), [METHODS.get(name, name) for name in names])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.17 * longest)
    axes.set_xlabel("seconds, mean over the seeds", color=_MUTED)
    return _svg(figure)


@mpl.rc_context(_STYLE)
def value_lines(
    values: Mapping[str, Sequence[float]], variables: Mapping[str, str], shaded: Sequence[tuple[int, int]]
) -> str:
    """The value of portfolios over the days, one line each, with spans of days shaded.

    Args:
        values: at the end of each day, by name.
        variables: the page's variable for the colour of each.
        shaded: first and last day of each span.
    """
    figure, axes = _axes((7.6, 3.9))
    for first, last in shaded:
        axes.axvspan(first, last, color=_LINE, alpha=0.6, lw=0)
    for name, value in values.items():
        strong = variables[name] == "--pear"
        axes.plot(range(1, len(value) + 1), value, color=_COLOR[variables[name]], lw=2.4 if strong else 1.6)
    axes.set_xlabel("trading days of the test", color=_MUTED)
    return _svg(figure)


def _axes(size: tuple[float, float], grid: Literal["x", "y"] = "y") -> tuple[Figure, Any]:
    figure = Figure(figsize=size, layout="constrained")  # no pyplot: no window and no global state
    axes = figure.subplots()
    figure.patch.set_alpha(0.0)
    axes.patch.set_alpha(0.0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(_LINE)
    axes.grid(axis=grid, color=_LINE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=_MUTED, labelcolor=_INK, length=0, which="both")
    return figure, axes


def _plain_log(axis: Any) -> None:
    """Few ticks, written as plain numbers."""
    low, high = sorted(axis.get_view_interval())
    ratio = high / low if low > 0 else 1.0
    subs = (1.0,) if ratio > 1e4 else (1.0, 3.0) if ratio > 100 else (1.0, 2.0, 5.0)
    # On a short axis there may be no power of ten, nor twice or five times one.
    axis.set_major_locator(LogLocator(base=10, subs=subs) if ratio > 10 else MaxNLocator(5, steps=[1, 2, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:g}"))
    axis.set_minor_locator(NullLocator())


def _svg(figure: Figure) -> str:
    """The picture as an ``<svg>`` element that stands in a page: no header, no addresses, no fixed size."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", buffer.getvalue(), flags=re.DOTALL)
    head, _, body = text[text.index("<svg") :].partition(">")
    head = re.sub(r'\s(?:xmlns(?::\w+)?|version|width|height)="[^"]*"', "", head)
    text = f"{head}>{body}".replace("xlink:href", "href")
    for stand_in, name in _VARIABLES.items():
        text = text.replace(stand_in, f"var({name})")
    return re.sub(r"\n\s*", "\n", text).strip()


def with_own_ids(svg: str, prefix: str) -> str:
    """The picture with a prefix on each of its names, since several pictures share one page."""
    svg = re.sub(r'\bid="', f'id="{prefix}-', svg)
    return svg.replace("url(#", f"url(#{prefix}-").replace('href="#', f'href="#{prefix}-')
