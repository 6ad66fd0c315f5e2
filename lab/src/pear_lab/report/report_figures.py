"""The figures of the report: which numbers each one shows, and how it is drawn. A drawn figure is a text in SVG."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pear.pages.figure_style import (
    CARD,
    INK,
    LIGHT,
    LINE,
    figure_as_svg,
    save_figure,
    style_plain_log_scale,
    styled_figure,
)
from pear.pages.page import PageFigure
from pear_lab.experiments.catalogue import LP_TASKS, METHODS, REFERENCE, TASKS
from pear_lab.experiments.run_record import RunRecord
from pear_lab.report.bootstrap import Interval
from pear_lab.report.published_numbers import CellVerdict
from pear_lab.report.table_cells import Cell, StoredRuns, is_reduced_run, runs_of_cell

METHOD_COLORS = {
    "mse": "mse", "spo+": "spo", "spo+relaxed": "spo-relaxed", "pfyl": "pfyl", "dbb": "dbb", "lava": "lava",
    "pear": "pear", "pear-guided": "pear-deep",
}  # fmt: skip
"""The name of the colour of each method."""
PARTS = {"solve": "pear", "gradient": "pear-pale", "validation": "validation", "rest": "rest"}
"""The name of the colour of each part of the training time."""

_SIZE = (4.9, 3.7)
_LEAST_RATIO = 0.1


@dataclass(frozen=True)
class MethodCurve:
    """The line of one method in a figure; ``x`` and ``y`` have the same length."""

    method: str
    x: Sequence[float]
    y: Sequence[float]


@dataclass(frozen=True)
class RegretRatio:
    """The regret of a method divided by that of PEAR as published in one cell, with the interval of this ratio."""

    method: str
    cell: str
    ratio: Interval


def _method_color(method: str) -> str:
    """Return the colour of a method in the light palette."""
    return LIGHT[METHOD_COLORS.get(method, "ink")]


def draw_regret_curves(
    ours: Sequence[MethodCurve],
    published: Sequence[MethodCurve],
    x_label: str,
    log_x: bool = False,
    steps: bool = False,
) -> str:
    """Return a figure of regrets on a log scale. Our regrets are solid lines, which jump at each point if ``steps``.

    The published regrets are dashed lines with open marks.
    """
    with styled_figure(_SIZE) as (figure, axes):
        for one in published:
            axes.plot(one.x, one.y, "--o", markersize=5, markerfacecolor=CARD, color=_method_color(one.method), lw=1.2)
        single = all(len(one.x) == 1 for one in ours)
        shape = {"drawstyle": "steps-post"} if steps else {"marker": "o", "markersize": 7 if single else 5.5}
        for one in ours:
            strong = {"lw": 2.4, "zorder": 3} if one.method == "pear" else {"lw": 1.8, "zorder": 2}
            axes.plot(one.x, one.y, color=_method_color(one.method), **shape, **strong)
        if log_x:
            style_plain_log_scale(axes, "x")
        else:
            ticks = sorted({x for one in (*ours, *published) for x in one.x})
            axes.set_xticks(ticks, [f"{x:g}" for x in ticks])
        style_plain_log_scale(axes, "y")
        axes.set_xlabel(x_label)
        return figure_as_svg(figure)


def draw_shift_bars(before: Mapping[str, float], after: Mapping[str, float], published: Mapping[str, float]) -> str:
    """Return a figure with two bars for each method: the regret before (pale) and after a shift.

    Open marks are the published regrets after the shift.
    """
    with styled_figure(_SIZE) as (figure, axes):
        for place, name in enumerate(after):
            if name in before:
                axes.bar(place - 0.2, before[name], 0.36, color=_method_color(name), alpha=0.4)
            axes.bar(place + 0.2, after[name], 0.36, color=_method_color(name))
            if name in published:
                axes.plot(place + 0.2, published[name], "D", markersize=6, markerfacecolor=CARD, color=INK, zorder=4)
        axes.set_xticks(range(len(after)), [METHODS.get(name, name) for name in after])
        axes.tick_params(axis="x", labelsize=9.5, labelrotation=20 if len(after) > 6 else 0)
        return figure_as_svg(figure)


def draw_time_bars(seconds: Mapping[str, Mapping[str, float]]) -> str:
    """Return a figure with a bar for each method, stacked from the parts of its training time in seconds.

    The total is printed at the end of each bar.
    """
    with styled_figure((4.9, 0.95 + 0.42 * len(seconds)), grid="x") as (figure, axes):
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
        return figure_as_svg(figure)


def draw_contrasts(points: Sequence[RegretRatio]) -> str:
    """Return a figure of regret ratios with their intervals on a log scale. Methods are side by side in each cell."""
    with styled_figure(_SIZE) as (figure, axes):
        _plot_contrasts(axes, points)
        return figure_as_svg(figure)


def save_contrasts(panels: Mapping[str, Sequence[RegretRatio]], to: Path) -> None:
    """Save a picture with one panel of regret ratios for each task, side by side, with titles and a legend."""
    widths = tuple(max(2.9, len({one.cell for one in points})) for points in panels.values())
    with styled_figure((2.2 + 0.62 * sum(widths), 3.9), widths=widths, squeeze=False, sharey=True) as (figure, axes):
        for one, (title, points) in zip(axes[0], panels.items(), strict=True):
            _plot_contrasts(one, points)
            one.set_title(title)
        axes[0][0].set_ylabel("regret / regret of PEAR as published")
        shown = {point.method for points in panels.values() for point in points}
        methods = [name for name in METHODS if name in shown]
        marks = [
            figure.axes[0].plot([], [], "o", color=_method_color(name), label=METHODS[name])[0] for name in methods
        ]
        line = figure.axes[0].plot([], [], color=LIGHT["pear"], label=METHODS[REFERENCE])[0]
        figure.legend(handles=[*marks, line], loc="outside upper left", ncols=len(methods) + 1)
        save_figure(figure, to)


def _plot_contrasts(axes: Any, points: Sequence[RegretRatio]) -> None:
    """Draw regret ratios with their intervals on the given axes."""
    cells = list(dict.fromkeys(one.cell for one in points))
    methods = list(dict.fromkeys(point.method for point in points))
    axes.axhline(1.0, color=LIGHT["pear"], lw=1.6, zorder=1)
    for point in points:
        shift = 0.2 * (methods.index(point.method) - (len(methods) - 1) / 2)
        low, high = (max(value, _LEAST_RATIO) for value in (point.ratio.low, point.ratio.high))
        x = cells.index(point.cell) + shift
        axes.plot([x, x], [low, high], color=_method_color(point.method), lw=1.8, zorder=2)
        axes.plot(x, max(point.ratio.estimate, _LEAST_RATIO), "o", color=_method_color(point.method), markersize=5.5)
    axes.set_xticks(range(len(cells)), cells, rotation=30, ha="right", fontsize=9.5)
    axes.set_xlim(-0.6, len(cells) - 0.4)
    style_plain_log_scale(axes, "y")


def draw_portfolio_values(
    values: Mapping[str, Sequence[float]], colors: Mapping[str, str], shaded: Sequence[tuple[int, int]]
) -> str:
    """Return a figure of the value of each portfolio over the days, with some spans of days shaded.

    Args:
        values: for each name of a portfolio, its value at the end of each day.
        colors: name of the colour of each portfolio.
        shaded: first and last day of each span.
    """
    with styled_figure(_SIZE) as (figure, axes):
        for first, last in shaded:
            axes.axvspan(first, last, color=LINE, alpha=0.6, lw=0)
        for name, value in values.items():
            width = 2.4 if colors[name] == "pear" else 1.6
            axes.plot(range(1, len(value) + 1), value, color=LIGHT[colors[name]], lw=width)
        axes.set_xlabel("trading days of the test")
        return figure_as_svg(figure)


_LEAST_SHOWN = 1e-3  # per cent; a regret of zero has no place on a log scale
_POINTS = 160  # of a mean curve
_REGRET = "normalized_regret_pct"


def make_report_figures(runs: StoredRuns, tables: Mapping[str, Sequence[Cell]]) -> dict[str, tuple[PageFigure, ...]]:
    """Return the figures that belong to each table, by the name of the table.

    Args:
        runs: runs of the database.
        tables: the filled cells of each table, by its name.
    """
    degrees = tables["lp_degree"]
    regrets = [cell for cell in degrees if cell.published.metric == _REGRET]
    titles = {task: TASKS[task].title for task in LP_TASKS}
    trained = {task: _trained_runs(runs, degrees, task) for task in titles}
    by_degree = [
        _regret_figure(
            [cell for cell in regrets if cell.published.task == task],
            "degree",
            f"{title}: regret over the degree, %",
            "degree of the costs",
        )
        for task, title in titles.items()
    ]
    over_time = [_regret_over_time_figure(title, *trained[task]) for task, title in titles.items()]
    time_split = [_training_time_figure(title, *trained[task]) for task, title in titles.items()]
    return {
        "lp_degree": (*by_degree, *over_time, *time_split),
        "direction_shift": (_direction_shift_figure(tables["direction_shift"], regrets),),
        "capacity_shift": _capacity_figures(tables["capacity_shift"]),
    }


def _capacity_figures(cells: Sequence[Cell]) -> tuple[PageFigure, ...]:
    """Return a figure of the regret over the knapsack's capacity for each degree that was run."""
    found = []
    for degree in sorted({cell.published.condition["degree"] for cell in cells if cell.mean is not None}):
        some = [cell for cell in cells if cell.published.condition["degree"] == degree]
        title = f"Degree {degree:g}: regret over the capacity, %"
        found.append(_regret_figure(some, "capacity", title, "capacity ratio (trained at 0.5)"))
    return tuple(found) or (PageFigure("Regret over the capacity, %"),)


