"""``TimeSplits``: rows to train on and later rows to test on, again and again; and the folds of other splitters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pear.errors import ProblemError
from pear.setting_checks import check_count_setting
from pear.train.samples.sample_rows import count_sample_rows

Rows = NDArray[np.intp]

_LISTED = 3  # rows that a message names


class Fold(NamedTuple):
    """The rows that forecasters are trained on and those that they are tested on.

    Attributes:
        train: row numbers.
        test: row numbers, none of them in ``train``.
    """

    train: Rows
    test: Rows


@dataclass(frozen=True)
class TimeSplits:
    """Folds in time order: training rows come first, then a gap, then test rows. A splitter of scikit-learn.

    The test folds lie one behind the other at the end of the rows. Without a window each training takes all rows before
    the gap, so that training sets grow.

    Args:
        folds: the number of test folds.
        gap: rows left out before each test fold, for targets that become known this many rows later.
        window: at most this many rows to train on, the last ones before the gap; None takes all.
        test_rows: rows of a test fold; None stands for ``N // (folds + 1)``, as in ``TimeSeriesSplit``.

    Example:
        >>> [(train.tolist(), test.tolist()) for train, test in TimeSplits(2, window=3).split(range(9))]
        [([0, 1, 2], [3, 4, 5]), ([3, 4, 5], [6, 7, 8])]
    """

    folds: int = 5
    gap: int = 0
    window: int | None = None
    test_rows: int | None = None

    def __post_init__(self) -> None:
        for name, least in (("folds", 1), ("gap", 0), ("window", 1), ("test_rows", 1)):
            value = getattr(self, name)
            if value is not None or name not in ("window", "test_rows"):
                check_count_setting(f"{name} of TimeSplits", value, least)

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[tuple[Rows, Rows]]:
        """Yield the row numbers of each fold: those to train on and those to test on.

        Args:
            X: (N, p) the rows, of which only the number counts.
            y, groups: ignored; scikit-learn passes them.

        Raises:
            ProblemError: there are too few rows.
        """
        count = count_sample_rows(X)
        size = count // (self.folds + 1) if self.test_rows is None else self.test_rows
        first = count - self.folds * size
        if size < 1 or first - self.gap < 1:
            raise ProblemError(
                f"{count} rows are too few for {self.folds} test folds of {max(size, 1)}, a gap of {self.gap} and a "
                "row to train on; ask for fewer folds, smaller ones or a smaller gap"
            )
        for start in range(first, count, size):
            end = start - self.gap
            begin = 0 if self.window is None else max(0, end - self.window)
            yield np.arange(begin, end), np.arange(start, start + size)

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of folds, as scikit-learn's searches ask for it."""
        return self.folds


def read_folds(splits: Any, X: Any, C: Any, count: int) -> list[Fold]:
    """Return the folds that the user asks for, checked.

    Args:
        splits: a number of folds, a ``TimeSplits``, a splitter of scikit-learn, or pairs of row numbers (or of masks
            of N bools) to train on and to test on.
        X, C: what a splitter is called with.
        count: N, the number of rows.

    Raises:
        ProblemError: it is none of these, a row is tested twice, is in no table, or is trained and tested on.
    """
    if isinstance(splits, (int, np.integer)) and not isinstance(splits, bool):
        splits = TimeSplits(int(splits))
    if isinstance(splits, TimeSplits):
        pairs: Iterable[Any] = splits.split(range(count))
    elif hasattr(splits, "split") and not isinstance(splits, str):
        pairs = splits.split(X, C)
    elif isinstance(splits, Iterable) and not isinstance(splits, str):
        pairs = splits
    else:
        raise ProblemError(
            "splits must be a number of folds, pear.TimeSplits(…), a splitter of scikit-learn, or pairs of rows to "
            f"train on and rows to test on; got {splits!r}"
        )
    folds = [_read_fold(pair, number, count) for number, pair in enumerate(pairs, 1)]
    if not folds:
        raise ProblemError("splits gave no fold; at least one is needed")
    _check_tested_once(folds)
    return folds


def _read_fold(pair: Any, number: int, count: int) -> Fold:
    """Return a pair of rows as a fold with row numbers, checked."""
    if not isinstance(pair, (tuple, list, np.ndarray)) or len(pair) != 2:
        raise ProblemError(f"fold {number} must be a pair, rows to train on and rows to test on; got {pair!r}")
    train, test = (_row_numbers(rows, f"fold {number}", count) for rows in pair)
    both = np.intersect1d(train, test)
    if len(both):
        raise ProblemError(
            f"fold {number} is trained and tested on the same rows, {both[:_LISTED].tolist()} among them; a forecaster "
            "must not see what it is tested on"
        )
    return Fold(train, test)


def _row_numbers(rows: Any, name: str, count: int) -> Rows:
    """Return rows as distinct row numbers from 0 to ``count`` − 1, in their order."""
    given = np.asarray(rows)
    if given.dtype == bool and given.shape == (count,):
        given = np.flatnonzero(given)
    if given.ndim != 1 or not len(given) or not np.issubdtype(given.dtype, np.integer):
        raise ProblemError(f"{name} needs row numbers, or a mask of {count} bools, with a row at least; got {rows!r}")
    if given.min() < 0 or given.max() >= count or len(np.unique(given)) != len(given):
        raise ProblemError(
            f"{name} needs distinct row numbers from 0 to {count - 1}; got {given.min()} to {given.max()}, "
            f"{len(np.unique(given))} different ones of {len(given)}"
        )
    return given.astype(np.intp)


def _check_tested_once(folds: list[Fold]) -> None:
    """Raise ProblemError where two folds test the same row."""
    rows, times = np.unique(np.concatenate([fold.test for fold in folds]), return_counts=True)
    twice = rows[times > 1]
    if len(twice):
        raise ProblemError(
            f"rows are tested in more than one fold, {twice[:_LISTED].tolist()} among them; each row counts once"
        )
