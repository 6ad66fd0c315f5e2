"""Differences between methods on the same test instances."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pear.experiments.catalogue import TASKS
from pear.experiments.record import Record
from pear.report.bootstrap import DEFINITION, Interval, paired_difference
from pear.report.cells import place, runs_of
from pear.report.published import Published
from pear.report.runs import Runs
from pear.report.section import Grid, Mark

REFERENCE = "pear"
_Losses = dict[tuple[int, int], tuple[float, float]]
"""(fold, instance) → what was lost, and the best value."""


def differences(runs: Runs, wanted: Sequence[Published]) -> list[tuple[str | Mark, ...]]:
    """A method's regret less PEAR's: a line for each cell of regret whose runs, and PEAR's, keep each instance's loss.

    Args:
        runs: of the database.
        wanted: the cells of a table.
    """
    cells = [item for item in wanted if item.metric == "normalized_regret_pct"]
    losses = {id(item): _losses(runs_of(runs, item)) for item in cells}
    references = {place(item)[2]: item for item in cells if item.method == REFERENCE}
    found: list[tuple[str | Mark, ...]] = []
    for item in cells:
        _, row, column = place(item)
        pairs = _pairs(losses[id(item)], losses[id(references[column])]) if column in references else []
        if item.method == REFERENCE or not pairs:
            continue
        first, second, best = zip(*pairs, strict=True)
        task = TASKS[item.task]
        interval = paired_difference(first, second, best, shared=task.shared_test, block=task.block)
        basis = f"{len(pairs)} seed{'s' * (len(pairs) > 1)}, {sum(map(len, first)):,} instances"
        found.append((row, column, *_points(interval), basis))
    return found


def _points(interval: Interval) -> tuple[Mark, str]:
    """A difference in percentage points, marked where it is clear, and its interval.

    Example:
        >>> _points(Interval(0.005, -0.001, 0.01))
        (Mark(text='+0.50', place=0), '−0.10 to +1.00')
    """
    estimate, low, high = (f"{100.0 * value:+.2f}".replace("-", "−") for value in interval)
    return Mark(estimate, int(interval.clear)), f"{low} to {high}"


def difference_grid(found: Sequence[tuple[str | Mark, ...]]) -> Grid:
    """The differences of a table, for the report."""
    header = ("Method", "", "Difference, points", "Interval", "Of")
    return Grid("Paired differences to PEAR", header, tuple(found), DEFINITION)


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
