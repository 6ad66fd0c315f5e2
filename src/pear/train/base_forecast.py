"""Forecasts of a base. A base is a forecaster that the user already has; another model corrects its forecasts."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pear.errors import ProblemError
from pear.problem.tensor_conversion import to_numpy
from pear.train.base_copies import (
    BaseCopies,
    base_array,
    fit_base_copy,
    forecast_by_base,
    is_fitted_base,
    is_refittable_base,
)
from pear.train.blocked_folds import FOLDS
from pear.train.history import join_history_notes
from pear.train.long_table import Array, LongTable

logger = logging.getLogger("pear")

_OVERFITTED = 0.9
"""A base counts as overfitted if a ratio of mean absolute errors is below this number.

The ratio is the error of the base on its training rows, divided by the error on the same rows of copies of the base,
each of which forecasts only rows that it was not fitted to.
"""


OWN, OUT_OF_FOLD = "own", "out-of-fold"
"""The names of two kinds of forecasts of training rows: by the base, and by copies that were not fitted to the row."""


@dataclass(frozen=True, eq=False)
class CorrectionOffsets:
    """Two kinds of forecasts of the training samples. A race chooses the kind that a correction is trained on.

    ``OWN`` forecasts are made by the fitted base itself. ``OUT_OF_FOLD`` forecasts are made by copies of the base, each
    of which forecasts samples that it was not fitted to.

    In each fold of the race, a copy that is fitted to the training samples of the fold takes the place of the base. The
    held-out samples are thus new to it, as later samples are new to the base.

    Attributes:
        copies: the copies of the base.
        forecasts: the forecasts of all samples, by their kind. They have the shape that the base returns, with a row
            for each row that it gets.
        gap: the number of samples on either side of a block to which the copy that forecasts the block is not fitted.
        note: a sentence that says which kind is corrected if there is no race.
    """

    copies: BaseCopies
    forecasts: dict[str, Array]
    gap: int
    note: str

    def in_fold(self, kept: Array, nested: bool) -> dict[str, Array]:
        """Return the forecasts of all samples in a fold of a race, by their kind, in the shape of ``forecasts``.

        The ``OWN`` forecasts are made by one copy, which is fitted to the training samples of the fold. The
        ``OUT_OF_FOLD`` forecasts differ from them at the training samples, which are forecast by other copies.

        Args:
            kept: the numbers of the training samples of the fold, in ascending order.
            nested: whether these other copies are fitted to training samples of the fold alone. Otherwise their
                forecasts are taken from ``forecasts``, and the copies were fitted to held-out samples, too.
        """
        own, rows = self.copies.forecast(kept), self.copies.rows(kept)
        unseen = self.copies.forecast_out_of_fold(kept, self.gap) if nested else self.forecasts[OUT_OF_FOLD]
        mixed = own.copy()
        mixed[rows] = unseen[rows]
        return {OWN: own, OUT_OF_FOLD: mixed}


class BaseForecast(NamedTuple):
    """The forecasts of the training rows that a model is trained to correct, by a base or by copies of the base.

    Attributes:
        base: the fitted base, a forecaster of the user, which forecasts all later rows.
        values: the forecasts: (N, k) if the base returns k values for each of the N rows, (N,) if it returns one.
        note: a sentence on the errors of the base; without ``offsets`` it also says what made ``values``: the base
            itself, or copies that were fitted to other rows.
        offsets: the forecasts that a race chooses from; None if it corrects ``values``.
    """

    base: Any
    values: Array
    note: str
    offsets: CorrectionOffsets | None = None


def make_base_forecast(base: Any, X: Any, y: Any, groups: LongTable | None = None, gap: int = 0) -> BaseForecast:
    """Return the forecasts of the training rows that a model is trained to correct.

    Trees and wide models forecast the rows that they were fitted to better than any other rows. A model that is trained
    to correct such forecasts learns from errors that are too small. The base's own forecasts are therefore compared
    with held-out forecasts (``held_out_base_forecast``), in which every row is new to its forecaster. If the own
    forecasts have a clearly smaller mean absolute error, ``BaseForecast.values`` are the held-out forecasts, otherwise
    the own forecasts.

    A race chooses between own and held-out forecasts by decisions, if ``BaseForecast.offsets`` holds both. It holds
    none if the base was fitted before the call and its own forecasts are about as good as the held-out ones, because
    such a base may have been fitted to other rows.

    A base that is not an estimator of scikit-learn, or is a ``FrozenEstimator``, cannot be fitted again. Its own
    forecasts are then the ``values``, and there is no choice.

    Args:
        base: a forecaster as in ``forecast_by_base``. An estimator that is not fitted is copied, and the copy is fitted
            to all rows.
        X: the training rows.
        y: the true values, with a row for each row of X: k values, (N, k), or one value, (N,).
        groups: the groups of a long table, in which several rows form a sample; the rows of a group are held out
            together. None if each row is a sample.
        gap: the number of samples on either side of a block to which the copy that forecasts the block is not fitted.
    """
    if not is_refittable_base(base):
        note = "the base's forecasts of the training rows are taken as they come; where it was fitted to these "
        note += "rows they are too good, and out-of-sample forecasts as base_forecast= make a better correction"
        logger.info(note)
        return BaseForecast(base, forecast_by_base(base, X), note)
    was_fitted, copies = is_fitted_base(base), BaseCopies(base, X, y, groups)
    fitted = base if was_fitted else fit_base_copy(base, X, y)
    own, held_out = forecast_by_base(fitted, X), copies.forecast_out_of_fold(np.arange(copies.count), gap)
    if own.shape != held_out.shape:
        raise ProblemError(
            f"the base was fitted to other values than y: it forecasts {own.shape[1:] or 'one value'} a row, and a "
            f"copy of it fitted to y {held_out.shape[1:] or 'one value'}; fit it to y, or pass one that is not fitted"
        )
    true = np.asarray(base_array(y), dtype=float)
    if true.size != own.size:
        raise ProblemError(f"the base forecasts {own.shape} values for y of shape {true.shape}")
    true = true.reshape(own.shape)
    errors = [float(np.abs(values - true).mean()) for values in (own, held_out)]
    sizes = f"(mean absolute error {errors[0]:.3g}, and {errors[1]:.3g} by copies fitted without the row)"
    overfitted = errors[0] < _OVERFITTED * errors[1]
    if overfitted:
        note, choice = f"the base forecasts its own training rows too well {sizes}", "the forecasts of the copies"
    else:
        note, choice = f"the base forecasts the training rows about as well as others {sizes}", "its own forecasts"
    offsets, choice = None, f"{choice} are corrected"
    if overfitted or not was_fitted:
        offsets = CorrectionOffsets(copies, {OWN: own, OUT_OF_FOLD: held_out}, gap, choice)
    else:
        note = join_history_notes(note, choice)
    if _is_copied_for_columns(fitted, base):
        note = f"the base takes one output, so that a copy was fitted to each of the {true.shape[1]} columns; {note}"
    logger.info(note)
    return BaseForecast(fitted, held_out if overfitted else own, note, offsets)


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
    copies = BaseCopies(base, X, y, groups)
    return copies.forecast_out_of_fold(np.arange(copies.count), folds=folds)


def _is_copied_for_columns(fitted: Any, base: Any) -> bool:
    """Return whether ``fitted`` has a copy of the base for each column of the true values."""
    return getattr(fitted, "estimator", None) is base and hasattr(fitted, "estimators_")


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


def base_forecast_for_fit(base: Any, features: Tensor, costs: Tensor, gap: int = 0) -> tuple[Tensor, BaseForecast]:
    """Return the forecasts of a base for the training samples of ``pear.fit``.

    Args:
        base: a forecaster as in ``forecast_by_base``.
        features: (N, p), p features of each sample; or (N, k, p), which the base gets as N·k rows of p features.
        costs: (N, k) the k true values of each sample.
        gap: as in ``make_base_forecast``.

    Returns:
        Two values: the forecasts (N, k), with the dtype and on the device of the costs; and the result of
        ``make_base_forecast``, from which they are taken.
    """
    rows, groups = _base_rows(features)
    made = make_base_forecast(base, rows, costs if groups is None else costs.flatten(), groups, gap)
    return base_forecast_tensor(made.values, costs, groups), made


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
    return base_forecast_tensor(forecast_by_base(base, rows), costs, groups)


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


def base_forecast_tensor(values: Array, costs: Tensor, groups: LongTable | None) -> Tensor:
    """Check forecasts of a base, and return them as a tensor with the shape, dtype and device of the costs (N, k).

    ``groups`` has the groups of a long table; it is None if each row is a sample.
    """
    shape = costs.shape[0], costs.shape[1]
    return torch.from_numpy(shape_base_forecast(values, shape, "forecasts of the base", groups)).to(costs)
