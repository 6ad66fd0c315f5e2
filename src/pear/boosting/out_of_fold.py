"""``out_of_fold``: forecasts of training rows by copies of a forecaster that were fitted without these rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from pear.errors import ProblemError
from pear.problem.pandas_data import check_pandas_rows
from pear.train.base_copies import is_refittable_base
from pear.train.base_forecast import held_out_base_forecast
from pear.train.blocked_folds import FOLDS
from pear.train.long_table import group_long_table


def out_of_fold(base: Any, X: Any, y: Any, *, groups: Any = None, folds: int = FOLDS) -> np.ndarray[Any, Any]:
    """Return forecasts of all rows. A copy of ``base`` forecasts each block of rows, and is fitted to the other blocks.

    A forecaster predicts the rows that it was fitted to better than other rows. Trees that start from such predictions
    learn from errors that are too small. Therefore use the forecasts of this function as ``init_score`` or
    ``base_margin`` of the training rows. For all other rows, use the forecasts of ``base``, fitted to all training
    rows.

    Args:
        base: an estimator of scikit-learn, such as ``LGBMRegressor``, fitted or not. It is not changed.
        X: the rows, an array or a DataFrame.
        y: (N,) or (N, k) true values, one or k for each row.
        groups: (N,) the group of each row. All rows of a group stay in one block. All groups have the same number of
            rows. None if every row is a sample.
        folds: the number of blocks.

    Raises:
        ProblemError: the base cannot be copied and fitted again.

    Returns:
        The forecasts, in the shape that ``base.predict`` returns.

    Example:
        >>> from sklearn.linear_model import Ridge
        >>> X, y = np.arange(10.0)[:, None], np.arange(10.0)
        >>> made, by_hand = out_of_fold(Ridge(), X, y), Ridge().fit(X[2:], y[2:]).predict(X[:2])
        >>> bool((made[:2] == by_hand).all())
        True
    """
    if not is_refittable_base(base):
        raise ProblemError(
            f"out_of_fold fits copies of an estimator of scikit-learn, as LGBMRegressor or XGBRegressor; a "
            f"{type(base).__name__} cannot be fitted again"
        )
    check_pandas_rows({"X": X, "y": y, "groups": groups})
    blocks = None
    if groups is not None:
        count = len(X)
        blocks = group_long_table(groups, count, count // max(len(set(groups)), 1))
    return held_out_base_forecast(base, X, y, blocks, folds)
