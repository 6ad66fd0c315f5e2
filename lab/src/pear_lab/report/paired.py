"""Differences between methods on the same test instances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pear.pages.section import Grid, Mark
from pear_lab.experiments.catalogue import REFERENCE, TASKS
from pear_lab.experiments.record import Record
from pear_lab.report.bootstrap import DEFINITION, Interval, paired_difference
from pear_lab.report.cells import place, runs_of
from pear_lab.report.published import Published
from pear_lab.report.runs import Runs

_Losses = dict[tuple[int, int], tuple[float, float]]
"""(fold, instance) → what was lost, and the best value."""


@dataclass(frozen=True)
class Difference:
    """A method's regret less PEAR's.

    Attributes:
        row, column: place in the table.
        points: percentage points, with their interval.
        seeds: that both have; instances: tested by both, all seeds together.
    """

    row: str
    column: str
    points: Interval
    seeds: int
    instances: int

    @property
    def words(self) -> tuple[str | Mark, ...]:
        """A line of the report.

        Example:
            >>> Difference("MSE", "budget 0.4", Interval(0.5, -0.1, 1.0), seeds=5, instances=185).words
            ('MSE', 'budget 0.4', Mark(text='+0.50', place=0), '−0.10 to +1.00', '5 seeds, 185 instances')
        """
        estimate, low, high = (f"{value:+.2f}".replace("-", "−") for value in self.points)
        basis = f"{self.seeds} seed{'s' * (self.seeds > 1)}, {self.instances:,} instances"
        return self.row, self.column, Mark(estimate, int(self.points.clear)), f"{low} to {high}", basis


def differences(runs: Runs, wanted: Sequence[Published]) -> list[Difference]:
    """One for each cell of regret whose runs, and PEAR's beside it, keep what every instance lost.

    Args:
        runs: of the database.
        wanted: the cells of a table.
    """
    cells = [item for item in wanted if item.metric == "normalized_regret_pct"]
    losses = {id(item): _losses(runs_of(runs, item)) for item in cells}
    references = {place(item)[2]: item for item in cells if item.method == REFERENCE}
    found = []
    for item in cells:
        _, row, column = place(item)
        pairs = _pairs(losses[id(item)], losses[id(references[column])]) if column in references else []
        if item.method == REFERENCE or not pairs:
            continue
        first, second, best = zip(*pairs, strict=True)
        task = TASKS[item.task]
        interval = paired_difference(first, second, best, shared=task.shared_test, block=task.block)
        points = Interval(*(100.0 * value for value in interval))
        found.append(Difference(row, column, points, len(pairs), sum(map(len, first))))
    return found


def difference_grid(found: Sequence[Difference]) -> Grid:
    """The differences of a table, for the report."""
    header = ("Method", "", "Difference, points", "Interval", "Of")
    return Grid("Paired differences to PEAR", header, tuple(one.words for one in found), DEFINITION)


def paired_losses(
    first: Sequence[Record], second: Sequence[Record]
) -> list[tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]]:
    """For each seed of both what two methods lost on every instance, and the best value; empty where none is kept."""
    return _pairs(_losses(first), _losses(second))


def _losses(runs: Sequence[Record]) -> dict[int, _Losses]:
    """Seed → losses, of runs that keep them."""
    found: dict[int, _Losses] = {}
    for run in runs:
        kept = run.metrics.get("instances")
        if kept:
            fold, own = int(run.settings.get("fold", 0)), found.setdefault(run.seed, {})
            for name, lost, best in zip(kept["id"], kept["lost"], kept["best"], strict=True):
                own[fold, int(name)] = float(lost), float(best)
    return found


def _pairs(
    first: dict[int, _Losses], second: dict[int, _Losses]
) -> list[tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]]:
    """For each seed of both what the two lost and the best value, on the instances of both, in order."""
    pairs = []
    for seed in sorted(first.keys() & second.keys()):
        names = sorted(first[seed].keys() & second[seed].keys())
        if names:
            a, b = (np.array([losses[seed][name] for name in names]) for losses in (first, second))
            pairs.append((a[:, 0], b[:, 0], b[:, 1]))
    return pairs