def _regret_figure(cells: Sequence[Cell], condition: str, title: str, label: str) -> PageFigure:
    """Return the figure of the regret over a condition, ours and published, for the methods that we have run."""
    points: tuple[dict[str, list[tuple[float, float]]], ...] = (defaultdict(list), defaultdict(list))
    for cell in cells:
        for found, mean in zip(points, (cell.mean, cell.published.mean), strict=True):
            if mean is not None:
                found[cell.published.method].append((cell.published.condition[condition], max(mean, _LEAST_SHOWN)))
    methods = [name for name in METHODS if name in points[0]]
    if not methods:
        return PageFigure(title)
    ours, theirs = (
        [MethodCurve(name, *zip(*sorted(found[name]), strict=True)) for name in methods if name in found]
        for found in points
    )
    caption = "Solid: ours. Dashed, open marks: published. Log scale." + _reduced_cells_note(cells)
    return PageFigure(title, caption, partial(draw_regret_curves, ours, theirs, label), _method_legend(methods))


def _direction_shift_figure(shifted: Sequence[Cell], trained: Sequence[Cell]) -> PageFigure:
    """Return the figure of the regret on paths in the direction of training and in the shifted direction.

    It shows the highest degree of the costs that was run.
    """
    title = "Regret along the trained and the shifted direction, %"
    run = [cell for cell in shifted if cell.mean is not None]
    if not run:
        return PageFigure(title)
    degree = max(cell.published.condition["degree"] for cell in run)
    cells = [cell for cell in run if cell.published.condition["degree"] == degree]
    after = _means_by_method(cells)
    published = {cell.published.method: cell.published.mean for cell in cells if cell.published.mean is not None}
    paths = [cell for cell in trained if cell.published.task == "shortest_path"]
    before = _means_by_method(cell for cell in paths if cell.published.condition["degree"] == degree)
    caption = (
        f"Degree {degree:g}. Pale: as trained. Full: shifted. Diamonds: published, shifted."
        + _reduced_cells_note(cells)
    )
    return PageFigure(
        title, caption, partial(draw_shift_bars, before, {m: after[m] for m in METHODS if m in after}, published)
    )


