"""The pictures of a diagnosis: each by itself for a page, or all in one figure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pear.diagnosis.constraint_prices import rank_constraint_prices
from pear.optional_packages import require_packages
from pear.pages.figure_style import INK, LIGHT, MUTED, figure_as_svg, styled_figure, write_figure_headline
from pear.wording import format_amount, format_percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pear.diagnosis.diagnosis import Diagnosis

Array = NDArray[Any]
BARS = 12
"""Largest number of horizontal bars in a picture."""

_WIDTH = 4.9  # inches
_SQUARE = 3.4  # inches, height of a picture that is about square
_LONGEST = 26  # characters of a name beside a horizontal bar
_COLUMNS_TO, _COLUMN_NAME = 60, 5  # the most vertical bars in a picture, and the most characters of their names
_POINTS = 300  # of the loss curve
_MOST = 0.8  # the loss curve marks where this share of the loss is reached


@dataclass(frozen=True)
class DiagnosisFigure:
    """One picture of a diagnosis.

    Attributes:
        name: name of the section of the page that shows the picture.
        title: heading of the picture.
        caption: text below the picture.
        height: height in inches.
        draw: function that draws the picture on matplotlib axes.
    """

    name: str
    title: str
    caption: str
    height: float
    draw: Callable[[Any], None]

    def svg(self) -> str:
        """Return the picture as an ``<svg>`` element for a page."""
        with styled_figure((_WIDTH, self.height)) as (figure, axes):
            self.draw(axes)
            return figure_as_svg(figure)

    @classmethod
    def of_values(cls, found: Diagnosis) -> DiagnosisFigure | None:
        """Return the picture of the loss by predicted value, or None if no value causes a loss."""
        cost = np.nansum(found.attribution, axis=0)
        if not np.abs(cost).max() > 0:
            return None
        title, caption = "Money lost by predicted value", "In the unit of the objective."
        if (cost < 0).any():
            caption += " Below zero: errors that make good for others."
        if len(cost) > BARS and _diagnosis_columns_fit(found.names):  # hours of a day, days of a year: in their order
            return cls(
                "values", title, caption, _SQUARE, partial(_draw_diagnosis_columns, labels=found.names, numbers=cost)
            )
        order = np.argsort(-cost, kind="stable")
        top, rest = order[:BARS], order[BARS:]
        label = f"the other {len(rest)} together: {format_amount(cost[rest].sum())}" if len(rest) else ""
        texts = [format_amount(one) for one in cost[top]]
        draw = partial(
            _draw_diagnosis_bars, labels=[found.names[j] for j in top], numbers=cost[top], texts=texts, label=label
        )
        return cls("values", title, caption, _figure_height(len(top)), draw)

    @classmethod
    def of_groups(cls, found: Diagnosis) -> DiagnosisFigure | None:
        """Return the picture of the loss by group, or None without groups or without a loss."""
        total = float(found.regret.sum())
        if found.groups is None or not total > 0:
            return None
        labels, first, at = np.unique(found.groups, return_index=True, return_inverse=True)
        lost, count = np.bincount(at, found.regret) / total, np.bincount(at) / len(at)
        title = f"Money lost by {found.grouped_by}"
        caption = "A bar beyond its mark costs more than its share of the samples."
        # Numbers are sorted. Words keep the order of the samples, so that weekdays are not sorted by their letters.
        order = np.arange(len(labels)) if found.groups.dtype.kind in "iuf" else np.argsort(first)
        upright = _diagnosis_columns_fit([str(label) for label in labels])
        if len(order) > BARS and not upright:
            order = np.argsort(-lost, kind="stable")[:BARS]
            caption += f" The {BARS} of {len(labels)} that cost most."
        shown: dict[str, Any] = {"labels": [str(labels[i]) for i in order]}
        shown |= {"numbers": 100 * lost[order], "marks": 100 * count[order]}
        if upright:
            draw = partial(
                _draw_diagnosis_columns, **shown, label=found.grouped_by, unit="% of the loss; marks: of the samples"
            )
            return cls("groups", title, caption, _SQUARE, draw)
        texts = [format_percent(one) for one in lost[order]]
        draw = partial(
            _draw_diagnosis_bars, **shown, texts=texts, label="% of the loss; marks: % of the samples", color="worse"
        )
        return cls("groups", title, caption, _figure_height(len(order)), draw)

    @classmethod
    def of_samples(cls, found: Diagnosis) -> DiagnosisFigure | None:
        """Return the picture of the cumulative loss over the samples, or None without a loss."""
        if not found.regret.sum() > 0:
            return None
        caption = "Samples from the dearest to the cheapest. Dashes: what it would be if all cost the same."
        return cls("samples", "Money lost by sample", caption, _SQUARE, partial(_draw_diagnosis_curve, found.regret))

    @classmethod
    def of_constraints(cls, found: Diagnosis) -> DiagnosisFigure | None:
        """Return the picture of how often constraints bind, or None if no constraint binds."""
        shown = rank_constraint_prices(found)[:BARS]
        if not len(shown):
            return None
        draw = partial(
            _draw_diagnosis_bars,
            labels=[found.constraint_names[j] for j in shown],
            numbers=100 * found.binding[shown],
            texts=[format_amount(price) for price in found.shadow_price[shown]],
            marks=100 * found.best_binding[shown],
            label="% of the samples; marks: under the truth",
            color="spo",
        )
        caption = (
            "How often a constraint holds the decision under the forecast, and in figures what a unit more of it is "
            "worth, on average."
        )
        return cls("constraints", "How often constraints bind", caption, _figure_height(len(shown)), draw)

    @classmethod
    def of_error(cls, found: Diagnosis) -> DiagnosisFigure | None:
        """Return the picture of the tangent and the normal part of the squared error, or None without an error."""
        part = found.tangent_share
        if not np.isfinite(part):
            return None
        caption = (
            "Tangent errors move decisions. The constraints that hold these absorb the rest, which is normal to them."
        )
        return cls(
            "error", "Which part of the squared error matters", caption, 1.5, partial(_draw_error_split_bar, part)
        )


def make_diagnosis_figures(found: Diagnosis) -> list[DiagnosisFigure]:
    """Return the pictures that are not empty, the most important first."""
    makers = (
        DiagnosisFigure.of_values,
        DiagnosisFigure.of_groups,
        DiagnosisFigure.of_samples,
        DiagnosisFigure.of_constraints,
        DiagnosisFigure.of_error,
    )
    return [figure for make in makers if (figure := make(found)) is not None]


def plot_diagnosis(found: Diagnosis) -> Figure:
    """Draw all pictures in one matplotlib figure, two in each row.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    require_packages("plot", "matplotlib")
    shown = make_diagnosis_figures(found)
    heights = tuple(0.35 + max(one.height for one in shown[i : i + 2]) for i in range(0, len(shown), 2)) or (0.3,)
    size = (2.2 * _WIDTH, sum(heights) + 0.7)
    with styled_figure(size, widths=(1.0, 1.0), heights=heights, squeeze=False) as (figure, grid):
        for axes, one in zip(grid.flat, shown, strict=False):
            one.draw(axes)
            axes.set_title(one.title)
        for axes in grid.flat[len(shown) :]:
            axes.remove()
        title, _, rest = found.sentences[0].partition("; ")
        write_figure_headline(figure, title, rest)
        return figure


