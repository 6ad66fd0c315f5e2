"""Names of columns, and DataFrames as results where the user gave DataFrames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pear.problem import Model, Problem
from pear.problem.row_pairing import is_frame
from pear.train.long_table import GroupRows

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

    return pandas.DataFrame(values, index=like.index if is_frame(like) else None, columns=list(columns))


def as_series(values: np.ndarray[Any, Any], like: Any, name: Any) -> Any:
    """A Series of this name, and with the index of ``like`` where that is a DataFrame."""
    return as_table(values[:, None], like, (name,))[name]


def as_group_table(values: np.ndarray[Any, Any], groups: GroupRows, columns: Sequence[Any]) -> Any:
    """A DataFrame with a row for each group, whose index are the ids of the groups."""
    import pandas

    index = pandas.Index(list(groups.ids), name=groups.name)
    return pandas.DataFrame(values, index=index, columns=list(columns))