def _means_by_method(cells: Iterable[Cell]) -> dict[str, float]:
    """Return our mean of each cell by its method; cells without runs are left out."""
    return {cell.published.method: cell.mean for cell in cells if cell.mean is not None}


def _trained_runs(runs: StoredRuns, cells: Sequence[Cell], task: str) -> tuple[float, dict[str, list[RunRecord]]]:
    """Return the highest degree with trainings on a task, and its runs by method; 0 and no runs if there are none."""
    wanted = [c.published for c in cells if c.published.task == task and c.published.metric == "train_seconds"]
    for degree in sorted({item.condition["degree"] for item in wanted}, reverse=True):
        found = {item.method: runs_of_cell(runs, item) for item in wanted if item.condition["degree"] == degree}
        if any(found.values()):
            return degree, {name: group for name, group in found.items() if group}
    return 0.0, {}


def _regret_over_time_figure(task: str, degree: float, groups: Mapping[str, list[RunRecord]]) -> PageFigure:
    """Return the figure of the best validation regret so far, over the seconds of training."""
    title = f"{task}: validation regret over time, %"
    series = [curve for name, group in groups.items() if (curve := _mean_curve(name, group)) is not None]
    if not series:
        return PageFigure(title)
    caption = (
        f"Degree {degree:g}. The best validation regret so far, mean over the seeds; a training that has stopped keeps "
        "its last value. Seconds of training, checks included; both scales logarithmic."
    )
    draw = partial(draw_regret_curves, series, [], "seconds", log_x=True, steps=True)
    return PageFigure(
        title, caption + _reduced_runs_note(groups), draw, _method_legend(curve.method for curve in series)
    )


