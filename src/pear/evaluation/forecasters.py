"""What ``walk_forward`` compares: estimators, functions and tables of forecasts, behind one interface."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from pear.errors import ProblemError
from pear.evaluation.time_splits import Fold, Rows
from pear.problem import Model, Problem
from pear.problem.keys_and_columns import check_same_order, is_frame
from pear.train.estimator.regret_scorer import as_values
from pear.train.validation import own_rows

Array = NDArray[np.float64]

_REFUSALS = (ValueError, TypeError)
"""What estimators for a single output raise for targets of several columns; LightGBM raises either of them."""


class Samples:
    """Features and true values of all rows, in the types that forecasters get them in.

    Args:
        problem: the decision problem.
        X: (N, p) features: an array, a DataFrame, a tensor, a sparse matrix or lists.
        C: (N, k) what came true, or (N,) where k is 1.

    Attributes:
        true: (N, k) float64.
        labels: (N,) the index of X or of C where one is a DataFrame, dates as local times; otherwise the row numbers.

    Raises:
        ProblemError: numbers of rows or columns do not fit, a value is not finite, or dates are not in order.
    """

    def __init__(self, problem: Problem | Model, X: Any, C: Any) -> None:
        self.problem, self.X, self.C = problem, _as_rows(X), _as_rows(C)
        self.true = as_values(problem, self.C, "C").astype(np.float64)
        check_same_order(problem, self.C, self.C)
        count = self.X.shape[0]
        if count != len(self.true):
            raise ProblemError(f"X has {count} rows and C {len(self.true)}; each row of X needs its row of C")
        unusable = np.flatnonzero(~np.isfinite(self.true).all(1))
        if len(unusable):
            raise ProblemError(f"C is not finite in row {unusable[0]} and {len(unusable) - 1} others; leave them out")
        own = own_rows(problem)
        if own not in (None, count):
            raise ProblemError(f"the problem has fields of its own for {own} samples, and X has {count} rows")
        if is_frame(self.X) and is_frame(self.C) and not self.X.index.equals(self.C.index):
            raise ProblemError(
                "X and C have different indexes, and rows are paired by their place; pass C.loc[X.index]"
            )
        for name, table in (("X", self.X), ("C", self.C)):
            _check_dates(name, table)
        tables = [table for table in (self.X, self.C) if is_frame(table)]
        self.labels = _plain_labels(tables[0].index) if tables else np.arange(count)

    def __len__(self) -> int:
        return len(self.true)

    def features(self, rows: Rows) -> Any:
        """Return these rows of X, in its own type."""
        return self.X.iloc[rows] if is_frame(self.X) else self.X[rows]

    def targets(self, rows: Rows) -> Any:
        """Return these rows of C, in its own type; of shape (N,) where k is 1."""
        if not is_frame(self.C):
            return self.true[rows, 0] if self.true.shape[1] == 1 else self.true[rows]
        return self.C.iloc[rows, 0] if self.C.shape[1] == 1 else self.C.iloc[rows]


class Forecaster(Protocol):
    """Something that forecasts the test rows of a fold."""

    def forecast(self, samples: Samples, fold: Fold) -> Any:
        """Return forecasts of the test rows, (T, k), learnt from the training rows alone."""


class EstimatorForecaster:
    """An estimator with ``fit`` and ``predict``; a fresh copy is trained on each fold.

    Attributes:
        models_per_fold: 1, or k where the estimator takes a single output and each column gets a copy of its own.
    """

    def __init__(self, estimator: Any) -> None:
        self.estimator, self.models_per_fold = estimator, 1

    def forecast(self, samples: Samples, fold: Fold) -> Any:
        """Train copies on the training rows and predict the test rows.

        An estimator that refuses targets of k columns, with a ValueError or TypeError, is trained for each column.
        """
        features, targets, ahead = (
            samples.features(fold.train),
            samples.targets(fold.train),
            samples.features(fold.test),
        )
        fresh = self._copy(samples, fold)
        columns = samples.true.shape[1]
        if self.models_per_fold > 1:
            return self._forecast_columns(samples, fold, None)
        try:
            fitted = fresh.fit(features, targets)
        except _REFUSALS as refused:
            if columns == 1 or says_many_outputs(self.estimator):
                raise
            found = self._forecast_columns(samples, fold, refused)
            self.models_per_fold = columns
            return found
        if _was_interrupted(fitted):
            raise KeyboardInterrupt
        return fitted.predict(ahead)

    def _forecast_columns(self, samples: Samples, fold: Fold, refused: Exception | None) -> Array:
        """Train a copy for each column; ``refused`` is what the estimator said to all columns together."""
        features, ahead = samples.features(fold.train), samples.features(fold.test)
        found = []
        for j in range(samples.true.shape[1]):
            try:
                fitted = self._copy(samples, fold).fit(features, samples.true[fold.train, j])
            except _REFUSALS as error:
                raise error from refused
            found.append(np.asarray(fitted.predict(ahead), dtype=np.float64).reshape(len(fold.test)))
        return np.stack(found, axis=1)

    def _copy(self, samples: Samples, fold: Fold) -> Any:
        """Return an untrained copy; a problem among its parameters that has a row per sample gets the training rows."""
        if not hasattr(self.estimator, "get_params"):
            return copy.deepcopy(self.estimator)
        from sklearn.base import clone

        fresh = clone(self.estimator)
        for name, value in fresh.get_params(deep=True).items():
            if isinstance(value, (Problem, Model)) and own_rows(value) == len(samples):
                fresh.set_params(**{name: value[fold.train.tolist()]})
        return fresh


class FunctionForecaster:
    """A function from training features, training costs and test features to forecasts."""

    def __init__(self, function: Callable[[Any, Any, Any], Any]) -> None:
        self.function = function

    def forecast(self, samples: Samples, fold: Fold) -> Any:
        """Call the function with the rows of the fold."""
        return self.function(samples.features(fold.train), samples.targets(fold.train), samples.features(fold.test))


class TableForecaster:
    """Forecasts (N, k) that were made elsewhere; rows that are never tested may hold NaN."""

    def __init__(self, name: str, table: Any, samples: Samples) -> None:
        table = _as_rows(table)
        check_same_order(samples.problem, table, samples.C)
        self.values = as_values(samples.problem, table, f"the forecasts of {name!r}").astype(np.float64)
        if len(self.values) != len(samples):
            raise ProblemError(
                f"the table of forecasts {name!r} has {len(self.values)} rows, and X has {len(samples)}; give it a row "
                "for each row of X, with NaN where none was made"
            )

    def forecast(self, samples: Samples, fold: Fold) -> Any:
        """Return the test rows of the table."""
        return self.values[fold.test]


def forecast_mean(_: Any, costs: Any, ahead: Any) -> Array:
    """Forecast the mean of the training costs for every test row; a function that ``walk_forward`` compares."""
    mean = np.asarray(costs, dtype=np.float64).mean(axis=0)
    return np.broadcast_to(mean, (ahead.shape[0], *mean.shape))


def as_forecaster(name: str, given: Any, samples: Samples) -> Forecaster:
    """Return what the user passed as a forecaster.

    Args:
        name: the user's name for it, for messages.
        given: an estimator, a function, or a table (N, k) of forecasts.
        samples: all rows.

    Raises:
        ProblemError: it is none of these.
    """
    if isinstance(given, type):
        raise ProblemError(f"forecaster {name!r} is a class; pass an object of it: {given.__name__}(…)")
    if hasattr(given, "predict") and hasattr(given, "fit"):
        return EstimatorForecaster(given)
    if isinstance(given, nn.Module):
        raise ProblemError(
            f"forecaster {name!r} is a torch module, which has no fit(X, y); pass pear.DecisionRegressor(problem, "
            "model=module), or a function (X_train, C_train, X_test) -> forecasts"
        )
    if hasattr(given, "predict"):
        raise ProblemError(
            f"forecaster {name!r} has predict and no fit, and a walk forward trains anew on each fold; pass its "
            "forecasts of all rows as a table, if it was trained on none of the tested ones"
        )
    if is_frame(given) or (isinstance(given, (Tensor, np.ndarray, Sequence)) and not isinstance(given, str)):
        return TableForecaster(name, given, samples)
    if callable(given):
        return FunctionForecaster(given)
    raise ProblemError(
        f"forecaster {name!r} must have fit(X, y) and predict(X), be a function (X_train, C_train, X_test) -> "
        f"forecasts, or a table (N, k) of forecasts; got {type(given).__name__}"
    )


def says_many_outputs(estimator: Any) -> bool:
    """Whether scikit-learn's tags of an estimator say that it takes targets of several columns."""
    if not hasattr(estimator, "__sklearn_tags__"):
        return False
    return bool(estimator.__sklearn_tags__().target_tags.multi_output)


