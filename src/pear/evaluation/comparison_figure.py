"""The picture of a walk forward: losses minus those of the reference, cumulated over time and on average."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pear.evaluation.comparison_text import describe_comparison
from pear.evaluation.walk_forward_result import MEAN
from pear.optional_packages import require_packages
from pear.pages.figure_style import (
    INK,
    LIGHT,
    OTHERS,
    OURS,
    save_figure,
    styled_figure,
    write_figure_headline,
)
from pear.wording import format_amount

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pear.evaluation.walk_forward_result import WalkForward

_SHOWN = 28  # letters of a name in the picture


def draw_comparison(found: WalkForward, path: Path | None) -> Figure:
    """Draw the comparison, and save it where a path is given.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    require_packages("plot", "matplotlib")
    compared = [name for name in found.names if name != found.reference]
    colors = {name: _color(name, i) for i, name in enumerate(compared)}
    size = (11.0, max(3.9, 1.6 + 0.42 * len(compared)))
    with styled_figure(size, widths=(1.25, 1.0)) as (figure, (left, right)):
        _draw_cumulated(found, colors, left)
        _draw_means(found, colors, right)
        title, _, rest = describe_comparison(found)[0].partition("; ")
        write_figure_headline(figure, title, rest)
        if path is not None:
            save_figure(figure, path)
        return figure


def _draw_cumulated(found: WalkForward, colors: dict[str, str], axes: Any) -> None:
    """Draw a line for each forecaster: its loss less that of the reference, summed up over the tested rows."""
    reference = found.regret[found.names.index(found.reference)]
    dated = np.issubdtype(found.label.dtype, np.datetime64) or np.issubdtype(found.label.dtype, np.integer)
    place = found.label if dated else np.arange(len(found.sample))
    for name, color in colors.items():
        axes.plot(place, np.cumsum(found.regret[found.names.index(name)] - reference), color=color, linewidth=1.8)
    axes.axhline(0, color=INK, linewidth=1)
    for number in np.unique(found.fold)[1:]:
        axes.axvline(place[found.fold == number][0], color=LIGHT["line"], linewidth=0.8, zorder=0)
    axes.set_title(f"lost in all, minus {_shorten(found.reference)}")
    axes.set_ylabel("below 0 is better")
    axes.margins(x=0.01)
    totals = {name: (found.regret[found.names.index(name)] - reference).cumsum() for name in _contenders(found)}
    axes.set_ylim(*_range_of([0.0, *(end for one in totals.values() for end in (one.min(), one.max()))]))
    if np.issubdtype(place.dtype, np.datetime64):
        _date_axis(axes)
    else:
        axes.set_xlabel("row")


def _draw_means(found: WalkForward, colors: dict[str, str], axes: Any) -> None:
    """Draw a dot with its interval for each forecaster: the mean difference to the reference."""
    order = sorted(colors, key=lambda name: found.differences[name].mean)
    left, right = _range_of([0.0, *(end for name in _contenders(found) for end in found.differences[name].interval)])
    for i, name in enumerate(order):
        mean, (low, high) = found.differences[name].mean, found.differences[name].interval
        if mean > right:
            axes.text(right, i, f"{format_amount(mean)} →", color=colors[name], ha="right", va="center", fontsize=9)
            continue
        axes.plot([low, high], [i, i], color=colors[name], linewidth=2.4, solid_capstyle="round")
        axes.plot(mean, i, "o", color=colors[name], markersize=8)
    axes.set_xlim(left, right)
    axes.axvline(0, color=INK, linewidth=1)
    axes.set_yticks(range(len(order)), [_shorten(name) for name in order])
    for text, name in zip(axes.get_yticklabels(), order, strict=True):  # which name the lines of the other picture
        text.set(color=colors[name], fontweight="bold")
    axes.set_ylim(len(order) - 0.4, -0.6)
    axes.grid(axis="x")
    axes.grid(visible=False, axis="y")
    axes.set_title(f"a row, minus {_shorten(found.reference)}, with 95 % intervals")


def _contenders(found: WalkForward) -> list[str]:
    """Return the forecasters that fit the picture to themselves: those that lose less than the constant forecast.

    The reference is not among them. Where there are none, all others are.
    """
    others = [name for name in found.names if name != found.reference]
    mean = found.regret[found.names.index(MEAN)].mean()
    return [name for name in others if found.regret[found.names.index(name)].mean() < mean] or others


def _range_of(numbers: list[float]) -> tuple[float, float]:
    """Return limits of an axis around these numbers, infinite ones left out."""
    finite = [number for number in numbers if np.isfinite(number)]
    low, high = min(finite), max(finite)
    space = 0.12 * (high - low) or 1.0
    return low - space, high + space


def _date_axis(axes: Any) -> None:
    """Label an axis of dates with few and short texts."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(minticks=3, maxticks=6)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))


def _color(name: str, number: int) -> str:
    """Choose a colour: grey for the constant forecast, greens where the name holds PEAR's, otherwise others in turn."""
    if name == MEAN:
        return LIGHT["none"]
    if "pear" in name.lower():
        return OURS[number % len(OURS)]
    return OTHERS[number % len(OTHERS)]


def _shorten(name: str) -> str:
    """Cut a long name."""
    return name if len(name) <= _SHOWN else f"{name[: _SHOWN - 1]}…"
