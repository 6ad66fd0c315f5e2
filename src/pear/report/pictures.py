"""Which numbers each picture of the page shows."""

from __future__ import annotations

import bisect
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from pear.report import figures
from pear.report.cells import Cell, reduced, runs_of
from pear.report.database import Run, Runs
from pear.report.figures import PARTS, Series
from pear.report.tables import METHODS, TASKS, Table

_FLOOR = 1e-3  # per cent; a regret of zero has no place on a log scale
_POINTS = 160  # of a mean curve


@dataclass(frozen=True)
class Picture:
    """One picture, or the reason why there is none.

    Attributes:
        table: the table whose section it stands in.
        title, caption: for people.
        svg: an ``<svg>`` element; empty where nothing was run.
        methods: those in it, for the legend.
        parts: whether the legend names the parts of the time instead.
    """

    table: str
    title: str
    caption: str
    svg: str
    methods: tuple[str, ...] = ()
    parts: bool = False


def pictures(runs: Runs, tables: Sequence[Table]) -> list[Picture]:
    """Every picture of the page."""
    named = {table.layout.name: table for table in tables}
    trained = {task: _trainings(runs, named["lp_degree"], task) for task in TASKS}
    return [
        *(_degrees(named["lp_degree"], task) for task in TASKS),
        *(_over_time(task, *trained[task]) for task in TASKS),
        *(_time_split(task, *trained[task]) for task in TASKS),
        _direction(named["direction_shift"], named["lp_degree"]),
        *_capacities(named["capacity_shift"]),
    ]


def _degrees(table: Table, task: str) -> Picture:
    cells = [c for c in table.cells if c.published.task == task and c.published.metric == "normalized_regret_pct"]
    return _over(cells, "lp_degree", "degree", f"{TASKS[task]}: regret over the degree, %", "degree of the costs")


def _capacities(table: Table) -> list[Picture]:
    found = []
    for degree in sorted({cell.published.condition["degree"] for cell in table.cells}):
        cells = [cell for cell in table.cells if cell.published.condition["degree"] == degree]
        title = f"Degree {degree:g}: regret over the capacity, %"
        if any(cell.mean is not None for cell in cells):
            found.append(_over(cells, "capacity_shift", "capacity", title, "capacity ratio (trained at 0.5)"))
    empty = Picture("capacity_shift", "Regret over the capacity, %", "Not run.", "")
    return found or [empty]


def _over(cells: Sequence[Cell], table: str, condition: str, title: str, label: str) -> Picture:
    """Regret over a condition, ours and published, for the methods we have run."""
    ours, theirs = defaultdict(list), defaultdict(list)
    for cell in cells:
        x, method = cell.published.condition[condition], cell.published.method
        if cell.mean is not None:
            ours[method].append((x, max(cell.mean, _FLOOR)))
        if cell.published.mean is not None:
            theirs[method].append((x, max(cell.published.mean, _FLOOR)))
    if not ours:
        return Picture(table, title, "Not run.", "")
    series = [
        [_series(name, pairs[name]) for name in METHODS if name in ours and name in pairs] for pairs in (ours, theirs)
    ]
    caption = "Solid: ours. Dashed, open marks: published. Log scale." + _warning(cells)
    return Picture(
        table, title, caption, figures.lines(series[0], series[1], label), tuple(s.method for s in series[0])
    )


def _series(method: str, points: list[tuple[float, float]]) -> Series:
    x, y = zip(*sorted(points), strict=True)
    return Series(method, x, y)


def _warning(cells: Sequence[Cell]) -> str:
    return " Some runs are of a reduced problem." if any("reduced problem" in cell.notes for cell in cells) else ""