def _diagnosis_columns_fit(names: Sequence[str]) -> bool:
    """Return whether a picture has room for one vertical bar for each name, with the name below it."""
    return len(names) <= _COLUMNS_TO and max(map(len, names)) <= _COLUMN_NAME


def _bar_color(number: float) -> str:
    """Return the name of a bar's colour. It says whether ``number`` is a loss, which is positive, or a gain."""
    return "worse" if number > 0 else "pear"


def _figure_height(bars: int) -> float:
    """Return the height of a picture with this number of horizontal bars, in inches."""
    return 0.85 + 0.28 * bars


def _shorten_bar_name(name: str) -> str:
    """Return a name in one line, cut so that the bars beside it have room."""
    name = " ".join(name.split())
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"


def _draw_diagnosis_bars(
    axes: Any,
    labels: Sequence[str],
    numbers: Array,
    texts: Sequence[str],
    marks: Array | None = None,
    label: str = "",
    color: str = "",
) -> None:
    """Draw horizontal bars.

    Args:
        axes: matplotlib axes.
        labels: names at the left of the bars.
        numbers: lengths of the bars.
        texts: texts at the right ends of the bars.
        marks: places of the marks on the bars, or None.
        label: label of the horizontal axis.
        color: name of the bars' colour; if empty, the sign of each number decides.
    """
    axes.grid(False)
    axes.grid(axis="x")
    places = np.arange(len(labels))
    axes.barh(places, numbers, 0.66, color=[LIGHT[color or _bar_color(one)] for one in numbers])
    ends = np.maximum(numbers, 0.0)
    if marks is not None:
        axes.plot(marks, places, "|", color=INK, markersize=11, markeredgewidth=1.8)
        ends = np.maximum(ends, marks)
    low, high = min(0.0, float(numbers.min())), float(ends.max())
    span = (high - low) or 1.0
    for place, end, text in zip(places, ends, texts, strict=True):
        axes.text(end + 0.02 * span, place, text, va="center", fontsize=9.5, color=INK)
    if label.startswith("%"):
        axes.set_xticks(
            [0, 25, 50, 75, 100] if high > 50 else [0, 10, 20, 30, 40, 50] if high > 20 else [0, 5, 10, 15, 20]
        )
    axes.set_xlim(low - 0.02 * span * (low < 0), high + 0.3 * span)
    axes.set_yticks(places, [_shorten_bar_name(one) for one in labels])
    axes.invert_yaxis()
    axes.set_xlabel(label)


