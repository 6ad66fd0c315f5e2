"""``RowsToDecide``: rows for which a fitted ``DecisionRegressor`` decides, with their problem and their forecasts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from torch import Tensor

from pear.errors import ProblemError
from pear.intervals.bounded_decisions import BoundedDecisions
from pear.intervals.cost_intervals import CostIntervals
from pear.problem import Model, Problem
from pear.problem.known_samples import fill_known_samples
from pear.problem.model import model_input_count, problem_of_model
from pear.problem.pandas_data import check_pandas_rows
from pear.problem.sample_keys import count_keyed_samples
from pear.problem.tensor_conversion import to_numpy
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
    """Rows of a table for which a fitted estimator decides.

    Attributes:
        problem: the problem of these rows, including their known values.
        values: (N, k) the forecasts of k values for N samples, in float64, on the device of the problem.
        true: (N, k) the true values, or None.
        table: the groups of a long table, which has k rows for each sample; None for a table with one row for each.
        size: the number of rows of the table.
    """

    problem: Problem | Model
    values: Tensor
    true: Array | None
    table: LongTable | None
    size: int

    def decide_within_bounds(self, estimator: DecisionRegressor, X: Any, level: float) -> BoundedDecisions:
        """Return the decisions for these rows, with bounds on the cost of each decision.

        Args:
            estimator: the calibrated estimator.
            X: the rows. If X is a DataFrame, the decisions get its index.
            level: the probability with which the cost of a decision lies within its bounds.

        Raises:
            ProblemError: the estimator is not calibrated, or was calibrated on too few rows for this level.
        """
        intervals: CostIntervals | None = getattr(estimator, "intervals_", None)
        if intervals is None:
            needed = CostIntervals(estimator.problem).rule.samples_needed(level, two_sided=True)
            raise ProblemError(
                f"decide(interval={level:g}) needs decisions whose costs are known; call calibrate(X, C) before, or "
                f"pear calibrate, with at least {needed} rows that come after those of fit"
            )
        found = intervals.bounds(self.values, level, problem=self.problem)
        table = decision_table(estimator, found.decisions, X, self.table)
        names = decision_columns(estimator.problem, None if self.table is not None else estimator._columns)
        return BoundedDecisions(table, found.planned, found.lower, found.upper, found.level, found.of, names)

    def calibrate_intervals(
        self, estimator: DecisionRegressor, intervals: CostIntervals | None, append: bool
    ) -> CostIntervals:
        """Return the cost intervals of an estimator, calibrated on these rows, which have true values.

        Args:
            estimator: the fitted estimator.
            intervals: the cost intervals to calibrate. None stands for those of the estimator if ``append`` is true,
                and for new ones otherwise.
            append: whether the rows of earlier calibrations are kept.

        Raises:
            ProblemError: ``intervals`` has another type, or belongs to another problem. With ``append``: there is no
                earlier calibration, or ``intervals`` is given.
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
        assert self.true is not None
        return made.calibrate(self.values, np.asarray(self.true, dtype=np.float64), problem=self.problem, append=append)


def forecast_rows_to_decide(estimator: DecisionRegressor, X: Any, base_forecast: Any = None, **beside: Any) -> Array:
    """Return the forecasts of a fitted estimator, (N, k) for N rows.

    A long table has a row for each of the k values of a sample. Its forecasts are an array (N·k,).

    Args:
        estimator: the fitted estimator.
        X: the rows.
        base_forecast: the forecasts to correct, if such forecasts were passed to ``fit``; otherwise None.
        **beside: other tables of the same rows. Only their pandas indices are used: they must equal that of X.
    """
    if not hasattr(estimator, "model_"):
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(estimator, "model_")  # raises an error
    check_pandas_rows({"X": X, "base_forecast": base_forecast, **beside})
    X = to_numpy(X, "X") if np.ma.is_masked(X) else X
    rows = _check_features(estimator, X)
    return estimator.model_.forecast(rows, base_offset(estimator, X, base_forecast))


def _check_features(estimator: DecisionRegressor, X: Any) -> Array:
    """Return rows X as an array (N, p) of floats, checked by scikit-learn.

    The checks of scikit-learn take longer than the forecast of one row. An array that would certainly pass them is
    returned without them.
    """
    plain = type(X) is np.ndarray and X.dtype in (np.float64, np.float32) and X.ndim == 2 and len(X) > 0
    plain = plain and X.shape[1] == estimator.n_features_in_ and not hasattr(estimator, "feature_names_in_")
    if plain and bool(np.isfinite(X).all()):
        return X
    from sklearn.utils.validation import validate_data

    checked: Array = validate_data(estimator, X, reset=False, dtype=[np.float64, np.float32])
    return checked


def read_rows_to_decide(
    estimator: DecisionRegressor, predicted: Array, y: Any, problem: Problem | Model | None, groups: Any, known: Any
) -> RowsToDecide:
    """Return rows to decide, from their forecasts, true values and known values.

    Args:
        estimator: the fitted estimator.
        predicted: the forecasts: k values for each row, (N, k); for a long table one value for each row, (N·k,).
        y: the true values, or None.
        problem: the problem of these rows; None for that of the estimator.
        groups: the ids of the groups of a long table, or None.
        known: the known values of the rows, or None.
    """
    table = read_table_groups(estimator, groups, len(predicted))
    values = predicted if table is None else table.gather(predicted)
    own = problem_of_rows_to_decide(estimator.problem, problem, known, values)
    if y is not None:
        check_table_columns(estimator, y)
    true = None if y is None else read_table_values(estimator, y, table)
    return RowsToDecide(own, sample_rows_to_tensor(own, values), true, table, len(predicted))


def problem_of_rows_to_decide(
    own: Problem | Model, given: Problem | Model | None, known: Any, values: Any
) -> Problem | Model:
    """Return the problem of some rows, with their known values filled in.

    Args:
        own: the problem of the estimator.
        given: the problem that the user gives for these rows, or None for that of the estimator.
        known: the known values of the rows, or None.
        values: (N, k), k predicted values of each row.

    Raises:
        ProblemError: the problem of the estimator has its own data for each sample of ``fit``, and the user gives no
            other problem; or the two problems need different numbers of values.
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
