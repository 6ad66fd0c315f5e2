"""Folds in time order: computed by hand, compared with those of scikit-learn, and errors for bad arguments."""

import numpy as np
import pytest

import pear
from pear.errors import ProblemError
from pear.evaluation.time_splits import read_time_splits


def as_lists(folds):
    return [(train.tolist(), test.tolist()) for train, test in folds]


def test_folds_by_hand():
    rows = np.zeros((7, 2))
    assert as_lists(pear.TimeSplits(2).split(rows)) == [([0, 1, 2], [3, 4]), ([0, 1, 2, 3, 4], [5, 6])]
    assert as_lists(pear.TimeSplits(2, gap=1).split(rows)) == [([0, 1], [3, 4]), ([0, 1, 2, 3], [5, 6])]
    assert as_lists(pear.TimeSplits(2, window=2).split(rows)) == [([1, 2], [3, 4]), ([3, 4], [5, 6])]
    assert as_lists(pear.TimeSplits(3, test_rows=1).split(rows)) == [
        ([0, 1, 2, 3], [4]),
        ([0, 1, 2, 3, 4], [5]),
        ([0, 1, 2, 3, 4, 5], [6]),
    ]


def test_the_smallest_folds():
    assert as_lists(pear.TimeSplits(2, test_rows=1).split(range(3))) == [([0], [1]), ([0, 1], [2])]
    assert as_lists(pear.TimeSplits(1, window=10, test_rows=1).split(range(4))) == [([0, 1, 2], [3])]
    assert pear.TimeSplits() == pear.TimeSplits(5, 0, None, None)


@pytest.mark.parametrize("count", [23, 100])
@pytest.mark.parametrize(("gap", "window", "size"), [(0, None, None), (2, None, 3), (1, 5, None)])
def test_folds_are_those_of_scikit_learn(count, gap, window, size):
    selection = pytest.importorskip("sklearn.model_selection")
    theirs = selection.TimeSeriesSplit(4, gap=gap, max_train_size=window, test_size=size)
    ours = pear.TimeSplits(4, gap=gap, window=window, test_rows=size)
    rows = np.zeros((count, 1))
    assert as_lists(ours.split(rows)) == as_lists(theirs.split(rows))
    assert ours.get_n_splits() == theirs.get_n_splits()


def test_scikit_learn_takes_them():
    selection = pytest.importorskip("sklearn.model_selection")
    from sklearn.linear_model import LinearRegression

    X = np.arange(20.0)[:, None]
    assert selection.cross_val_score(LinearRegression(), X, X, cv=pear.TimeSplits(3)) == pytest.approx([1.0] * 3)


def test_every_kind_of_splits_is_read():
    rows, pairs = np.zeros((6, 1)), [([0, 1], [2, 3]), ([0, 1, 2, 3], [4, 5])]
    masks = [(np.arange(6) < 2, np.isin(np.arange(6), [2, 3])), (np.arange(6) < 4, np.arange(6) >= 4)]
    for splits in (2, np.int64(2), pear.TimeSplits(2), pairs, iter(pairs), masks, np.array([[[0], [1]]])):
        folds = as_lists(read_time_splits(splits, rows, rows, 6))
        assert folds == ([([0], [1])] if isinstance(splits, np.ndarray) else pairs)


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        ("five", "a number of folds"),
        (None, "a number of folds"),
        (True, "a number of folds"),
        (0, "folds of TimeSplits must be a whole number of at least 1"),
        (9, "6 rows are too few for 9 test folds"),
        (pear.TimeSplits(2, gap=2), "a gap of 2"),
        ([], "no fold"),
        ([([0, 1], [1, 2])], r"trained and tested on the same rows, \[1\]"),
        ([([0], [2]), ([1], [2])], r"more than one fold, \[2\]"),
        ([([0], [6])], "from 0 to 5"),
        ([([0], [-1])], "from 0 to 5"),
        ([([0], [-1, 3])], "from 0 to 5"),
        ([([0], [3, 6])], "fold 1 needs distinct row numbers from 0 to 5"),
        ([([0, 0], [1])], "1 different ones of 2"),
        ([([0], [])], "with a row at least"),
        ([([0.5], [1])], "row numbers"),
        ([[0, 1, 2]], "must be a pair"),
    ],
)
def test_what_is_refused(splits, message):
    rows = np.zeros((6, 1))
    with pytest.raises(ProblemError, match=message):
        read_time_splits(splits, rows, rows, 6)


@pytest.mark.parametrize("wrong", [{"gap": -1}, {"window": 0}, {"test_rows": 0}, {"folds": 2.5}, {"gap": True}])
def test_settings_are_checked(wrong):
    with pytest.raises(ProblemError, match=next(iter(wrong))):
        pear.TimeSplits(**wrong)
