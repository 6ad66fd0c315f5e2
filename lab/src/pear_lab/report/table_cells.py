"""The cells of tables: the runs that belong to each cell, and their mean."""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pear_lab.experiments.catalogue import EXPERIMENTS, FOLDS, MAX_EPOCHS, METHODS, SEEDS, TASKS, TIME_CAP, Experiment
from pear_lab.experiments.database import read_records
from pear_lab.experiments.protocols import PROTOCOLS
from pear_lab.experiments.run_record import RunRecord
from pear_lab.experiments.table_spec import CONDITIONS, METRICS
from pear_lab.report.published_numbers import (
    CellVerdict,
    PublishedNumber,
    format_mean,
    mean_and_deviation,
    published,
    verdict,
)

TABLES = {experiment.table.name: experiment.table for experiment in EXPERIMENTS.values()}
"""Every table by its name."""


@dataclass(frozen=True)
class StoredRuns:
    """Every run of a database.

    Attributes:
        path: file of the database.
        done: finished runs, oldest first.
        failed: runs that ended in an error, oldest first.
    """

    path: Path
    done: tuple[RunRecord, ...]
    failed: tuple[RunRecord, ...]


def read(path: Path) -> StoredRuns:
    """Return all runs of a database. The file is not changed.

    Raises:
        DatabaseError: the database cannot be read by ``read_records``.
    """
    records = read_records(path)
    done = tuple(record for record in records if record.status == "done")
    return StoredRuns(path, done, tuple(record for record in records if record.status != "done"))


@dataclass(frozen=True)
class Cell:
    """One cell of a table: our number and the published one.

    Attributes:
        published: what the paper prints; its mean is None in a cell that only we have.
        values: a number for each seed, in the unit of the table; empty if nothing was run.
        mean: the mean of the values; None without values.
        std: the standard deviation of the values; None for fewer than two values.
        verdict: how our mean compares with the published one.
        notes: what a reader must know, such as missing seeds or a shorter budget.
        failed: runs of this cell that ended in an error.
        place, published_place: 1 for the best of its column, 2 for the second best, 0 for all others.
    """

    published: PublishedNumber
    values: Mapping[int, float]
    mean: float | None
    std: float | None
    verdict: CellVerdict
    notes: tuple[str, ...] = ()
    failed: int = 0
    place: int = 0
    published_place: int = 0

    @property
    def ours(self) -> str:
        """Our mean and deviation; empty if nothing was run."""
        return "" if self.mean is None else format_mean(self.mean, self.std, self.published.decimals)

    @property
    def paper(self) -> str:
        """The published mean and deviation; empty in a cell that only we have."""
        return self.published.text

    @property
    def not_run(self) -> bool:
        """Whether the database has no finished run of this cell."""
        return self.verdict is CellVerdict.NOT_RUN

    @property
    def remarks(self) -> tuple[str, ...]:
        """The notes, and how many runs failed."""
        return (*self.notes, *([f"{self.failed} failed"] if self.failed else []))


def cell_place(wanted: PublishedNumber) -> tuple[str, str, str]:
    """Return the place of a cell in its table: the titles of its block, row and column.

    Example:
        >>> from pear_lab.report.published_numbers import published
        >>> cell_place(published()[0])
        ('Shortest path: normalised regret, %', 'MSE', 'degree 2')
    """

    def label(name: str) -> str:
        if name == "task":
            return TASKS[wanted.task].title
        if name == "method":
            return METHODS.get(wanted.method, wanted.method)
        return CONDITIONS[name].label.format(wanted.condition[name])

    table = TABLES[wanted.table]
    parts = ", ".join(label(name) for name in table.blocks)
    metric = METRICS[wanted.metric].title
    return f"{parts}: {metric}" if parts else metric, label(table.rows), label(table.columns)


def fill_cell(runs: StoredRuns, wanted: PublishedNumber) -> Cell:
    """Return the cell with our number for ``wanted``, computed from the runs of the database."""
    group = runs_of_cell(runs, wanted)
    values = cell_values_by_seed(group, wanted)
    failed = sum(run_matches_cell(run, wanted) for run in runs.failed)
    if not values:
        return Cell(wanted, {}, None, None, CellVerdict.NOT_RUN, failed=failed)
    mean, std = mean_and_deviation([values[seed] for seed in sorted(values)], TABLES[wanted.table].ddof)
    outcome = verdict(mean, wanted.mean, wanted.std, wanted.decimals)
    if is_reduced_run(group[0]) or (wanted.metric == "train_seconds" and unusual_time_cap(group[0]) is not None):
        outcome = CellVerdict.REDUCED
    return Cell(wanted, values, mean, std, outcome, _cell_notes(group, len(values)), failed)


def cell_values_by_seed(group: list[RunRecord], wanted: PublishedNumber) -> dict[int, float]:
    """Return our number for a cell from each seed, in the unit of the table.

    A seed has one run, or one for each of its folds.
    """
    found: dict[int, list[RunRecord]] = defaultdict(list)
    for run in group:
        found[run.seed].append(run)
    return {seed: _cell_value_of_seed(runs, wanted) for seed, runs in found.items()}


def _cell_value_of_seed(runs: list[RunRecord], wanted: PublishedNumber) -> float:
    """Return the number for a cell from the runs of one seed.

    Regrets of several folds are pooled over all instances; other numbers are averaged over the folds.
    """
    instances = [kept for run in runs if (kept := run.metrics.get("instances"))]
    if wanted.metric == "normalized_regret_pct" and len(instances) == len(runs) > 1:
        lost, best = (math.fsum(x for one in instances for x in one[what]) for what in ("lost", "best"))
        return 100.0 * lost / best
    return statistics.fmean(found for run in runs if (found := cell_value_of_run(run, wanted)) is not None)


