"""``StudyCase``: a decision problem, features, true values, and the splits on which forecasters are compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pear.evaluation.time_splits import TimeSplits
from pear.problem import Model, Problem
from pear.problem.sample_keys import count_keyed_samples

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

QUICK_ROWS = 80
"""So many rows a case has under ``--quick``."""


class Split(NamedTuple):
    """Samples to train on and samples to test on.

    Attributes:
        train: what a forecaster may see.
        test: what it is judged on.
        held_out: this many samples at the end of ``train`` stop a training, where the protocol of the task sets them
            apart; a forecaster without an early stop trains on all alike.
    """

    train: Rows
    test: Rows
    held_out: int = 0


@dataclass(frozen=True)
class StudyCase:
    """A decision problem of the study with its samples and splits.

    Attributes:
        problem: the decision problem; a batch of N where every sample has its own.
        X: (N, p) features of a sample, or (N, k, p) of each of its k values, which one model then predicts.
        C: (N, k) the true values.
        splits: at least one.
    """

    problem: Problem | Model
    X: Array
    C: Array
    splits: tuple[Split, ...]

    @property
    def table(self) -> Array:
        """The features as a table: (N, p), or (N·k, p) with a row for each value."""
        return self.X.reshape(-1, self.X.shape[-1])

    @property
    def groups(self) -> Rows | None:
        """The sample that each row belongs to, (N·k,), where the table has a row for each value; None otherwise."""
        return np.repeat(np.arange(len(self.C)), self.C.shape[1]) if self.X.ndim == 3 else None

    @property
    def offset(self) -> float:
        """The constant of the objective, which the values of solutions do not include."""
        return float(self.problem.offset) if isinstance(self.problem, Model) else 0.0

    def problem_of(self, rows: Rows) -> Problem | Model:
        """The problem of these samples: their own where each has one."""
        return self.problem if count_keyed_samples(self.problem) is None else self.problem[rows.tolist()]


def expanding_folds(count: int, folds: int, size: int) -> tuple[Split, ...]:
    """The last ``folds · size`` rows, ``size`` at a time, each tested by what was trained on all rows before.

    Example:
        >>> [(len(one.train), one.test.tolist()) for one in expanding_folds(7, folds=2, size=2)]
        [(3, [3, 4]), (5, [5, 6])]
    """
    return tuple(Split(*pair) for pair in TimeSplits(folds, test_rows=size).split(range(count)))


def last_part(order: Rows, share: float = 0.8) -> tuple[Split]:
    """Train on the first ``share`` of the rows in this order, and test on the rest.

    Example:
        >>> last_part(np.arange(5))[0].test.tolist()
        [4]
    """
    first = int(share * len(order))
    return (Split(order[:first], order[first:]),)
