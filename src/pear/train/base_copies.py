"""``BaseCopies``: forecasts by copies of a base. A base is a forecaster of the user, which another model corrects."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pear.clock import read_clock
from pear.errors import ProblemError
from pear.train.blocked_folds import FOLDS, blocked_folds
from pear.train.long_table import Array, LongTable
from pear.train.samples.sample_rows import count_sample_rows, take_sample_rows


class BaseCopies:
    """Forecasts by copies of a base, each of which is fitted to some of the samples.

    The copies are not kept. Their forecasts of all samples are kept, so that no copy is fitted twice to the same
    samples.

    Args:
        base: an estimator of scikit-learn, fitted or not. It is not changed.
        X: the rows, which the base accepts.
        y: the true values, with a row for each row of X: k values, (N, k), or one value, (N,).
        groups: the groups of a long table, in which several rows form a sample. None if each row is a sample.

    Attributes:
        count: N, the number of samples.
        seconds: the shortest time in which a copy was fitted and has forecast all samples; infinite before the first.
    """

    def __init__(self, base: Any, X: Any, y: Any, groups: LongTable | None = None) -> None:
        self.base, self.X, self.y, self.groups = base, X, y, groups
        self.count = count_sample_rows(X) if groups is None else len(groups)
        self.seconds = float("inf")
        self._forecasts: dict[bytes, Array] = {}

    def forecast(self, samples: Array) -> Array:
        """Return the forecasts of all rows of X by a copy that is fitted to the samples with these numbers."""
        key = samples.tobytes()
        if key not in self._forecasts:
            began, rows = read_clock(), self.rows(samples)
            copy = fit_base_copy(self.base, take_sample_rows(self.X, rows), take_sample_rows(self.y, rows))
            self._forecasts[key] = forecast_by_base(copy, self.X)
            self.seconds = min(self.seconds, read_clock() - began)
        return self._forecasts[key]

    def forecast_out_of_fold(self, samples: Array, gap: int = 0, folds: int = FOLDS) -> Array:
        """Return forecasts of each of the chosen samples by a copy of the base that is fitted to others of them.

        All N samples are split into blocks of consecutive samples. The chosen samples in a block are forecast by a copy
        that is fitted to the chosen samples outside of the block and of the gaps on either side of it. If no chosen
        sample is there, the copy is fitted to those outside of the block. If all chosen samples are in one block, the
        copy is fitted to all of them, and they are not new to it.

        Args:
            samples: the numbers of the chosen samples, in ascending order.
            gap: the number of samples in the gap on either side of a block.
            folds: the number of blocks; with fewer samples than that, each sample is a block.

        Returns:
            An array with a row for each row of X. The rows of samples that are not chosen are NaN.
        """
        values: Array | None = None
        for others, block in blocked_folds(self.count, folds, gap):
            here = np.intersect1d(samples, block.numpy())
            if not len(here):
                continue
            choices = np.intersect1d(samples, others.numpy()), np.setdiff1d(samples, here), samples
            found = self.forecast(next(rows for rows in choices if len(rows)))
            values = np.full_like(found, np.nan) if values is None else values
            rows = self.rows(here)
            values[rows] = found[rows]
        if values is None:
            raise ProblemError(f"two samples at least are needed to forecast one from the other; got {self.count}")
        return values

    def rows(self, samples: Array) -> Array:
        """Return the row numbers of X that belong to the samples with these numbers."""
        return samples if self.groups is None else self.groups.rows_of_groups(samples)


def forecast_by_base(base: Any, X: Any) -> Array:
    """Return the forecasts of a base for the rows X, as a float64 array in the shape that the base returns.

    Args:
        base: an object with a method ``predict``, a ``Booster`` of XGBoost, a torch module from features to values, or
            a function of X.
        X: the rows, in the form that the base accepts. A torch module gets a tensor of the module's dtype.

    Raises:
        ProblemError: the base is none of these, or its forecasts are not numbers.
    """
    if isinstance(base, type):
        raise ProblemError(f"base is the class {base.__name__}; pass an object of it, {base.__name__}(…)")
    if isinstance(base, nn.Module) and not hasattr(base, "predict"):
        return _forecast_by_base_module(base, X)
    rows = base_array(X)
    if hasattr(base, "inplace_predict") and not hasattr(base, "fit"):  # a Booster of XGBoost
        given = base.inplace_predict(rows)
    elif hasattr(base, "predict"):
        given = base.predict(rows)
    elif callable(base):
        given = base(rows)
    else:
        raise ProblemError(
            f"base must have predict, or be a torch module or a function of X; got {type(base).__name__}. Forecasts "
            "that are made already go to base_forecast="
        )
    values = np.asarray(base_array(given))
    if values.dtype.kind not in "biuf":
        raise ProblemError(f"the base forecaster must give numbers; got {type(given).__name__} of {values.dtype}")
    return values.astype(float)


def _forecast_by_base_module(base: nn.Module, X: Any) -> Array:
    """Return the forecasts of a torch module in evaluation mode, and leave the module in the mode it had before."""
    like, training = next(base.parameters(), torch.zeros(())), base.training
    rows = X if isinstance(X, Tensor) else torch.from_numpy(np.array(X, dtype=float))
    base.eval()
    try:
        with torch.no_grad():
            return base(rows.to(like)).double().cpu().numpy()
    finally:
        base.train(training)


def is_refittable_base(base: Any) -> bool:
    """Return whether the base is an estimator of scikit-learn that can be copied and fitted again."""
    if isinstance(base, type) or not all(hasattr(base, name) for name in ("fit", "predict", "get_params")):
        return False
    from sklearn.frozen import FrozenEstimator

    return not isinstance(base, FrozenEstimator)


def is_fitted_base(base: Any) -> bool:
    """Return whether an estimator of scikit-learn is fitted."""
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    try:
        check_is_fitted(base)
    except NotFittedError:
        return False
    return True


def fit_base_copy(base: Any, X: Any, y: Any) -> Any:
    """Return a copy of an estimator of scikit-learn that is fitted to X and y.

    If the estimator has a single output and y has several columns, a copy is fitted to each column.
    """
    from sklearn.base import clone
    from sklearn.multioutput import MultiOutputRegressor

    rows, targets = base_array(X), base_array(y)
    try:
        return clone(base).fit(rows, targets)
    except (ValueError, TypeError):
        if np.ndim(targets) == 1 or takes_many_outputs(base):
            raise
        return MultiOutputRegressor(base).fit(rows, targets)


def takes_many_outputs(estimator: Any) -> bool:
    """Return whether the scikit-learn tags of an estimator say that targets may have several columns."""
    if not hasattr(estimator, "__sklearn_tags__"):
        return False
    return bool(estimator.__sklearn_tags__().target_tags.multi_output)


def base_array(values: Any) -> Any:
    """Return a tensor as an array, and anything else unchanged."""
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else values
