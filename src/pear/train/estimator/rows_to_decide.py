"""Rows that a fitted ``DecisionRegressor`` decides: problem, forecasts, true values, and tables of the decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pear.errors import ProblemError
from pear.intervals.bounded_decisions import BoundedDecisions
from pear.intervals.cost_intervals import CostIntervals
from pear.problem import Model, Problem
from pear.problem.known_samples import fill_known_samples
from pear.problem.model import model_input_count, problem_of_model
from pear.problem.pandas_data import check_pandas_rows
from pear.problem.sample_keys import count_keyed_samples
from pear.train.estimator.base_offset import base_offset
from pear.train.estimator.estimator_tables import (
    check_table_columns,
    decision_columns,
    decision_table,
    read_table_groups,
    read_table_values,
)
from pear.train.long_table import Array, LongTable
from pear.train.samples.sample_rows import sample_rows_to_tensor

if TYPE_CHECKING:
    from pear.train.estimator.regressor import DecisionRegressor


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


def forecast_rows_to_decide(estimator: DecisionRegressor, X: Any, base_forecast: Any = None, **beside: Any) -> Array:
    """Predicted values (N, k), or (N·k,) of a long table; what comes beside X must have its index."""
    from sklearn.utils.validation import check_is_fitted, validate_data

    check_is_fitted(estimator, "model_")
    check_pandas_rows({"X": X, "base_forecast": base_forecast, **beside})
    rows = validate_data(estimator, X, reset=False, dtype=[np.float64, np.float32])
    like, offset = next(estimator.model_.parameters()), base_offset(estimator, X, base_forecast)
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
    table = read_table_groups(estimator, groups, len(predicted))
    values = predicted if table is None else table.gather(predicted)
    own = problem_to_decide(estimator.problem, problem, known, values)
    if y is not None:
        check_table_columns(estimator, y)
    true = None if y is None else read_table_values(estimator, y, table)
    return RowsToDecide(own, sample_rows_to_tensor(own, values), true, table, len(predicted))


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
    names = decision_columns(estimator.problem, None if rows.table is not None else estimator._columns)
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


def problem_to_decide(own: Problem | Model, given: Problem | Model | None, known: Any, values: Any) -> Problem | Model:
    """The problem to decide some rows by: the estimator's or the caller's, with the known data of these rows.

    Args:
        own: the problem of the estimator.
        given: the caller's, for rows with fields of their own, or None.
        known: the known data of the rows, or None.
        values: (N, k) predicted values of the rows.
    """
    rows = count_keyed_samples(own)
    if given is None and rows is not None:
        raise ProblemError(
            f"the problem has fields of its own for the {rows} rows of fit, and nobody says what those of "
            "other rows are; pass problem=…, with a row for each of X"
        )
    if given is not None and model_input_count(given) != model_input_count(own):
        raise ProblemError(
            f"the problem given takes {model_input_count(given)} values, and {model_input_count(own)} are predicted"
        )
    found: Problem | Model = fill_known_samples(own if given is None else given, known, values)
    return found
