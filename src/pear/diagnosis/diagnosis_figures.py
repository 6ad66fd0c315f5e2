"""The pictures of a diagnosis, drawn one by one for the page or together in one figure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pear.optional_packages import require_packages
from pear.pages.figure_style import INK, LIGHT, MUTED, figure_as_svg, styled_figure, write_figure_headline
from pear.wording import format_amount, format_percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pear.diagnosis.diagnosis import Diagnosis

Array = NDArray[Any]
BARS = 12
"""Largest number of horizontal bars in a picture. The caption or label says how many are left out."""

_WIDTH = 4.9  # inches, as of the report's figures
_SQUARE = 3.4
_LONGEST = 26  # characters of a name
_COLUMNS_TO, _COLUMN_NAME = 60, 5  # bars that stand upright side by side, and the longest of their names
_POINTS = 300  # of the curve of samples
_MOST = 0.8  # share of the loss that the curve of samples names


@dataclass(frozen=True)
class Panel:
    """One picture.

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
        """Draw the picture as an ``<svg>`` element for a page."""
        with styled_figure((_WIDTH, self.height)) as (figure, axes):
            self.draw(axes)
            return figure_as_svg(figure)


def make_panels(found: Diagnosis) -> list[Panel]:
    """Make the pictures that are not empty, the most important first."""
    drawn = [
        _values_panel(found),
        _groups_panel(found),
        _samples_panel(found),
        _constraints_panel(found),
        _error_panel(found),
    ]
    return [one for one in drawn if one is not None]