def _mean_curve(method: str, group: Sequence[RunRecord]) -> MethodCurve | None:
    """Return the best validation regret so far over the seconds, as a mean over the seeds; None without histories.

    The curve begins when all seeds have had a check.
    """
    histories = [np.array([(check[1], check[3]) for check in run.history]) for run in group if run.history]
    if not histories:
        return None
    seeds = [(np.maximum(h[:, 0], 1e-4), np.minimum.accumulate(h[:, 1])) for h in histories]
    start, end = max(times[0] for times, _ in seeds), max(times[-1] for times, _ in seeds)
    grid = np.geomspace(start, end, _POINTS) if end > start else np.array([start])
    # The last point by rounding may lie before the end; the check at the end must count.
    grid[-1] = max(end, start)
    means = np.mean([best[np.searchsorted(times, grid, side="right") - 1] for times, best in seeds], axis=0)
    return MethodCurve(method, grid.tolist(), np.maximum(100 * means, _LEAST_SHOWN).tolist())


def _training_time_figure(task: str, degree: float, groups: Mapping[str, list[RunRecord]]) -> PageFigure:
    """Return the figure of the training time's parts: solving, gradients, validation and the rest."""
    title = f"{task}: where the training time goes"
    split = {
        name: {part: statistics.fmean(run.timings.get(part, 0.0) for run in group) for part in PARTS}
        for name, group in groups.items()
        if any(part in run.timings for run in group for part in PARTS)
    }
    if not split:
        return PageFigure(title)
    return PageFigure(title, f"Degree {degree:g}." + _reduced_runs_note(groups), partial(draw_time_bars, split), PARTS)


def _method_legend(methods: Iterable[str]) -> dict[str, str]:
    """Return the name of the colour of each method, by the title of the method."""
    return {METHODS.get(name, name): METHOD_COLORS.get(name, "ink") for name in methods}


def _reduced_cells_note(cells: Sequence[Cell]) -> str:
    """Return a warning for the caption if a cell is of a reduced problem."""
    return _SOME_REDUCED if any(cell.verdict is CellVerdict.REDUCED for cell in cells) else ""


def _reduced_runs_note(groups: Mapping[str, list[RunRecord]]) -> str:
    """Return a warning for the caption if runs are of a reduced problem."""
    return _SOME_REDUCED if any(is_reduced_run(group[0]) for group in groups.values()) else ""


_SOME_REDUCED = " Some runs are of a reduced problem."
