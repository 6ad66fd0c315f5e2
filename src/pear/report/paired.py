"""Differences between methods on the same test instances."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pear.report.bootstrap import Interval, paired_difference
from pear.report.cells import runs_of
from pear.report.database import Run, Runs
from pear.report.published import Published

REFERENCE = "pear"
_WEEK = 7
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


def differences(
    runs: Runs, wanted: Sequence[Published], row: Callable[[Published], str], column: Callable[[Published], str]
) -> tuple[Difference, ...]:
    """One for each cell of regret whose runs, and PEAR's beside it, keep what every instance lost.

    Args:
        runs: of the database.
        wanted: the cells of a table.
        row, column: what a cell's place is called.
    """
    cells = [item for item in wanted if item.metric == "normalized_regret_pct"]
    losses = {id(item): _losses(runs_of(runs, item)) for item in cells}
    found = []
    for item in cells:
        reference = next((one for one in cells if one.method == REFERENCE and column(one) == column(item)), None)
        if item.method == REFERENCE or reference is None:
            continue
        pairs = _pairs(losses[id(item)], losses[id(reference)])
        if not pairs:
            continue
        first, second, best = zip(*pairs, strict=True)
        same_days = item.task == "energy"
        interval = paired_difference(first, second, best, shared=same_days, block=_WEEK if same_days else 1)
        points = Interval(*(100.0 * number for number in (interval.estimate, interval.low, interval.high)))
        found.append(Difference(row(item), column(item), points, len(pairs), sum(map(len, first))))
    return tuple(found)


def _losses(runs: Sequence[Run]) -> dict[int, _Losses]:
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
