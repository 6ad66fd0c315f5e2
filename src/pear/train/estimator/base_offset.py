"""The forecasts of a base forecaster that a ``DecisionRegressor`` corrects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from pear.errors import ProblemError
from pear.problem.model import model_input_count
from pear.problem.pandas_data import check_pandas_columns, pandas_columns
from pear.train.base_forecast import forecast_by_base, make_base_forecast, shape_base_forecast
from pear.train.long_table import Array, LongTable
from pear.train.samples.sample_rows import count_sample_rows

if TYPE_CHECKING:
    from pear.train.estimator.regressor import DecisionRegressor


def base_offset(estimator: DecisionRegressor, X: Any, table: Any) -> Array | None:
    """Forecasts of the base for the rows of X: (N, k), or a value for each row of a long table; None without a base.

    Args:
        estimator: the fitted estimator.
        X: rows.
        table: ``base_forecast``, where ``fit`` was given it.
    """
    flat = estimator._long
    size = 1 if flat else model_input_count(estimator.problem)
    values = _base_offset_values(estimator, X, table)
    if values is None:
        return None
    offset = shape_base_forecast(
        values, (count_sample_rows(X), size), "forecasts of the base" if table is None else "base_forecast"
    )
    return offset[:, 0] if flat else offset


def grouped_base_offset(estimator: DecisionRegressor, X: Any, table: Any, groups: LongTable | None) -> Array | None:
    """Forecasts of the base for rows of a later call, in the shape of the costs; None without a base."""
    values = base_offset(estimator, X, table)
    return values if values is None or groups is None else groups.gather(values)


def fit_base_offset(
    estimator: DecisionRegressor, X: Any, y: Any, costs: Tensor, groups: LongTable | None, table: Any
) -> Array | None:
    """Forecasts of the base for the rows of a fresh training, in the shape of the costs; None without a base."""
    estimator._corrects, estimator._base_note = None, ""
    shape = (costs.shape[0], costs.shape[1])
    if estimator.base is not None and table is not None:
        raise ProblemError("base_forecast= holds the forecasts of a base that is not here; pass it without base=")
    if table is not None:
        estimator._corrects = "table"
        estimator._base_note = "base_forecast is taken as it comes; its rows should be new to its forecaster"
        return shape_base_forecast(_check_offset_columns(estimator, table), shape, "base_forecast", groups)
    if estimator.base is None:
        return None
    made = make_base_forecast(estimator.base, X, y, groups)
    estimator._corrects, estimator.base_, estimator._base_note = "base", made.base, made.note
    return shape_base_forecast(made.values, shape, "forecasts of the base", groups)


def _base_offset_values(estimator: DecisionRegressor, X: Any, table: Any) -> Any:
    """Forecasts of the base as they come; None without a base."""
    if estimator._corrects == "table":
        if table is None:
            raise ProblemError("fit was given base_forecast=, forecasts that are corrected; pass those of these rows")
        return _check_offset_columns(estimator, table)
    if table is not None:
        raise ProblemError("fit was given no base_forecast=; leave it out here as well")
    return None if estimator._corrects is None else forecast_by_base(estimator.base_, X)


def _check_offset_columns(estimator: DecisionRegressor, table: Any) -> Any:
    """A table of forecasts, whose columns must be those of y where both have names."""
    columns = pandas_columns(table)
    if columns is not None and not estimator._long:
        check_pandas_columns(estimator.problem, columns, "base_forecast")
        if estimator._columns is not None and columns != estimator._columns:
            raise ProblemError(
                f"the columns of base_forecast must be those of y, {list(estimator._columns)}; got {list(columns)}"
            )
    return table
