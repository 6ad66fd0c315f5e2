"""The figure of a ``WalkForward``: losses minus those of a reference forecaster, cumulated over time and on average."""

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

_SHOWN = 28  # letters of a name in the figure


def draw_comparison(found: WalkForward, path: Path | None) -> Figure:
    """Return the figure of a comparison, and save it if a path is given.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    require_packages("plot", "matplotlib")
    compared = [name for name in found.names if name != found.reference]
    colors = {name: _comparison_color(name, i) for i, name in enumerate(compared)}
    size = (11.0, max(3.9, 1.6 + 0.42 * len(compared)))
    with styled_figure(size, widths=(1.25, 1.0)) as (figure, (left, right)):
        drawn = _ComparisonAxes(found, colors)
        drawn.draw_cumulated(left)
        drawn.draw_means(right)
        title, _, rest = describe_comparison(found)[0].partition("; ")
        write_figure_headline(figure, title, rest)
        if path is not None:
            save_figure(figure, path)
        return figure


class _ComparisonAxes:
    """The two pictures in the figure of a comparison.

    Args:
        found: the comparison.
        colors: the colour of each forecaster other than the reference, by name.
    """

    def __init__(self, found: WalkForward, colors: dict[str, str]) -> None:
        self.found, self.colors = found, colors
        reference = found.regret[found.names.index(found.reference)]
        self._excess = {name: found.regret[found.names.index(name)] - reference for name in colors}
        mean = found.regret[found.names.index(MEAN)].mean()
        better = [name for name in colors if found.regret[found.names.index(name)].mean() < mean]
        # Forecasters that are worse than a constant are drawn, but the axes need not show all of their lines.
        self._shown = better or list(colors)

    def draw_cumulated(self, axes: Any) -> None:
        """Draw a line for each forecaster: its loss minus that of the reference, summed over the tested rows."""
        found = self.found
        dated = np.issubdtype(found.label.dtype, np.datetime64) or np.issubdtype(found.label.dtype, np.integer)
        place = found.label if dated else np.arange(len(found.sample))
        totals = {name: np.cumsum(excess) for name, excess in self._excess.items()}
        for name, color in self.colors.items():
            axes.plot(place, totals[name], color=color, linewidth=1.8)
        axes.axhline(0, color=INK, linewidth=1)
        for number in np.unique(found.fold)[1:]:
            axes.axvline(place[found.fold == number][0], color=LIGHT["line"], linewidth=0.8, zorder=0)
        axes.set_title(f"lost in all, minus {_shorten_compared_name(found.reference)}")
        axes.set_ylabel("below 0 is better")
        axes.margins(x=0.01)
        ends = [end for name in self._shown for end in (totals[name].min(), totals[name].max())]
        axes.set_ylim(*_comparison_limits([0.0, *ends]))
        if np.issubdtype(place.dtype, np.datetime64):
            _label_comparison_dates(axes)
        else:
            axes.set_xlabel("row")

    def draw_means(self, axes: Any) -> None:
        """Draw a dot with an interval for each forecaster: the mean difference from the reference."""
        found, colors = self.found, self.colors
        order = sorted(colors, key=lambda name: found.differences[name].mean)
        left, right = _comparison_limits(
            [0.0, *(end for name in self._shown for end in found.differences[name].interval)]
        )
        for i, name in enumerate(order):
            mean, (low, high) = found.differences[name].mean, found.differences[name].interval
            if mean > right:
                axes.text(right, i, f"{format_amount(mean)} →", color=colors[name], ha="right", va="center", fontsize=9)
                continue
            axes.plot([low, high], [i, i], color=colors[name], linewidth=2.4, solid_capstyle="round")
            axes.plot(mean, i, "o", color=colors[name], markersize=8)
        axes.set_xlim(left, right)
        axes.axvline(0, color=INK, linewidth=1)
        axes.set_yticks(range(len(order)), [_shorten_compared_name(name) for name in order])
        for text, name in zip(axes.get_yticklabels(), order, strict=True):  # the legend of both pictures
            text.set(color=colors[name], fontweight="bold")
        axes.set_ylim(len(order) - 0.4, -0.6)
        axes.grid(axis="x")
        axes.grid(visible=False, axis="y")
        axes.set_title(f"a row, minus {_shorten_compared_name(found.reference)}, with 95 % intervals")


def _comparison_limits(numbers: list[float]) -> tuple[float, float]:
    """Return the lower and the upper limit of an axis that shows all finite numbers among ``numbers``."""
    finite = [number for number in numbers if np.isfinite(number)]
    low, high = min(finite), max(finite)
    space = 0.12 * (high - low) or 1.0
    return low - space, high + space


def _label_comparison_dates(axes: Any) -> None:
    """Label a horizontal axis of dates with few and short texts."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(minticks=3, maxticks=6)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))


def _comparison_color(name: str, number: int) -> str:
    """Return the colour of a forecaster: grey for the constant forecast, and a green for names with "pear".

    All other names get other colours. ``number``, the forecaster's place in the list, selects one colour of its group.
    """
    if name == MEAN:
        return LIGHT["none"]
    colors = OURS if "pear" in name.lower() else OTHERS
    return colors[number % len(colors)]


def _shorten_compared_name(name: str) -> str:
    """Return the name of a forecaster, cut if it is long."""
    return name if len(name) <= _SHOWN else f"{name[: _SHOWN - 1]}…"
