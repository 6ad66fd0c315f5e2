"""``TimeSplits`` and other splitters: folds, each with rows to train on and rows to test on."""

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

_LISTED = 3  # rows in a message


class TimeFold(NamedTuple):
    """A fold: rows to train forecasters on, and rows to test them on.

    Attributes:
        train: row numbers.
        test: row numbers, none of them in ``train``.
    """

    train: Rows
    test: Rows


@dataclass(frozen=True)
class TimeSplits:
    """A splitter, as in scikit-learn, into folds in time order: training rows, then a gap, then test rows.

    The test rows of the folds follow each other and end at the last row. Without a window, each training uses all rows
    before the gap.

    Args:
        folds: the number of folds.
        gap: the number of rows left out before the test rows, for targets that become known this many rows later.
        window: the largest number of training rows; the last rows before the gap are used. None for all rows.
        test_rows: the number of test rows of a fold; None for ``N // (folds + 1)`` of N rows, as in
            ``TimeSeriesSplit``.

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
        """Yield the training rows and the test rows of each fold, as row numbers.

        Args:
            X: the N rows. Only their number matters.
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
        """Return the number of folds. Arguments are ignored; scikit-learn passes them."""
        return self.folds


def read_time_splits(splits: Any, X: Any, C: Any, count: int) -> list[TimeFold]:
    """Return the folds that the argument ``splits`` of ``walk_forward`` stands for.

    Args:
        splits: a number of folds, a ``TimeSplits``, a splitter of scikit-learn, or pairs of rows to train on and rows
            to test on, each as row numbers or as a mask of N bools.
        X, C: the arguments with which a splitter is called.
        count: N, the number of rows.

    Raises:
        ProblemError: ``splits`` is none of these, a row is tested twice or used both to train and to test, or a row
            number is out of range.
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
    folds = [_read_time_fold(pair, number, count) for number, pair in enumerate(pairs, 1)]
    if not folds:
        raise ProblemError("splits gave no fold; at least one is needed")
    _check_folds_disjoint(folds)
    return folds


def _read_time_fold(pair: Any, number: int, count: int) -> TimeFold:
    """Return a pair of training and test rows as the fold with this number.

    Raise ``ProblemError`` if they do not fit.
    """
    if not isinstance(pair, (tuple, list, np.ndarray)) or len(pair) != 2:
        raise ProblemError(f"fold {number} must be a pair, rows to train on and rows to test on; got {pair!r}")
    train, test = (_read_fold_rows(rows, f"fold {number}", count) for rows in pair)
    both = np.intersect1d(train, test)
    if len(both):
        raise ProblemError(
            f"fold {number} is trained and tested on the same rows, {both[:_LISTED].tolist()} among them; a forecaster "
            "must not see what it is tested on"
        )
    return TimeFold(train, test)


def _read_fold_rows(rows: Any, name: str, count: int) -> Rows:
    """Return rows as row numbers.

    Raise ``ProblemError`` unless they are distinct numbers below ``count``, or a mask.
    """
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


def _check_folds_disjoint(folds: list[TimeFold]) -> None:
    """Raise ``ProblemError`` if two folds test the same row."""
    rows, times = np.unique(np.concatenate([fold.test for fold in folds]), return_counts=True)
    twice = rows[times > 1]
    if len(twice):
        raise ProblemError(
            f"rows are tested in more than one fold, {twice[:_LISTED].tolist()} among them; each row counts once"
        )
