"""Differences between the regrets of two methods, paired over seeds and test instances."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from pear.pages.page import PageFigure, PageGrid, PageSection, RankedText
from pear_lab.experiments.catalogue import COMPARISONS, EXPERIMENTS, METHODS, OURS, REFERENCE, TASKS, Comparison
from pear_lab.experiments.run_record import RunRecord
from pear_lab.report import bootstrap
from pear_lab.report.bootstrap import Interval, normalized_difference, t_interval
from pear_lab.report.published_numbers import PublishedNumber, rank_best_two
from pear_lab.report.report_figures import METHOD_COLORS, RegretRatio, draw_contrasts, save_contrasts
from pear_lab.report.table_cells import (
    StoredRuns,
    cell_place,
    cell_values_by_seed,
    cells_of_experiment,
    is_reduced_run,
    runs_of_cell,
    unusual_time_cap,
)

Array = NDArray[np.float64]


def format_signed_interval(interval: Interval, decimals: int) -> tuple[str, str, str]:
    """Return the estimate and both ends of an interval as texts with signs.

    Example:
        >>> format_signed_interval(Interval(0.5, -0.1, 1.0), 2)
        ('+0.50', '−0.10', '+1.00')
    """
    estimate, low, high = (f"{value:+.{decimals}f}".replace("-", "−") for value in interval)
    return estimate, low, high


def instance_losses(first: Sequence[RunRecord], second: Sequence[RunRecord]) -> list[tuple[Array, Array, Array]]:
    """Return the losses of two methods on every test instance, for each seed that both methods have.

    Returns:
        A tuple for each seed: losses (N,) of the first method and of the second, and the best values (N,), on the N
        instances that both have. The list is empty if the runs do not record the loss of every instance.
    """
    kept = [_losses_by_instance(runs) for runs in (first, second)]
    pairs = []
    for seed in sorted(kept[0].keys() & kept[1].keys()):
        names = sorted(kept[0][seed].keys() & kept[1][seed].keys())
        if names:
            a, b = (np.array([losses[seed][name] for name in names]) for losses in kept)
            pairs.append((a[:, 0], b[:, 0], b[:, 1]))
    return pairs


def _losses_by_instance(runs: Sequence[RunRecord]) -> dict[int, dict[tuple[int, int], tuple[float, float]]]:
    """Return pairs of the loss and the best value, by seed and then by (fold, instance)."""
    found: dict[int, dict[tuple[int, int], tuple[float, float]]] = {}
    for run in runs:
        kept = run.metrics.get("instances")
        if kept:
            fold, own = int(run.settings.get("fold", 0)), found.setdefault(run.seed, {})
            for name, lost, best in zip(kept["id"], kept["lost"], kept["best"], strict=True):
                own[fold, int(name)] = float(lost), float(best)
    return found


def difference_in_points(task: str, losses: Sequence[tuple[Array, Array, Array]]) -> Interval:
    """Return the regret of the first method less that of the second in percentage points, with a bootstrap interval.

    Args:
        task: name of the task in ``TASKS``, which says whether seeds share their test instances.
        losses: result of ``instance_losses``.
    """
    first, second, best = zip(*losses, strict=True)
    entry = TASKS[task]
    shares = normalized_difference(first, second, best, shared=entry.shared_test, block=entry.block)
    return Interval(*(100.0 * share for share in shares))


def difference_grid(runs: StoredRuns, wanted: Sequence[PublishedNumber]) -> PageGrid | None:
    """Return a table with the regret of every method less the regret of PEAR as published.

    Args:
        runs: runs of the database.
        wanted: the cells of a table of the report.

    Returns:
        The table, or None if no cell has runs that record the loss of every instance.
    """
    cells = [item for item in wanted if item.metric == "normalized_regret_pct"]
    references = {cell_place(item)[2]: runs_of_cell(runs, item) for item in cells if item.method == REFERENCE}
    rows = []
    for item in cells:
        _, row, column = cell_place(item)
        losses = instance_losses(runs_of_cell(runs, item), references.get(column, []))
        if item.method == REFERENCE or not losses:
            continue
        points = difference_in_points(item.task, losses)
        estimate, low, high = format_signed_interval(points, 2)
        seeds, instances = len(losses), sum(len(first) for first, _, _ in losses)
        basis = f"{seeds} seed{'s' * (seeds > 1)}, {instances:,} instances"
        rows.append((row, column, RankedText(estimate, int(points.clear)), f"{low} to {high}", basis))
    header = ("Method", "", "Difference, points", "Interval", "Of")
    return (
        PageGrid(f"Paired differences to {METHODS[REFERENCE]}", header, tuple(rows), bootstrap.DEFINITION)
        if rows
        else None
    )


DECIMALS = 3
DEFINITION = (
    "Normalised test regret in %, mean over the seeds that all methods of a line have; the lowest is bold. A "
    "difference is PEAR with our defaults less the other method, in percentage points, so that below zero ours is "
    "better; then its 95 % interval, and the number of seeds in which ours is better. It is bold where the interval "
    "leaves zero out. All methods of a line have the same data, first weights, batches, learning rate, checks and "
    "patience: on paths and knapsacks those of the paper's protocol (a patience of 3 checks, the layer's random "
    "start), on real data those of their own tables, where ours has no setting to choose, and the others but MSE "
    "choose one setting of five by validation; each table says which methods begin from the squared error. Where "
    "each seed draws its own data, the interval is Student's "
    "for paired values; on real data it is a bootstrap over seeds and test instances, which weighs each instance by "
    "its best value. The best other method is chosen by its mean on the test samples, which favours it. Intervals are "
    "not adjusted for their number."
)
"""What the tables of the comparison show, in words."""


@dataclass(frozen=True)
class Difference:
    """The difference between the regrets of two methods on the same seeds.

    Attributes:
        points: the first method's regret less the second's, in percentage points.
        wins: number of seeds in which the first method is better.
        seeds: number of seeds that both methods have.
    """

    points: Interval
    wins: int
    seeds: int

    @property
    def mark(self) -> RankedText:
        """The difference as the text of a table cell. ``place`` is 1 if the interval excludes zero.

        Example:
            >>> Difference(Interval(-0.0471, -0.06, -0.034), 19, 20).mark
            RankedText(text='−0.047 (−0.060 to −0.034), 19 of 20', place=1)
        """
        estimate, low, high = format_signed_interval(self.points, DECIMALS)
        text = f"{estimate} ({low} to {high}), {self.wins} of {self.seeds}"
        return RankedText(text, int(self.points.clear))


@dataclass(frozen=True)
class ComparisonLine:
    """One line of a comparison: the runs of all methods on one task with one set of conditions.

    Attributes:
        item: the cell of the method PEAR as published, under these conditions.
        label: the name of the conditions, such as "degree 8".
        runs: the runs of each method.
        values: the regrets in percent, by method and seed, for the seeds that all methods have.
    """

    item: PublishedNumber
    label: str
    runs: Mapping[str, Sequence[RunRecord]]
    values: Mapping[str, Mapping[int, float]]

    @property
    def means(self) -> dict[str, float]:
        """The mean regret of each method in percent, in the order of ``values``."""
        return {name: sum(seeds.values()) / len(seeds) for name, seeds in self.values.items()}

    @property
    def best_other(self) -> str:
        """The method with the lowest mean regret, PEAR with our defaults excluded."""
        others = {name: mean for name, mean in self.means.items() if name != OURS}
        return min(others, key=lambda name: others[name])

    def difference(self, first: str, second: str) -> Difference:
        """Return the difference between the regrets of the first and the second method."""
        a, b = self.values[first], self.values[second]
        losses = instance_losses(self.runs[first], self.runs[second])
        paired = [a[seed] - b[seed] for seed in a]
        points = difference_in_points(self.item.task, losses) if losses else t_interval(paired)
        return Difference(points, sum(a[seed] < b[seed] for seed in a), len(a))


def runs_with_latest_defaults(runs: StoredRuns) -> StoredRuns:
    """Return the runs without outdated runs of PEAR with our defaults.

    A run is outdated if its options differ from those of the newest run of PEAR with our defaults on the same task.
    """
    ours = sorted((run for run in runs.done if run.method == OURS), key=lambda run: run.created)
    options = {run.task: run.settings.get("options") for run in ours}
    kept = (run for run in runs.done if run.method != OURS or run.settings.get("options") == options[run.task])
    return replace(runs, done=tuple(kept))


def runs_with_common_start(runs: StoredRuns, comparison: Comparison) -> StoredRuns:
    """Return the runs that a comparison may use.

    A comparison may prescribe a setting ``start``, which says from which weights trainings start. If a method has runs
    of the full problem with this setting on a task, its other runs on the task are left out.
    """
    if comparison.start is None:
        return runs

    def begins_so(run: RunRecord) -> bool:
        return run.settings.get("start") == comparison.start and not is_reduced_run(run)

    done = {(run.task, run.method) for run in runs.done if begins_so(run)}
    kept = (run for run in runs.done if (run.task, run.method) not in done or begins_so(run))
    return replace(runs, done=tuple(kept))


def comparison_lines(runs: StoredRuns) -> dict[str, list[ComparisonLine]]:
    """Return, for each task, a line for every cell in which all compared methods share at least two seeds."""
    found: dict[str, list[ComparisonLine]] = {}
    runs = runs_with_latest_defaults(runs)
    for comparison in COMPARISONS.values():
        for line in _method_lines(comparison, runs, comparison.methods):
            found.setdefault(line.item.task, []).append(line)
    return found


def slower_method_lines(runs: StoredRuns) -> dict[str, list[ComparisonLine]]:
    """Return, for each task, lines that compare PEAR with our defaults with one slower method, on the seeds of both."""
    found: dict[str, list[ComparisonLine]] = {}
    runs = runs_with_latest_defaults(runs)
    for comparison in COMPARISONS.values():
        for name in dict.fromkeys(one for names in comparison.others.values() for one in names):
            pairs = {task: (name, OURS) for task, names in comparison.others.items() if name in names}
            for line in _method_lines(comparison, runs, pairs):
                found.setdefault(line.item.task, []).append(line)
    return found


def comparison_section(runs: StoredRuns) -> PageSection | None:
    """Return the section of tables and figures of the comparisons; None if no cell has runs of all their methods."""
    tasks = comparison_lines(runs)
    if not tasks:
        return None
    grids = tuple(_comparison_grid(task, lines) for task, lines in tasks.items())
    grids += tuple(_slower_methods_grid(task, lines) for task, lines in slower_method_lines(runs).items())
    panels = regret_ratios_by_task(tasks)
    figures = tuple(
        PageFigure(
            f"{title}: regret relative to PEAR as published",
            FIGURE_CAPTION,
            partial(draw_contrasts, points),
            {METHODS[name]: METHOD_COLORS[name] for name in dict.fromkeys(one.method for one in points)},
        )
        for title, points in panels.items()
    )
    picture = partial(save_contrasts, panels)
    return PageSection("comparison", f"{METHODS[OURS]}, beside the others", (DEFINITION,), grids, figures, picture)


FIGURE_CAPTION = (
    "The mean regret of each method over that of PEAR as published, with the 95 % interval of their paired difference; "
    "below 1 is better. Log scale."
)


def regret_ratios_by_task(tasks: Mapping[str, Sequence[ComparisonLine]]) -> dict[str, list[RegretRatio]]:
    """Return the regret of every method divided by that of PEAR as published, by the title of the task."""
    panels: dict[str, list[RegretRatio]] = {}
    for task, lines in tasks.items():
        points = panels.setdefault(TASKS[task].title, [])
        for line in lines:
            reference = line.means[REFERENCE]
            for name in line.values:
                if name != REFERENCE:
                    apart = line.difference(name, REFERENCE).points
                    points.append(
                        RegretRatio(name, line.label, Interval(*(1.0 + value / reference for value in apart)))
                    )
    return panels


def _method_lines(
    comparison: Comparison, runs: StoredRuns, methods: Mapping[str, Sequence[str]]
) -> Iterator[ComparisonLine]:
    """Yield a line for each cell of a comparison in which all given methods have run on at least two common seeds.

    The runs must be of the full problem. ``methods`` names the methods by task.
    """
    runs = runs_with_common_start(runs, comparison)
    for experiment in (EXPERIMENTS[name] for name in comparison.experiments):
        for item in cells_of_experiment(experiment, runs):
            if item.method != REFERENCE or item.metric != "normalized_regret_pct" or item.task not in methods:
                continue
            items = {name: replace(item, method=name) for name in methods[item.task]}
            groups = {name: runs_of_cell(runs, one) for name, one in items.items()}
            values = {name: cell_values_by_seed(groups[name], one) for name, one in items.items()}
            seeds = sorted(set.intersection(*(set(one) for one in values.values())))
            if len(seeds) < 2 or any(is_reduced_run(group[0]) for group in groups.values()):
                continue
            kept = {name: [run for run in group if run.seed in seeds] for name, group in groups.items()}
            shared = {name: {seed: one[seed] for seed in seeds} for name, one in values.items()}
            yield ComparisonLine(item, cell_place(item)[2], kept, shared)


def _comparison_grid(task: str, lines: Sequence[ComparisonLine]) -> PageGrid:
    """Return the table of one task: the mean regrets of all methods, and two differences.

    The differences are the regret of PEAR with our defaults less that of PEAR as published, and less that of the best
    other method.
    """
    names = list(lines[0].values)
    header = ("", *(METHODS[name] for name in names), "less PEAR as published", "less the best other")
    rows = []
    for line in lines:
        places = rank_best_two(list(line.means.values()), DECIMALS)
        means = [RankedText(f"{m:.{DECIMALS}f}", int(p == 1)) for m, p in zip(line.means.values(), places, strict=True)]
        published, other = (line.difference(OURS, name).mark for name in (REFERENCE, line.best_other))
        against = RankedText(f"{other.text} ({METHODS[line.best_other]})", other.place)
        rows.append((line.label, *means, published, against))
    options = lines[0].runs[OURS][0].settings.get("options", {})
    words = ", ".join(f"{name}={value!r}" for name, value in sorted(options.items()))
    caption = f"{METHODS[OURS]}: PEARLoss(problem, {words}). {describe_starts(lines)}".rstrip()
    return PageGrid(TASKS[task].title, header, tuple(rows), caption)


def describe_starts(lines: Sequence[ComparisonLine]) -> str:
    """Return a sentence on which methods were trained on the squared error first; "" if none was."""
    first = {name: group[0].settings.get("start") == "mse" for line in lines for name, group in line.runs.items()}
    names = [METHODS[name] for name, begins_so in first.items() if begins_so]
    if not names:
        return ""
    if all(begins_so for name, begins_so in first.items() if name != "mse"):
        return "Every method but MSE begins from weights that were trained on the squared error."
    return f"Begun from weights that were trained on the squared error: {'; '.join(names)} alone."


def _slower_methods_grid(task: str, lines: Sequence[ComparisonLine]) -> PageGrid:
    """Return the table that compares PEAR with our defaults with each slower method, on the seeds of both."""
    rows = []
    for line in lines:
        other = next(name for name in line.values if name != OURS)
        ours, theirs = (f"{line.means[name]:.{DECIMALS}f}" for name in (OURS, other))
        cap = unusual_time_cap(line.runs[other][0])
        name = METHODS[other] if cap is None else f"{METHODS[other]}, {cap:g} s"
        rows.append((line.label, name, theirs, ours, line.difference(OURS, other).mark))
    header = ("", "Method", "Its regret", METHODS[OURS], f"{METHODS[OURS]}, less the method")
    words = "On the seeds that both have. Seconds after a name are its time cap, where that is not the paper's."
    words = f"{words} {describe_starts(lines)}".rstrip()
    return PageGrid(f"{TASKS[task].title}, slower methods", header, tuple(rows), words)
