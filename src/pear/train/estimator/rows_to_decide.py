"""Rows that a fitted ``DecisionRegressor`` decides: problem, forecasts, true values, and tables of the decisions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pear.errors import ProblemError
from pear.intervals.bounded_decisions import BoundedDecisions
from pear.intervals.cost_intervals import CostIntervals
from pear.problem import Model, Problem
from pear.problem.model import problem_of_model
from pear.problem.pandas_data import check_pandas_rows, is_pandas_frame
from pear.train.estimator.training_rows import (
    Array,
    check_columns,
    forecast_offset,
    problem_to_decide,
    read_groups,
    true_values,
)
from pear.train.long_table import LongTable
from pear.train.samples.sample_rows import sample_rows_to_tensor

if TYPE_CHECKING:
    from pear.train.estimator.regressor import DecisionRegressor


def variable_names(problem: Problem | Model, columns: Sequence[Any] | None) -> tuple[Any, ...]:
    """Names of the n variables: those of a ``Model``, or else of the cost columns, or else x0, x1 and so on."""
    if isinstance(problem, Model):
        return problem.variables
    return tuple(columns) if columns is not None else tuple(f"x{i}" for i in range(problem.n))


def forecast_table(estimator: DecisionRegressor, values: np.ndarray[Any, Any], X: Any) -> Any:
    """Forecasts (N, k) of rows X in the form of the costs of ``fit``: a DataFrame, a Series, or an array."""
    if estimator._columns is not None and estimator._flat:
        return as_series(values, X, estimator._columns[0])
    if estimator._columns is not None:
        return as_table(values[:, None] if estimator._long else values, X, estimator._columns)
    return values[:, 0] if estimator._flat and not estimator._long else values


def as_table(values: np.ndarray[Any, Any], like: Any, columns: Sequence[Any]) -> Any:
    """A DataFrame with these columns, and with the index of ``like`` where that is a DataFrame."""
    import pandas

    return pandas.DataFrame(values, index=like.index if is_pandas_frame(like) else None, columns=list(columns))


def as_series(values: np.ndarray[Any, Any], like: Any, name: Any) -> Any:
    """A Series of this name, and with the index of ``like`` where that is a DataFrame."""
    return as_table(values[:, None], like, (name,))[name]


def as_group_table(values: np.ndarray[Any, Any], groups: LongTable, columns: Sequence[Any]) -> Any:
    """A DataFrame with a row for each group, whose index are the ids of the groups."""
    import pandas

    index = pandas.Index(list(groups.ids), name=groups.name)
    return pandas.DataFrame(values, index=index, columns=list(columns))


class RowsToDecide(NamedTuple):
    """Rows of a table, with a problem of their own where they have known values.

    Attributes:
        problem: the problem of these rows.
        values: (N, k) forecasts, float64, on the device of the problem.
        true: (N, k) the true values, or None.
        table: the groups of a long table; None for a table with a row for each sample.
        size: the number of rows of the table.
    """

    problem: Problem | Model
    values: Tensor
    true: Array | None
    table: LongTable | None
    size: int


def forecast_rows(estimator: DecisionRegressor, X: Any, base_forecast: Any = None, **beside: Any) -> Array:
    """Predicted values (N, k), or (N·k,) of a long table; what comes beside X must have its index."""
    from sklearn.utils.validation import check_is_fitted, validate_data

    check_is_fitted(estimator, "model_")
    check_pandas_rows({"X": X, "base_forecast": base_forecast, **beside})
    rows = validate_data(estimator, X, reset=False, dtype=[np.float64, np.float32])
    like, offset = next(estimator.model_.parameters()), forecast_offset(estimator, X, base_forecast)
    others = () if offset is None else (torch.from_numpy(offset).to(like),)
    estimator.model_.eval()
    with torch.no_grad():
        found: Array = estimator.model_(torch.from_numpy(np.array(rows)).to(like), *others).cpu().numpy()
    return found


def read_rows_to_decide(
    estimator: DecisionRegressor, predicted: Array, y: Any, problem: Problem | Model | None, groups: Any, known: Any
) -> RowsToDecide:
    """Bring forecasts, true values and known data of the same rows together.

    Args:
        estimator: the fitted estimator.
        predicted: (N, k), or (N·k,) of a long table, its forecasts.
        y: the true values, or None.
        problem: the problem of these rows, where they have fields of their own.
        groups: the groups of a long table, or None.
        known: their known data, or None.
    """
    table = read_groups(estimator, groups, len(predicted))
    values = predicted if table is None else table.gather(predicted)
    own = problem_to_decide(estimator.problem, problem, known, values)
    if y is not None:
        check_columns(estimator, y)
    true = None if y is None else true_values(estimator, y, table)
    return RowsToDecide(own, sample_rows_to_tensor(own, values), true, table, len(predicted))


def decision_table(estimator: DecisionRegressor, decisions: Array, X: Any, table: LongTable | None) -> Any:
    """Decisions (N, n) as a DataFrame where X is one or the costs were one; otherwise the array."""
    if not is_pandas_frame(X) and estimator._columns is None:
        return decisions
    if table is not None:
        return as_group_table(decisions, table, variable_names(estimator.problem, None))
    return as_table(decisions, X, variable_names(estimator.problem, estimator._columns))


def decide_within_bounds(estimator: DecisionRegressor, X: Any, rows: RowsToDecide, level: float) -> BoundedDecisions:
    """Decisions with bounds on their costs.

    Raises:
        ProblemError: the estimator is not calibrated, or with too few rows for this level.
    """
    intervals: CostIntervals | None = getattr(estimator, "intervals_", None)
    if intervals is None:
        needed = CostIntervals(estimator.problem).rule.samples_needed(level, two_sided=True)
        raise ProblemError(
            f"decide(interval={level:g}) needs decisions whose costs are known; call calibrate(X, C) before, or pear "
            f"calibrate, with at least {needed} rows that come after those of fit"
        )
    found = intervals.bounds(rows.values, level, problem=rows.problem)
    table = decision_table(estimator, found.decisions, X, rows.table)
    names = variable_names(estimator.problem, None if rows.table is not None else estimator._columns)
    return BoundedDecisions(table, found.planned, found.lower, found.upper, found.level, found.of, names)


def calibrated_intervals(
    estimator: DecisionRegressor, rows: RowsToDecide, intervals: CostIntervals | None, append: bool
) -> CostIntervals:
    """The intervals of an estimator, calibrated with these rows.

    Args:
        estimator: the fitted estimator; its own intervals go on where ``append`` asks for it.
        rows: with true values.
        intervals: how bounds are made, or None for the estimator's own way or the default.
        append: whether earlier rows are kept.

    Raises:
        ProblemError: the intervals are those of another problem, or there is nothing to append to.
    """
    own: CostIntervals | None = getattr(estimator, "intervals_", None)
    if append and (own is None or intervals is not None):
        raise ProblemError("append=True adds rows to an earlier calibration; there is none" if own is None else (
            "append=True goes on with the intervals of the earlier calibration; leave intervals= out"
        ))  # fmt: skip
    made = own if append and own is not None else intervals or CostIntervals(estimator.problem)
    if not isinstance(made, CostIntervals):
        raise ProblemError(f"intervals must be pear.CostIntervals(problem, …); got {type(made).__name__}")
    if problem_of_model(made.problem).n != problem_of_model(estimator.problem).n:
        raise ProblemError("intervals are those of another problem; pass the one that the estimator has")
    assert rows.true is not None
    return made.calibrate(rows.values, np.asarray(rows.true, dtype=np.float64), problem=rows.problem, append=append)