def plot_diagnosis(found: Diagnosis) -> Figure:
    """Draw all pictures in one figure, two in a row.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    require_packages("plot", "matplotlib")
    shown = make_panels(found)
    heights = tuple(0.35 + max(one.height for one in shown[i : i + 2]) for i in range(0, len(shown), 2)) or (0.3,)
    size = (2.2 * _WIDTH, sum(heights) + 0.7)
    with styled_figure(size, widths=(1.0, 1.0), heights=heights, squeeze=False) as (figure, grid):
        for axes, panel in zip(grid.flat, shown, strict=False):
            panel.draw(axes)
            axes.set_title(panel.title)
        for axes in grid.flat[len(shown) :]:
            axes.remove()
        title, _, rest = found.sentences[0].partition("; ")
        write_figure_headline(figure, title, rest)
        return figure


def _values_panel(found: Diagnosis) -> Panel | None:
    """Make the picture of the money lost by predicted value; None if no value costs anything."""
    cost = np.nansum(found.attribution, axis=0)
    if not np.abs(cost).max() > 0:
        return None
    title, caption = "Money lost by predicted value", "In the unit of the objective."
    if (cost < 0).any():
        caption += " Below zero: errors that make good for others."
    if len(cost) > BARS and _fit_upright(found.names):  # hours of a day, days of a year: in their order
        return Panel("values", title, caption, _SQUARE, partial(_draw_columns, labels=found.names, numbers=cost))
    order = np.argsort(-cost, kind="stable")
    top, rest = order[:BARS], order[BARS:]
    label = f"the other {len(rest)} together: {format_amount(cost[rest].sum())}" if len(rest) else ""
    texts = [format_amount(one) for one in cost[top]]
    draw = partial(_draw_bars, labels=[found.names[j] for j in top], numbers=cost[top], texts=texts, label=label)
    return Panel("values", title, caption, _bars_height(len(top)), draw)


def _fit_upright(names: Sequence[str]) -> bool:
    """Whether upright bars with these names below them fit side by side."""
    return len(names) <= _COLUMNS_TO and max(map(len, names)) <= _COLUMN_NAME


def _groups_panel(found: Diagnosis) -> Panel | None:
    """Make the picture of the money lost by group; None without groups or without a loss."""
    total = float(found.regret.sum())
    if found.groups is None or not total > 0:
        return None
    labels, first, at = np.unique(found.groups, return_index=True, return_inverse=True)
    lost, count = np.bincount(at, found.regret) / total, np.bincount(at) / len(at)
    title = f"Money lost by {found.grouped_by}"
    caption = "A bar beyond its mark costs more than its share of the samples."
    # Numbers in their order, words in the order they come in: days of the week are not sorted by their letters.
    order = np.arange(len(labels)) if found.groups.dtype.kind in "iuf" else np.argsort(first)
    upright = _fit_upright([str(label) for label in labels])
    if len(order) > BARS and not upright:
        order = np.argsort(-lost, kind="stable")[:BARS]
        caption += f" The {BARS} of {len(labels)} that cost most."
    shown: dict[str, Any] = {"labels": [str(labels[i]) for i in order]}
    shown |= {"numbers": 100 * lost[order], "marks": 100 * count[order]}
    if upright:
        draw = partial(_draw_columns, **shown, label=found.grouped_by, unit="% of the loss; marks: of the samples")
        return Panel("groups", title, caption, _SQUARE, draw)
    texts = [format_percent(one) for one in lost[order]]
    draw = partial(_draw_bars, **shown, texts=texts, label="% of the loss; marks: % of the samples", color="worse")
    return Panel("groups", title, caption, _bars_height(len(order)), draw)


def _samples_panel(found: Diagnosis) -> Panel | None:
    """Make the picture of the cumulative loss over the samples; None if nothing is lost."""
    if not found.regret.sum() > 0:
        return None
    caption = "Samples from the dearest to the cheapest. Dashes: what it would be if all cost the same."
    return Panel("samples", "Money lost by sample", caption, _SQUARE, partial(_draw_loss_curve, found.regret))


def _constraints_panel(found: Diagnosis) -> Panel | None:
    """Make the picture of how often constraints bind; None if none does."""
    shown = dearest_constraints(found)[:BARS]
    if not len(shown):
        return None
    draw = partial(
        _draw_bars,
        labels=[found.constraint_names[j] for j in shown],
        numbers=100 * found.binding[shown],
        texts=[format_amount(price) for price in found.shadow_price[shown]],
        marks=100 * found.best_binding[shown],
        label="% of the samples; marks: under the truth",
        color="spo",
    )
    caption = (
        "How often a constraint holds the decision under the forecast, and in figures what a unit more of it is worth, "
        "on average."
    )
    return Panel("constraints", "How often constraints bind", caption, _bars_height(len(shown)), draw)


def _error_panel(found: Diagnosis) -> Panel | None:
    """Make the picture of the tangent and the normal part of the squared error; None if there is no error."""
    part = found.tangent_share
    if not np.isfinite(part):
        return None
    caption = "Tangent errors move decisions. The constraints that hold these absorb the rest, which is normal to them."
    return Panel("error", "Which part of the squared error matters", caption, 1.5, partial(_draw_split_bar, part))


def dearest_constraints(found: Diagnosis) -> Array:
    """Return the constraints that bind in some decision, the highest shadow price first, as indices."""
    price = np.maximum(np.abs(found.shadow_price), np.abs(found.best_shadow_price))
    binding = np.maximum(found.binding, found.best_binding)
    choice = np.array([kind != "equality" for kind in found.constraint_kinds], dtype=bool) & (binding > 0)
    order = np.lexsort((-binding, -price))
    return order[choice[order]]


def _sign_color(number: float) -> str:
    """Return the colour of a loss (positive number) or of a gain (negative number)."""
    return "worse" if number > 0 else "pear"


def _bars_height(bars: int) -> float:
    """Return the height in inches of a picture with this number of horizontal bars."""
    return 0.85 + 0.28 * bars


def _shorten_name(name: str) -> str:
    """Cut a name to one line that leaves room for the bars."""
    name = " ".join(name.split())
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"


def _draw_bars(
    axes: Any,
    labels: Sequence[str],
    numbers: Array,
    texts: Sequence[str],
    marks: Array | None = None,
    label: str = "",
    color: str = "",
) -> None:
    """Draw horizontal bars with texts at their ends, and marks on them. Without ``color``, the sign sets the colour."""
    axes.grid(False)
    axes.grid(axis="x")
    places = np.arange(len(labels))
    axes.barh(places, numbers, 0.66, color=[LIGHT[color or _sign_color(one)] for one in numbers])
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
    axes.set_yticks(places, [_shorten_name(one) for one in labels])
    axes.invert_yaxis()
    axes.set_xlabel(label)


def _draw_columns(
    axes: Any, labels: Sequence[str], numbers: Array, marks: Array | None = None, label: str = "", unit: str = ""
) -> None:
    """Draw upright bars, in the order of the labels, and marks on them."""
    axes.grid(False)
    axes.grid(axis="y")
    places = np.arange(len(labels))
    axes.bar(places, numbers, 0.74, color=[LIGHT[_sign_color(one)] for one in numbers])
    if marks is not None:
        size = min(16.0, 200.0 / len(labels))
        axes.plot(places, marks, "_", color=INK, markersize=size, markeredgewidth=1.6)
    every = 1 + len(labels) * max(map(len, labels)) // 40
    axes.set_xticks(places[::every], [" ".join(one.split()) for one in list(labels)[::every]])
    axes.tick_params(axis="x", pad=6)
    axes.set(xlim=(-0.7, len(labels) - 0.3), xlabel=label, ylabel=unit)


def _draw_loss_curve(regret: Array, axes: Any) -> None:
    """Draw the cumulative share of the loss over the samples, the costliest first."""
    lost = np.concatenate([[0.0], np.sort(regret)[::-1].cumsum()])
    made, part = 100 * lost / lost[-1], 100 * np.arange(len(lost)) / len(regret)
    axes.grid(axis="both")
    axes.plot([0, 100], [0, 100], "--", color=MUTED, lw=1.2)
    kept = np.unique(np.linspace(0, len(regret), _POINTS).round().astype(int))  # a page of a million points is no page
    axes.plot(part[kept], made[kept], color=LIGHT["worse"], lw=2.4)
    at = int(np.searchsorted(made, 100 * _MOST - 1e-9))
    axes.plot(part[at], made[at], "o", color=LIGHT["worse"], markersize=7)
    text = f"{format_percent(made[at] / 100)} of the loss in {format_percent(part[at] / 100)} of the samples"
    axes.text(98, 6, text, ha="right", fontsize=9.5, color=INK)
    axes.set(xlim=(-1, 101), ylim=(-1, 103), xlabel="% of the samples, the dearest first", ylabel="% of the loss")


def _draw_split_bar(part: float, axes: Any) -> None:
    """Draw one bar in two parts, with their names above it."""
    axes.grid(False)
    axes.set_box_aspect(0.2)
    axes.set_anchor("N")
    axes.barh(0, 100 * part, 0.8, color=LIGHT["worse"])
    axes.barh(0, 100 * (1 - part), 0.8, left=100 * part, color=LIGHT["rest"])
    axes.text(0, 0.55, f"tangent {format_percent(part)}", color=LIGHT["worse"], fontsize=9.5)
    axes.text(100, 0.55, f"normal {format_percent(1 - part)}", color=MUTED, fontsize=9.5, ha="right")
    axes.set(xlim=(0, 100), ylim=(-0.5, 1.1), yticks=[], xlabel="% of the squared error")