def _direction(shift: Table, trained: Table) -> Picture:
    title = "Regret along the trained and the shifted direction, %"
    run = [cell for cell in shift.cells if cell.mean is not None]
    if not run:
        return Picture("direction_shift", title, "Not run.", "")
    degree = max(cell.published.condition["degree"] for cell in run)
    cells = [cell for cell in run if cell.published.condition["degree"] == degree]
    after = {c.published.method: c.mean for c in cells if c.mean is not None}
    published = {c.published.method: c.published.mean for c in cells if c.published.mean is not None}
    before = {
        c.published.method: c.mean
        for c in trained.cells
        if c.mean is not None
        and (c.published.task, c.published.metric) == ("shortest_path", "normalized_regret_pct")
        and c.published.condition["degree"] == degree
    }
    caption = f"Degree {degree:g}. Pale: as trained. Full: shifted. Diamonds: published, shifted." + _warning(cells)
    names = [name for name in METHODS if name in after]
    svg = figures.pairs(before, {name: after[name] for name in names}, published)
    return Picture("direction_shift", title, caption, svg)


def _trainings(runs: Runs, table: Table, task: str) -> tuple[float, dict[str, list[Run]]]:
    """The highest degree that was trained, and its runs by method."""
    wanted = [c.published for c in table.cells if c.published.task == task and c.published.metric == "train_seconds"]
    for degree in sorted({item.condition["degree"] for item in wanted}, reverse=True):
        found = {item.method: runs_of(runs, item) for item in wanted if item.condition["degree"] == degree}
        if any(found.values()):
            return degree, {name: group for name, group in found.items() if group}
    return 0.0, {}


def _over_time(task: str, degree: float, groups: dict[str, list[Run]]) -> Picture:
    title = f"{TASKS[task]}: validation regret over time, %"
    curves = [_mean_curve(name, groups[name]) for name in groups]
    series = [curve for curve in curves if curve is not None]
    if not series:
        return Picture("lp_degree", title, "Not run.", "")
    caption = (
        f"Degree {degree:g}. The best validation regret so far, mean over the seeds; a training that has stopped keeps "
        "its last value. Seconds of training, checks included; both scales logarithmic."
    )
    caption += _reduced_note(groups)
    svg = figures.lines(series, [], "seconds", log_x=True, steps=True)
    return Picture("lp_degree", title, caption, svg, tuple(curve.method for curve in series))


def _mean_curve(method: str, group: Sequence[Run]) -> Series | None:
    """The mean over the seeds of the best regret so far, from when every seed has been checked once."""
    seeds = [_best_so_far(run) for run in group if run.history]
    if not seeds:
        return None
    start = max(times[0] for times, _ in seeds)
    end = max(times[-1] for times, _ in seeds)
    grid = [start * (end / start) ** (i / (_POINTS - 1)) for i in range(_POINTS)] if end > start else [start]
    # The last point by rounding may lie before the end; the check at the end must count.
    grid[-1] = max(end, start)
    means = [statistics.fmean(best[bisect.bisect_right(times, t) - 1] for times, best in seeds) for t in grid]
    return Series(method, grid, [max(100 * mean, _FLOOR) for mean in means])


def _best_so_far(run: Run) -> tuple[list[float], list[float]]:
    times: list[float] = []
    best: list[float] = []
    for _, seconds, _, metric in run.history:
        times.append(max(float(seconds), 1e-4))
        best.append(min(metric, best[-1]) if best else metric)
    return times, best


def _time_split(task: str, degree: float, groups: dict[str, list[Run]]) -> Picture:
    title = f"{TASKS[task]}: where the training time goes"
    split = {
        name: {part: statistics.fmean(run.timings.get(part, 0.0) for run in group) for part in PARTS}
        for name, group in groups.items()
        if any(part in run.timings for run in group for part in PARTS)
    }
    if not split:
        return Picture("lp_degree", title, "Not run.", "", parts=True)
    caption = f"Degree {degree:g}." + _reduced_note(groups)
    return Picture("lp_degree", title, caption, figures.split_bars(split), parts=True)


def _reduced_note(groups: dict[str, list[Run]]) -> str:
    return " Some runs are of a reduced problem." if any(reduced(g[0]) for g in groups.values()) else ""
