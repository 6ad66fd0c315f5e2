"""The forecasts that a ``DecisionRegressor`` corrects: those of its ``base``, or those passed as ``base_forecast``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from pear.errors import ProblemError
from pear.problem.model import model_input_count
from pear.problem.pandas_data import check_pandas_columns, pandas_columns
from pear.train.base_copies import forecast_by_base
from pear.train.base_forecast import CorrectionOffsets, make_base_forecast, shape_base_forecast
from pear.train.correction import Correction
from pear.train.estimator.networks import StandardisedNetwork
from pear.train.long_table import Array, LongTable
from pear.train.samples.sample_rows import count_sample_rows

if TYPE_CHECKING:
    from pear.train.estimator.regressor import DecisionRegressor


def base_offset(estimator: DecisionRegressor, X: Any, table: Any, groups: LongTable | None = None) -> Array | None:
    """Return the forecasts that a fitted estimator corrects for the rows X; None if it corrects nothing.

    Args:
        estimator: the fitted estimator.
        X: the rows.
        table: the argument ``base_forecast`` of the call, or None.
        groups: the groups of a long table, which has a row for each predicted value. None leaves the forecasts in the
            order of the rows.

    Returns:
        (N, k) forecasts of k values for N samples; for a long table without ``groups``, (N·k,).
    """
    flat = estimator._long
    size = 1 if flat else model_input_count(estimator.problem)
    values = _base_offset_values(estimator, X, table)
    if values is None:
        return None
    offset = shape_base_forecast(
        values, (count_sample_rows(X), size), "forecasts of the base" if table is None else "base_forecast"
    )
    offset = offset[:, 0] if flat else offset
    return offset if groups is None else groups.gather(offset)


def fit_base_offset(
    estimator: DecisionRegressor, X: Any, y: Any, costs: Tensor, groups: LongTable | None, table: Any
) -> tuple[Array | None, CorrectionOffsets | None]:
    """Return the forecasts of the training rows that an estimator corrects.

    A base that is not fitted is copied, and the copy is fitted to the training rows.

    Args:
        estimator: the estimator, in which the fitted base and a note on it are stored.
        X: the training rows.
        y: the true values of the rows, as in ``fit``.
        costs: (N, k) the k true values of each sample.
        groups: the groups of a long table, or None.
        table: the argument ``base_forecast``, or None.

    Returns:
        Two values: the forecasts (N, k), or None if the estimator corrects nothing; and the forecasts that a race
        chooses from, or None if there is no such choice.
    """
    estimator._corrects, estimator._base_note = None, ""
    shape = (costs.shape[0], costs.shape[1])
    if estimator.base is not None and table is not None:
        raise ProblemError("base_forecast= holds the forecasts of a base that is not here; pass it without base=")
    if table is not None:
        estimator._corrects = "table"
        estimator._base_note = "base_forecast is taken as it comes; its rows should be new to its forecaster"
        return shape_base_forecast(_check_offset_columns(estimator, table), shape, "base_forecast", groups), None
    if estimator.base is None:
        return None, None
    made = make_base_forecast(estimator.base, X, y, groups, estimator.gap)
    estimator._corrects, estimator.base_, estimator._base_note = "base", made.base, made.note
    return shape_base_forecast(made.values, shape, "forecasts of the base", groups), made.offsets


def leave_base_out(estimator: DecisionRegressor, model: StandardisedNetwork) -> StandardisedNetwork:
    """Return the trained model of an estimator. If a race has left the base out, the model has one input."""
    scaled, network = model
    if not (isinstance(network, Correction) and network.alone):
        return model
    estimator._corrects = None
    return StandardisedNetwork(scaled, network.network)


def _base_offset_values(estimator: DecisionRegressor, X: Any, table: Any) -> Any:
    """Return the forecasts that a fitted estimator corrects, in the shape they come in; None if it corrects nothing."""
    if estimator._corrects == "table":
        if table is None:
            raise ProblemError("fit was given base_forecast=, forecasts that are corrected; pass those of these rows")
        return _check_offset_columns(estimator, table)
    if table is not None:
        raise ProblemError("fit was given no base_forecast=; leave it out here as well")
    return None if estimator._corrects is None else forecast_by_base(estimator.base_, X)


def _check_offset_columns(estimator: DecisionRegressor, table: Any) -> Any:
    """Return a table of forecasts unchanged; raise ProblemError if the names of its columns are not those of y."""
    columns = pandas_columns(table)
    if columns is not None and not estimator._long:
        check_pandas_columns(estimator.problem, columns, "base_forecast")
        if estimator._columns is not None and columns != estimator._columns:
            raise ProblemError(
                f"the columns of base_forecast must be those of y, {list(estimator._columns)}; got {list(columns)}"
            )
    return table