def runs_of_cell(runs: StoredRuns, wanted: PublishedNumber) -> list[RunRecord]:
    """Return the finished runs that our number in a cell is computed from. Their settings differ only in the fold."""
    return _best_run_group(
        run for run in runs.done if run_matches_cell(run, wanted) and cell_value_of_run(run, wanted) is not None
    )


def run_matches_cell(run: RunRecord, wanted: PublishedNumber) -> bool:
    """Return whether a run has the task, the method and the conditions of a cell."""
    same = (run.task, run.method) == (wanted.task, wanted.method)
    return same and TABLES[wanted.table].matches(run, wanted.condition)


def cell_value_of_run(run: RunRecord, wanted: PublishedNumber) -> float | None:
    """Return the number of a run for a cell, in the unit of the table; None if the run did not measure it."""
    return TABLES[wanted.table].value(run, wanted.metric, wanted.condition)


def is_reduced_run(run: RunRecord) -> bool:
    """Return whether a run solves another problem than the paper, such as the reduced one of ``--quick``.

    The numbers of such a run cannot be compared with the paper's.
    """
    task = TASKS[run.task]
    paper = task.problem if task.published else {}
    differs = any(run.settings.get(name, expected) != expected for name, expected in paper.items())
    return differs or bool(run.settings.get("quick"))


def unusual_time_cap(run: RunRecord) -> float | None:
    """Return the time cap of a run if its task is published with another time cap, otherwise None."""
    cap = float(run.settings.get("time_cap", TIME_CAP))
    return cap if TASKS[run.task].published and cap != TIME_CAP else None


def _best_run_group(runs: Iterable[RunRecord]) -> list[RunRecord]:
    """Group runs by all settings except the fold, and return the group that ``_rank_run_group`` ranks highest."""
    groups = defaultdict(list)
    for run in runs:
        shared = {name: setting for name, setting in run.settings.items() if name != "fold"}
        groups[json.dumps(shared, sort_keys=True)].append(run)
    return max(groups.values(), key=_rank_run_group, default=[])


def _rank_run_group(group: list[RunRecord]) -> tuple[bool, bool, int, float, str]:
    """Return the sort key of a group of runs with equal settings, except for the fold; the largest key is preferred.

    Groups are compared by these criteria in turn: full problems before reduced ones; runs whose setting ``start`` (the
    first weights) is the one that the task's protocol prescribes before others; then more runs, a larger time cap, and
    a later date.
    """
    run = group[0]
    budget = float(run.settings.get("time_cap", TIME_CAP))
    own = run.settings.get("start") == PROTOCOLS[run.task].method_settings(run.method).get("start")
    return not is_reduced_run(run), own, len(group), budget, max(one.created for one in group)


def _cell_notes(group: list[RunRecord], seeds: int) -> tuple[str, ...]:
    """Return notes on how the runs of a cell differ from the published ones.

    The notes name seeds, problem size, folds, time cap and epochs.
    """
    run, notes = group[0], []
    if seeds < len(SEEDS):
        notes.append(f"{seeds} of {len(SEEDS)} seeds")
    elif seeds > len(SEEDS):
        notes.append(f"{seeds} seeds, published {len(SEEDS)}")
    if is_reduced_run(run):
        return (*notes, "reduced problem")
    if "fold" in run.settings and len(group) < len(FOLDS) * seeds:
        notes.append(f"{len(group)} of {len(FOLDS) * seeds} folds")
    if not TASKS[run.task].published:
        return tuple(notes)
    if (cap := unusual_time_cap(run)) is not None:
        notes.append(f"time cap {cap:g} s, published {TIME_CAP:g} s")
    epochs = run.settings.get("max_epochs", MAX_EPOCHS)
    if epochs != MAX_EPOCHS:
        notes.append(f"at most {epochs:,} epochs, published {MAX_EPOCHS:,}")
    return tuple(notes)


def cells_of_experiment(experiment: Experiment, runs: StoredRuns) -> list[PublishedNumber]:
    """Return the cells of an experiment's table: the published ones, and those of methods that only we have run."""
    table = experiment.table
    printed = [item for item in published() if item.table == table.name] or _unpublished_cells(experiment)
    if table.rows != "method":
        return printed
    known = {item.method for item in printed}
    possible = [
        replace(item, method=method, mean=None, std=None)
        for item in printed
        if item.method == "pear"
        for method in sorted({run.method for run in runs.done} - known)
    ]
    found = {(cell_place(item)[0], item.method) for item in possible if runs_of_cell(runs, item)}
    extra = [item for item in possible if (cell_place(item)[0], item.method) in found]
    order = {name: place for place, name in enumerate(METHODS)}
    # Blocks keep the paper's order, since sorting is stable and the block comes first.
    blocks = list(dict.fromkeys(cell_place(item)[0] for item in printed))
    return sorted(
        [*printed, *extra], key=lambda item: (blocks.index(cell_place(item)[0]), order.get(item.method, len(order)))
    )


def _unpublished_cells(experiment: Experiment) -> list[PublishedNumber]:
    """Return the cells of an experiment whose table is not in the paper. They have no published number."""
    table = experiment.table
    return [
        PublishedNumber(table.name, task, method, condition, metric, None, None, table.decimals_of(metric))
        for task in experiment.tasks
        for metric in table.metrics
        for method in experiment.methods
        for condition in table.cells
    ]
