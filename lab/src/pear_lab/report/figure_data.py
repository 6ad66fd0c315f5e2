"""Which numbers each figure of the tables shows."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import numpy as np

from pear.pages.section import Figure
from pear_lab.experiments.catalogue import LP_TASKS, METHODS, TASKS
from pear_lab.experiments.record import Record
from pear_lab.report.cells import Cell, reduced, runs_of
from pear_lab.report.compare import Verdict
from pear_lab.report.figures import METHOD_COLORS, PARTS, Series, lines, pairs, split_bars
from pear_lab.report.runs import Runs

_LEAST_SHOWN = 1e-3  # per cent; a regret of zero has no place on a log scale
_POINTS = 160  # of a mean curve
_REGRET = "normalized_regret_pct"


def figures(runs: Runs, tables: Mapping[str, Sequence[Cell]]) -> dict[str, tuple[Figure, ...]]:
    """Every figure, by the table whose section it stands in.

    Args:
        runs: of the database.
        tables: the filled cells of each table, by its name.
    """
    degrees = tables["lp_degree"]
    regrets = [cell for cell in degrees if cell.published.metric == _REGRET]
    titles = {task: TASKS[task].title for task in LP_TASKS}
    trained = {task: _trainings(runs, degrees, task) for task in titles}
    by_degree = [
        _over(
            [cell for cell in regrets if cell.published.task == task],
            "degree",
            f"{title}: regret over the degree, %",
            "degree of the costs",
        )
        for task, title in titles.items()
    ]
    over_time = [_over_time(title, *trained[task]) for task, title in titles.items()]
    time_split = [_time_split(title, *trained[task]) for task, title in titles.items()]
    return {
        "lp_degree": (*by_degree, *over_time, *time_split),
        "direction_shift": (_direction(tables["direction_shift"], regrets),),
        "capacity_shift": _capacities(tables["capacity_shift"]),
    }


def _capacities(cells: Sequence[Cell]) -> tuple[Figure, ...]:
    found = []
    for degree in sorted({cell.published.condition["degree"] for cell in cells if cell.mean is not None}):
        some = [cell for cell in cells if cell.published.condition["degree"] == degree]
        title = f"Degree {degree:g}: regret over the capacity, %"
        found.append(_over(some, "capacity", title, "capacity ratio (trained at 0.5)"))
    return tuple(found) or (Figure("Regret over the capacity, %"),)


def _over(cells: Sequence[Cell], condition: str, title: str, label: str) -> Figure:
    """Regret over a condition, ours and published, for the methods we have run."""
    points: tuple[dict[str, list[tuple[float, float]]], ...] = (defaultdict(list), defaultdict(list))
    for cell in cells:
        for found, mean in zip(points, (cell.mean, cell.published.mean), strict=True):
            if mean is not None:
                found[cell.published.method].append((cell.published.condition[condition], max(mean, _LEAST_SHOWN)))
    methods = [name for name in METHODS if name in points[0]]
    if not methods:
        return Figure(title)
    ours, theirs = (
        [Series(name, *zip(*sorted(found[name]), strict=True)) for name in methods if name in found] for found in points
    )
    caption = "Solid: ours. Dashed, open marks: published. Log scale." + _warning(cells)
    return Figure(title, caption, partial(lines, ours, theirs, label), _legend(methods))


def _direction(shifted: Sequence[Cell], trained: Sequence[Cell]) -> Figure:
    title = "Regret along the trained and the shifted direction, %"
    run = [cell for cell in shifted if cell.mean is not None]
    if not run:
        return Figure(title)
    degree = max(cell.published.condition["degree"] for cell in run)
    cells = [cell for cell in run if cell.published.condition["degree"] == degree]
    after = _means(cells)
    published = {cell.published.method: cell.published.mean for cell in cells if cell.published.mean is not None}
    paths = [cell for cell in trained if cell.published.task == "shortest_path"]
    before = _means(cell for cell in paths if cell.published.condition["degree"] == degree)
    caption = f"Degree {degree:g}. Pale: as trained. Full: shifted. Diamonds: published, shifted." + _warning(cells)
    return Figure(title, caption, partial(pairs, before, {m: after[m] for m in METHODS if m in after}, published))


def _means(cells: Iterable[Cell]) -> dict[str, float]:
    return {cell.published.method: cell.mean for cell in cells if cell.mean is not None}


def _trainings(runs: Runs, cells: Sequence[Cell], task: str) -> tuple[float, dict[str, list[Record]]]:
    """The highest degree that was trained, and its runs by method."""
    wanted = [c.published for c in cells if c.published.task == task and c.published.metric == "train_seconds"]
    for degree in sorted({item.condition["degree"] for item in wanted}, reverse=True):
        found = {item.method: runs_of(runs, item) for item in wanted if item.condition["degree"] == degree}
        if any(found.values()):
            return degree, {name: group for name, group in found.items() if group}
    return 0.0, {}


def _over_time(task: str, degree: float, groups: Mapping[str, list[Record]]) -> Figure:
    title = f"{task}: validation regret over time, %"
    series = [curve for name, group in groups.items() if (curve := _mean_curve(name, group)) is not None]
    if not series:
        return Figure(title)
    caption = (
        f"Degree {degree:g}. The best validation regret so far, mean over the seeds; a training that has stopped keeps "
        "its last value. Seconds of training, checks included; both scales logarithmic."
    )
    draw = partial(lines, series, [], "seconds", log_x=True, steps=True)
    return Figure(title, caption + _reduced_note(groups), draw, _legend(curve.method for curve in series))


def _mean_curve(method: str, group: Sequence[Record]) -> Series | None:
    """The mean over the seeds of the best regret so far, from when every seed has been checked once."""
    histories = [np.array([(check[1], check[3]) for check in run.history]) for run in group if run.history]
    if not histories:
        return None
    seeds = [(np.maximum(h[:, 0], 1e-4), np.minimum.accumulate(h[:, 1])) for h in histories]
    start, end = max(times[0] for times, _ in seeds), max(times[-1] for times, _ in seeds)
    grid = np.geomspace(start, end, _POINTS) if end > start else np.array([start])
    # The last point by rounding may lie before the end; the check at the end must count.
    grid[-1] = max(end, start)
    means = np.mean([best[np.searchsorted(times, grid, side="right") - 1] for times, best in seeds], axis=0)
    return Series(method, grid.tolist(), np.maximum(100 * means, _LEAST_SHOWN).tolist())


def _time_split(task: str, degree: float, groups: Mapping[str, list[Record]]) -> Figure:
    title = f"{task}: where the training time goes"
    split = {
        name: {part: statistics.fmean(run.timings.get(part, 0.0) for run in group) for part in PARTS}
        for name, group in groups.items()
        if any(part in run.timings for run in group for part in PARTS)
    }
    if not split:
        return Figure(title)
    return Figure(title, f"Degree {degree:g}." + _reduced_note(groups), partial(split_bars, split), PARTS)


def _legend(methods: Iterable[str]) -> dict[str, str]:
    return {METHODS.get(name, name): METHOD_COLORS.get(name, "ink") for name in methods}


def _warning(cells: Sequence[Cell]) -> str:
    return _SOME_REDUCED if any(cell.verdict is Verdict.REDUCED for cell in cells) else ""


def _reduced_note(groups: Mapping[str, list[Record]]) -> str:
    return _SOME_REDUCED if any(reduced(group[0]) for group in groups.values()) else ""


_SOME_REDUCED = " Some runs are of a reduced problem."