def _draw_diagnosis_columns(
    axes: Any, labels: Sequence[str], numbers: Array, marks: Array | None = None, label: str = "", unit: str = ""
) -> None:
    """Draw vertical bars.

    Args:
        axes: matplotlib axes.
        labels: names below the bars.
        numbers: heights of the bars.
        marks: heights of the marks on the bars, or None.
        label, unit: labels of the horizontal and of the vertical axis.
    """
    axes.grid(False)
    axes.grid(axis="y")
    places = np.arange(len(labels))
    axes.bar(places, numbers, 0.74, color=[LIGHT[_bar_color(one)] for one in numbers])
    if marks is not None:
        size = min(16.0, 200.0 / len(labels))
        axes.plot(places, marks, "_", color=INK, markersize=size, markeredgewidth=1.6)
    every = 1 + len(labels) * max(map(len, labels)) // 40
    axes.set_xticks(places[::every], [" ".join(one.split()) for one in list(labels)[::every]])
    axes.tick_params(axis="x", pad=6)
    axes.set(xlim=(-0.7, len(labels) - 0.3), xlabel=label, ylabel=unit)


def _draw_diagnosis_curve(regret: Array, axes: Any) -> None:
    """Draw the cumulative share of the loss over B samples, the costliest first; ``regret`` (B,) are their losses."""
    lost = np.concatenate([[0.0], np.sort(regret)[::-1].cumsum()])
    made, part = 100 * lost / lost[-1], 100 * np.arange(len(lost)) / len(regret)
    axes.grid(axis="both")
    axes.plot([0, 100], [0, 100], "--", color=MUTED, lw=1.2)
    kept = np.unique(np.linspace(0, len(regret), _POINTS).round().astype(int))  # keeps the page small
    axes.plot(part[kept], made[kept], color=LIGHT["worse"], lw=2.4)
    at = int(np.searchsorted(made, 100 * _MOST - 1e-9))
    axes.plot(part[at], made[at], "o", color=LIGHT["worse"], markersize=7)
    text = f"{format_percent(made[at] / 100)} of the loss in {format_percent(part[at] / 100)} of the samples"
    axes.text(98, 6, text, ha="right", fontsize=9.5, color=INK)
    axes.set(xlim=(-1, 101), ylim=(-1, 103), xlabel="% of the samples, the dearest first", ylabel="% of the loss")


def _draw_error_split_bar(part: float, axes: Any) -> None:
    """Draw a bar of two parts: the tangent share ``part`` of the squared error, and the normal share.

    The names of the parts are written above the bar.
    """
    axes.grid(False)
    axes.set_box_aspect(0.2)
    axes.set_anchor("N")
    axes.barh(0, 100 * part, 0.8, color=LIGHT["worse"])
    axes.barh(0, 100 * (1 - part), 0.8, left=100 * part, color=LIGHT["rest"])
    axes.text(0, 0.55, f"tangent {format_percent(part)}", color=LIGHT["worse"], fontsize=9.5)
    axes.text(100, 0.55, f"normal {format_percent(1 - part)}", color=MUTED, fontsize=9.5, ha="right")
    axes.set(xlim=(0, 100), ylim=(-0.5, 1.1), yticks=[], xlabel="% of the squared error")
