"""Forecasts of a base. A base is a forecaster that the user already has; another model corrects its forecasts."""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from pear.errors import ProblemError
from pear.problem.tensor_conversion import to_numpy
from pear.train.long_table import Array, LongTable
from pear.train.samples.sample_rows import count_sample_rows, take_sample_rows

logger = logging.getLogger("pear")

FOLDS = 5
"""The default number of blocks of training rows. Each block is forecast by a copy of the base fitted to the others."""

_OVERFITTED = 0.9
"""A base counts as overfitted if a ratio of mean absolute errors is below this number.

The ratio is the error of the base on its training rows, divided by the error on the same rows of copies of the base,
each of which forecasts only rows that it was not fitted to.
"""


class BaseForecast(NamedTuple):
    """Forecasts of training rows that a base has made; another model is trained to correct them.

    Attributes:
        base: the fitted base, a forecaster of the user, which forecasts all later rows.
        values: the forecasts: (N, k) if the base returns k values for each of the N rows, (N,) if it returns one.
        note: a sentence that says what made ``values``: the base itself, or copies that were fitted to other rows.
    """

    base: Any
    values: Array
    note: str


def forecast_by_base(base: Any, X: Any) -> Array:
    """Return the forecasts of a base for the rows X, as a float64 array in the shape that the base returns.

    Args:
        base: an object with a method ``predict``, a torch module from features to values, or a function of X.
        X: the rows, in the form that the base accepts. A torch module gets a tensor of the module's dtype.

    Raises:
        ProblemError: the base is none of these, or its forecasts are not numbers.
    """
    if isinstance(base, type):
        raise ProblemError(f"base is the class {base.__name__}; pass an object of it, {base.__name__}(…)")
    if isinstance(base, nn.Module) and not hasattr(base, "predict"):
        return _forecast_by_base_module(base, X)
    rows = _base_array(X)
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
    values = np.asarray(_base_array(given))
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


def make_base_forecast(base: Any, X: Any, y: Any, groups: LongTable | None = None) -> BaseForecast:
    """Return the forecasts of the training rows that a model is trained to correct: the base's own or held-out ones.

    Trees and wide models forecast the rows that they were fitted to better than any other rows. A model that is trained
    to correct such forecasts learns from errors that are too small. The forecasts of the base are therefore compared
    with those of ``held_out_base_forecast``, in which every row is new to its forecaster. If the base has a clearly
    smaller mean absolute error, the held-out forecasts are returned, otherwise those of the base. A base that is not an
    estimator of scikit-learn, or is a ``FrozenEstimator``, cannot be fitted again; its own forecasts are returned.

    Args:
        base: a forecaster as in ``forecast_by_base``. An estimator that is not fitted is copied, and the copy is fitted
            to all rows.
        X: the training rows.
        y: the true values, with a row for each row of X: k values, (N, k), or one value, (N,).
        groups: the groups of a long table, in which several rows form a sample; the rows of a group are held out
            together. None if each row is a sample.
    """
    if not is_refittable_base(base):
        note = "the base's forecasts of the training rows are taken as they come; where it was fitted to these "
        note += "rows they are too good, and out-of-sample forecasts as base_forecast= make a better correction"
        logger.info(note)
        return BaseForecast(base, forecast_by_base(base, X), note)
    fitted = base if _is_fitted_base(base) else _fit_base_copy(base, X, y)
    own, held_out = forecast_by_base(fitted, X), held_out_base_forecast(base, X, y, groups)
    if own.shape != held_out.shape:
        raise ProblemError(
            f"the base was fitted to other values than y: it forecasts {own.shape[1:] or 'one value'} a row, and a "
            f"copy of it fitted to y {held_out.shape[1:] or 'one value'}; fit it to y, or pass one that is not fitted"
        )
    true = np.asarray(_base_array(y), dtype=float)
    if true.size != own.size:
        raise ProblemError(f"the base forecasts {own.shape} values for y of shape {true.shape}")
    true = true.reshape(own.shape)
    errors = [float(np.abs(values - true).mean()) for values in (own, held_out)]
    sizes = f"(mean absolute error {errors[0]:.3g}, and {errors[1]:.3g} by copies fitted without the row)"
    if errors[0] < _OVERFITTED * errors[1]:
        note = f"the base forecasts its own training rows too well {sizes}; the forecasts of the copies are corrected"
        values = held_out
    else:
        note = f"the base forecasts the training rows about as well as others {sizes}; its own forecasts are corrected"
        values = own
    if _is_copied_for_columns(fitted, base):
        note = f"the base takes one output, so that a copy was fitted to each of the {true.shape[1]} columns; {note}"
    logger.info(note)
    return BaseForecast(fitted, values, note)


def held_out_base_forecast(base: Any, X: Any, y: Any, groups: LongTable | None = None, folds: int = FOLDS) -> Array:
    """Return forecasts of all rows, in which every row is forecast by a copy of the base that was not fitted to it.

    The samples are split into blocks of consecutive samples. Each block is forecast by a copy of the base that is
    fitted to the other blocks.

    Args:
        base: an estimator of scikit-learn, fitted or not. It is not changed.
        X, y, groups: as in ``make_base_forecast``.
        folds: the number of blocks; with fewer samples than that, each sample is a block.

    Example:
        >>> from sklearn.linear_model import Ridge
        >>> X, y = np.arange(10.0)[:, None], np.arange(10.0)
        >>> made, by_hand = held_out_base_forecast(Ridge(), X, y), Ridge().fit(X[2:], y[2:]).predict(X[:2])
        >>> bool((made[:2] == by_hand).all())
        True
    """
    count = count_sample_rows(X)
    samples = count if groups is None else len(groups)
    if samples < 2:
        raise ProblemError(f"two samples at least are needed to forecast one from the other; got {samples}")
    values: Array | None = None
    for block in np.array_split(np.arange(samples), min(folds, samples)):
        others = np.setdiff1d(np.arange(samples), block)
        here, there = (part if groups is None else groups.rows_of_groups(part) for part in (block, others))
        found = forecast_by_base(
            _fit_base_copy(base, take_sample_rows(X, there), take_sample_rows(y, there)), take_sample_rows(X, here)
        )
        values = np.full((count, *found.shape[1:]), np.nan) if values is None else values
        values[here] = found
    assert values is not None
    return values


