"""``StudyCase``: a decision problem with features, true values, and splits into training and test samples."""

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
"""The number of samples that most cases keep under ``--quick``."""


class StudySplit(NamedTuple):
    """The samples for training and for the test, by their positions in the case.

    Attributes:
        train: the training samples.
        test: the test samples.
        held_out: the number of samples, at the end of ``train``, that are reserved for early stopping. Forecasters
            without early stopping train on all training samples.
    """

    train: Rows
    test: Rows
    held_out: int = 0


@dataclass(frozen=True)
class StudyCase:
    """A decision problem of the study, with N samples of k values, and splits of the samples.

    Attributes:
        problem: the decision problem; a batch of N problems if every sample has its own.
        X: (N, p) features of each sample; or (N, k, p) features of each value, so that one model predicts all values.
        C: (N, k) the true values.
        splits: one or more splits.
    """

    problem: Problem | Model
    X: Array
    C: Array
    splits: tuple[StudySplit, ...]

    @property
    def table(self) -> Array:
        """The features as a table: (N, p) or, if each value has its own features, (N·k, p)."""
        return self.X.reshape(-1, self.X.shape[-1])

    @property
    def groups(self) -> Rows | None:
        """The sample of each row (N·k,) if ``table`` has a row for each value; otherwise None."""
        return np.repeat(np.arange(len(self.C)), self.C.shape[1]) if self.X.ndim == 3 else None

    @property
    def offset(self) -> float:
        """The constant term of the objective, which is not part of the values that solvers return."""
        return float(self.problem.offset) if isinstance(self.problem, Model) else 0.0

    def problem_of(self, rows: Rows) -> Problem | Model:
        """Return the decision problem of the samples ``rows``: a part of the batch, or the problem of all samples."""
        return self.problem if count_keyed_samples(self.problem) is None else self.problem[rows.tolist()]


def expanding_study_splits(count: int, folds: int, size: int) -> tuple[StudySplit, ...]:
    """Return splits of ``count`` samples for a walk-forward test.

    The last ``folds · size`` samples are divided into ``folds`` blocks of ``size`` consecutive samples. Each block is
    the test of one split, and all samples before the block are for training.

    Example:
        >>> [(len(one.train), one.test.tolist()) for one in expanding_study_splits(7, folds=2, size=2)]
        [(3, [3, 4]), (5, [5, 6])]
    """
    return tuple(StudySplit(*pair) for pair in TimeSplits(folds, test_rows=size).split(range(count)))


def last_part_study_split(order: Rows, share: float = 0.8) -> tuple[StudySplit]:
    """Return one split: the first ``share`` of the samples in the given order for training, the rest for the test.

    Example:
        >>> last_part_study_split(np.arange(5))[0].test.tolist()
        [4]
    """
    first = int(share * len(order))
    return (StudySplit(order[:first], order[first:]),)
