"""The tables that a ``DecisionRegressor`` reads, and the tables of forecasts and decisions that it returns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from pear.errors import ProblemError
from pear.losses.sample_weights import read_weights
from pear.problem import Model, Problem
from pear.problem.model import model_input_count
from pear.problem.pandas_data import is_pandas_frame, pandas_columns
from pear.problem.tensor_conversion import to_numpy
from pear.train.long_table import Array, LongTable, group_long_table
from pear.train.samples.sample_rows import read_sample_values

if TYPE_CHECKING:
    from pear.train.estimator.regressor import DecisionRegressor


def decision_columns(problem: Problem | Model, columns: Sequence[Any] | None) -> tuple[Any, ...]:
    """Return the names of the decision variables, for the columns of a table of decisions.

    A ``Model`` has names for its variables. The variables of a ``Problem`` are named by ``columns``, the names of the
    costs; if that is None, they are x0, x1 and so on.
    """
    if isinstance(problem, Model):
        return problem.variables
    return tuple(columns) if columns is not None else tuple(f"x{i}" for i in range(problem.n))


def forecast_table(estimator: DecisionRegressor, values: np.ndarray[Any, Any], X: Any) -> Any:
    """Return forecasts of rows X in the form that the costs had in ``fit``: a DataFrame, a Series or an array.

    The forecasts are ``values``: (N, k), with k values for each of N samples, or (N·k,) for a long table.
    """
    if estimator._columns is not None and estimator._flat:
        name = estimator._columns[0]
        return _table_like(values[:, None], X, (name,))[name]
    if estimator._columns is not None:
        return _table_like(values[:, None] if estimator._long else values, X, estimator._columns)
    return values[:, 0] if estimator._flat and not estimator._long else values


def _table_like(values: np.ndarray[Any, Any], like: Any, columns: Sequence[Any]) -> Any:
    """Return values (N, m) as a DataFrame with m columns, and the index of ``like`` if that is a DataFrame."""
    import pandas

    return pandas.DataFrame(values, index=like.index if is_pandas_frame(like) else None, columns=list(columns))


def _group_table(values: np.ndarray[Any, Any], groups: LongTable, columns: Sequence[Any]) -> Any:
    """Return values (N, m) as a DataFrame with m columns, and the ids of the N groups as its index."""
    import pandas

    index = pandas.Index(list(groups.ids), name=groups.name)
    return pandas.DataFrame(values, index=index, columns=list(columns))


def decision_table(estimator: DecisionRegressor, decisions: Array, X: Any, table: LongTable | None) -> Any:
    """Return decisions (N, n) as a DataFrame if X is a DataFrame or the costs of ``fit`` were one; otherwise unchanged.

    ``table`` has the groups of a long table, or is None.
    """
    if not is_pandas_frame(X) and estimator._columns is None:
        return decisions
    if table is not None:
        return _group_table(decisions, table, decision_columns(estimator.problem, None))
    return _table_like(decisions, X, decision_columns(estimator.problem, estimator._columns))


def read_table_weights(weight: Any, count: int, groups: LongTable | None) -> Tensor | None:
    """Return the weights (N,) of the samples in a table; None if they have no weights.

    Args:
        weight: (R,) a weight for each row, the same for all rows of a group; or None.
        count: R, the number of rows.
        groups: the groups of a long table, in which several rows form a sample; None if each row is a sample.

    Raises:
        ProblemError: the weights have another shape or are negative, or they differ within a group.
    """
    if weight is None:
        return None
    weights = read_weights(weight, count, "sample_weight")
    if groups is None:
        return weights
    each = groups.gather(weights.numpy())
    mixed = np.flatnonzero((each != each[:, :1]).any(1))
    if len(mixed):
        raise ProblemError(
            f"sample_weight must be the same for all rows of a group, which is decided as a whole; those of group "
            f"{groups.ids[mixed[0]]} differ"
        )
    return torch.from_numpy(each[:, 0].copy())


def read_table_groups(estimator: DecisionRegressor, groups: Any, count: int) -> LongTable | None:
    """Return the groups of a long table with ``count`` rows; None for a table with a row for each sample.

    Raises:
        ProblemError: there are groups although ``fit`` got none, or the reverse; or a group is not complete.
    """
    if groups is None and not estimator._long:
        return None
    if groups is None:
        raise ProblemError("fit was given groups=, a row for each predicted value; pass groups= here as well")
    if not estimator._long:
        raise ProblemError("fit was given a row for each sample, without groups=; leave groups= out here as well")
    return group_long_table(groups, count, model_input_count(estimator.problem))


def read_table_values(estimator: DecisionRegressor, y: Any, groups: LongTable | None) -> Array:
    """Return the k true values of each sample, (N, k), from a table y.

    If ``groups`` is None, y has a row for each sample. Otherwise y belongs to a long table and has N·k rows.

    Raises:
        ProblemError: the table has another shape.
    """
    if groups is None:
        return read_sample_values(estimator.problem, y, "y")
    array = to_numpy(y, "y")
    if array.shape not in ((groups.rows.size,), (groups.rows.size, 1)):
        raise ProblemError(
            f"with groups=, y must have shape ({groups.rows.size},), a value for each row of X; got {array.shape}"
        )
    return groups.gather(array.ravel())


def check_table_columns(estimator: DecisionRegressor, y: Any) -> None:
    """Raise ProblemError unless a table of costs has the columns of the costs of ``fit``, in the same order."""
    columns = pandas_columns(y)
    if columns is not None and estimator._columns is not None and columns != estimator._columns:
        raise ProblemError(f"the columns of y must be those of fit, {list(estimator._columns)}; got {list(columns)}")


def name_table_columns(y: Any, groups: LongTable | None) -> tuple[Any, ...] | None:
    """Return the column names of y; None for an array.

    A Series that belongs to a long table has one column: its name, or 0 if it has no name.
    """
    if groups is not None and hasattr(y, "to_frame"):
        return (0 if y.name is None else y.name,)
    return pandas_columns(y)