def is_refittable_base(base: Any) -> bool:
    """Return whether the base is an estimator of scikit-learn that can be copied and fitted again."""
    if isinstance(base, type) or not all(hasattr(base, name) for name in ("fit", "predict", "get_params")):
        return False
    from sklearn.frozen import FrozenEstimator

    return not isinstance(base, FrozenEstimator)


def _is_copied_for_columns(fitted: Any, base: Any) -> bool:
    """Return whether ``fitted`` has a copy of the base for each column of the true values."""
    return getattr(fitted, "estimator", None) is base and hasattr(fitted, "estimators_")


def _is_fitted_base(base: Any) -> bool:
    """Return whether an estimator of scikit-learn is fitted."""
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    try:
        check_is_fitted(base)
    except NotFittedError:
        return False
    return True


def _fit_base_copy(base: Any, X: Any, y: Any) -> Any:
    """Return a copy of an estimator of scikit-learn that is fitted to X and y.

    If the estimator has a single output and y has several columns, a copy is fitted to each column.
    """
    from sklearn.base import clone
    from sklearn.multioutput import MultiOutputRegressor

    rows, targets = _base_array(X), _base_array(y)
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


def _base_array(values: Any) -> Any:
    """Return a tensor as an array, and anything else unchanged."""
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else values


def shape_base_forecast(values: Any, shape: tuple[int, int], name: str, groups: LongTable | None = None) -> Array:
    """Check forecasts of a base, and return them in the shape (N, k) of the costs.

    Args:
        values: forecasts of k values for N samples: (N, k), or (N,) if k is 1. For a long table, which has a row for
            each of the N·k values, (N·k,) or (N·k, 1), in the order of these rows.
        shape: (N, k), the shape of the costs.
        name: the name of the forecasts in error messages.
        groups: the groups of a long table; None if each row is a sample.

    Raises:
        ProblemError: the forecasts have another shape, or one of them is not finite.
    """
    given, flat = to_numpy(values, name).astype(float), groups is not None or shape[1] == 1
    wanted = (shape[0] * shape[1],) if flat else shape
    found = given[:, 0] if flat and given.ndim == 2 and given.shape[1] == 1 else given
    if found.shape != wanted:
        remedy = (
            f". For a forecaster of single values, let X have a row for each of the {shape[1]} values of a sample and "
            "pass groups=, or put scikit-learn's MultiOutputRegressor around it"
        )
        single = groups is None and given.shape == (shape[0],)
        raise ProblemError(f"{name} must have shape {wanted}; got {given.shape}{remedy if single else ''}")
    if not np.isfinite(found).all():
        row = int(np.argwhere(~np.isfinite(found))[0, 0])
        raise ProblemError(f"{name} must be finite; row {row} is not: drop the row, or fill its forecast")
    return groups.gather(found) if groups is not None else found.reshape(shape)


def base_forecast_for_fit(base: Any, features: Tensor, costs: Tensor) -> tuple[Tensor, BaseForecast]:
    """Return the forecasts of a base for the training samples of ``pear.fit``.

    Args:
        base: a forecaster as in ``forecast_by_base``.
        features: (N, p), p features of each sample; or (N, k, p), which the base gets as N·k rows of p features.
        costs: (N, k) the k true values of each sample.

    Returns:
        Two values: the forecasts (N, k), with the dtype and on the device of the costs; and the result of
        ``make_base_forecast``, from which they are taken.
    """
    rows, groups = _base_rows(features)
    made = make_base_forecast(base, rows, costs if groups is None else costs.flatten(), groups)
    return _base_forecast_tensor(made.values, costs, groups), made


def base_forecast_for_validation(base: Any, features: Tensor, costs: Tensor) -> Tensor:
    """Return the forecasts of a fitted base for the validation samples of ``pear.fit``.

    Args:
        base: the fitted base.
        features: the p features, (N, p) or (N, k, p), as in ``base_forecast_for_fit``.
        costs: (N, k) the k true values of each sample. The forecasts get the shape, dtype and device of the costs.

    Returns:
        (N, k) forecasts.
    """
    rows, groups = _base_rows(features)
    return _base_forecast_tensor(forecast_by_base(base, rows), costs, groups)


def _base_rows(features: Tensor) -> tuple[Tensor, LongTable | None]:
    """Return the rows that a base gets, and the groups of rows that form a sample.

    Features (N, k, p) become N·k rows of p features, in N groups of k rows. Features (N, p) are returned unchanged, and
    the groups are None, because each row is a sample.
    """
    if features.dim() != 3:
        return features, None
    count, size = features.shape[:2]
    rows = np.arange(count * size).reshape(count, size)
    return features.flatten(0, 1), LongTable(tuple(range(count)), rows)


def _base_forecast_tensor(values: Array, costs: Tensor, groups: LongTable | None) -> Tensor:
    """Check forecasts of a base, and return them as a tensor with the shape, dtype and device of the costs (N, k).

    ``groups`` has the groups of a long table; it is None if each row is a sample.
    """
    shape = costs.shape[0], costs.shape[1]
    return torch.from_numpy(shape_base_forecast(values, shape, "forecasts of the base", groups)).to(costs)