def _was_interrupted(fitted: Any) -> bool:
    """Whether Ctrl-C ended the training of a ``DecisionRegressor``, which keeps the best weights so far."""
    last = fitted.steps[-1][1] if hasattr(fitted, "steps") else fitted
    return bool(getattr(getattr(last, "history_", None), "interrupted", False))


def _as_rows(table: Any) -> Any:
    """Return a table that can be indexed by row numbers: DataFrames and sparse matrices as they are, else an array."""
    if isinstance(table, Tensor):
        return table.detach().cpu().numpy()
    if is_frame(table) or isinstance(table, np.ndarray):
        return table
    if hasattr(table, "tocsr"):
        return table.tocsr()
    return np.asarray(table)


def _plain_labels(index: Any) -> NDArray[Any]:
    """Return an index of pandas as an array (N,); dates become datetime64 in their local time."""
    index = index.to_timestamp() if hasattr(index, "to_timestamp") else index
    return np.asarray(index if getattr(index, "tz", None) is None else index.tz_localize(None))


def _check_dates(name: str, table: Any) -> None:
    """Raise ProblemError where the rows of a table carry dates that are not in order."""
    if not is_frame(table):
        return
    import pandas

    if not isinstance(table.index, (pandas.DatetimeIndex, pandas.PeriodIndex)):
        return
    if not table.index.is_monotonic_increasing:
        late = int(np.flatnonzero(table.index[1:] < table.index[:-1])[0]) + 1
        raise ProblemError(
            f"the dates of {name} are not in order: row {late}, {table.index[late]}, comes after "
            f"{table.index[late - 1]}; sort X and C by date: {name} = {name}.sort_index()"
        )
