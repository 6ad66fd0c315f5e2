"""The rows that ``DecisionRegressor`` gets, as tensors: wide and long tables, and forecasts of a base."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pear.errors import ProblemError
from pear.losses.sample_weights import read_weights
from pear.problem import Model, Problem
from pear.problem.known_samples import fill_known_samples, insert_known_samples, read_known_samples
from pear.problem.model import model_input_count, problem_of_model
from pear.problem.pandas_data import check_pandas_columns, is_pandas_frame, pandas_columns
from pear.problem.sample_keys import count_keyed_samples
from pear.train.base_forecast import as_offsets, forecast_of, training_forecast
from pear.train.long_table import LongTable, group_long_table
from pear.train.samples.sample_batch import SampleBatch
from pear.train.samples.sample_rows import count_sample_rows, read_sample_values
from pear.wording import list_positions

if TYPE_CHECKING:
    from pear.train.estimator.regressor import DecisionRegressor


Array = np.ndarray[Any, Any]

_KINDS = np.float64, np.float32


class TrainingRows(NamedTuple):
    """Samples of ``fit`` or ``partial_fit``.

    Attributes:
        features: (N, p), or (N, k, p) of a long table.
        costs: (N, k).
        offset: (N, k) forecasts of the base; None where there is no base.
        known: (N, ·) known numbers, in the order of the model's ``known_map``; None where it has none.
        weight: (N,) how much each sample counts; None where all count alike.
    """

    features: Tensor
    costs: Tensor
    offset: Tensor | None
    known: Tensor | None = None
    weight: Tensor | None = None

    def batch(self, scaled: Any) -> SampleBatch:
        """The samples as the network gets them: standardised features, and forecasts of the base where there is one."""
        features: Tensor = scaled(self.features)
        return SampleBatch(features if self.offset is None else (features, self.offset), self.costs, None)

    def training_samples(self, scaled: Any, ids: Array | None) -> tuple[Any, ...]:
        """Features and costs; also ids, where they are given: the row of the problem that belongs to each sample."""
        features, costs = self.batch(scaled)[:2]
        return (features, costs) if ids is None else (features, costs, ids)

    def with_known_in(self, order: Array | None) -> TrainingRows:
        """The rows with their known numbers put in this order (N,) of samples; None keeps the order."""
        if self.known is None or order is None:
            return self
        return self._replace(known=self.known[torch.from_numpy(order)])

    def samples(self, scaled: Any, after: int) -> tuple[Any, ...]:
        """Features and costs of validation samples, and, where samples have known numbers, their rows in the problem.

        Args:
            scaled: the standardisation of the features.
            after: the number of training samples, whose rows come first in the problem.
        """
        features, costs = self.batch(scaled)[:2]
        return (features, costs) if self.known is None else (features, costs, torch.arange(len(costs)) + after)


def problem_of_rows(problem: Problem | Model, rows: TrainingRows, held_out: TrainingRows | None) -> Problem | Model:
    """Give a problem the known numbers of training rows, followed by those of validation rows, where there are some."""
    if not isinstance(problem, Model) or problem.known_map is None:
        return problem
    parts = [part.known for part in (rows, held_out) if part is not None and part.known is not None]
    bound: Problem | Model = insert_known_samples(problem, torch.cat(parts))
    return bound


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


def read_training_rows(
    estimator: DecisionRegressor, given: Mapping[str, Any], dtype: torch.dtype | None = None, least: int = 1
) -> TrainingRows:
    """Check the training data against scikit-learn's rules and the problem, and convert it to tensors.

    Args:
        estimator: the estimator. Where ``dtype`` is None, it forgets its last fit and records the columns of this data.
        given: X, y, groups, base_forecast, known and sample_weight.
        dtype: the dtype of the trained model; None if the model is yet to be made from this data.
        least: the least number of rows.
    """
    from sklearn.utils.validation import validate_data

    fresh, X, y = dtype is None, given["X"], given["y"]
    if fresh:
        estimator._forget()
    for name, table in (("X", X), ("y", y)):
        check_numbers(table, name)
    numbers: dict[str, Any] = {"dtype": list(_KINDS), "reset": fresh, "ensure_min_samples": least}
    rows, true = validate_data(estimator, X, y, multi_output=True, y_numeric=True, **numbers)
    if fresh:
        estimator._long = given.get("groups") is not None
    groups = read_groups(estimator, given.get("groups"), len(rows))
    values = true_values(estimator, true, groups)
    if fresh:
        estimator._columns, estimator._flat = _names_of(y, groups), true.ndim == 1
        if groups is None:
            check_pandas_columns(estimator.problem, estimator._columns)
    else:
        check_columns(estimator, y)
    device, features = problem_of_model(estimator.problem).device, torch.from_numpy(np.array(rows))
    kind = dtype or features.dtype
    costs = torch.from_numpy(np.array(values)).to(device, kind)
    table = given.get("base_forecast")
    offset = _first_offset(estimator, X, y, costs, groups, table) if fresh else _offset(estimator, X, table, groups)
    return TrainingRows(
        (features if groups is None else features[torch.from_numpy(groups.rows)]).to(device, kind),
        costs,
        None if offset is None else torch.from_numpy(offset).to(device, kind),
        read_known_samples(estimator.problem, given.get("known"), len(costs)),
        read_row_weights(given.get("sample_weight"), len(rows), groups),
    )


def read_row_weights(weight: Any, count: int, groups: LongTable | None) -> Tensor | None:
    """The weights of the samples, (N,); None where there are none.

    Args:
        weight: a weight for each row, the same for all rows of a group, or None.
        count: the number of rows.
        groups: the groups of a long table, or None.

    Raises:
        ProblemError: the weights are wrong, or differ within a group.
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


def read_groups(estimator: DecisionRegressor, groups: Any, count: int) -> LongTable | None:
    """The groups of a long table of ``count`` rows; None for a table with a row for each sample.

    Raises:
        ProblemError: the estimator was fitted to the other kind of table, or a group is not complete.
    """
    if groups is None and not estimator._long:
        return None
    if groups is None:
        raise ProblemError("fit was given groups=, a row for each predicted value; pass groups= here as well")
    if not estimator._long:
        raise ProblemError("fit was given a row for each sample, without groups=; leave groups= out here as well")
    return group_long_table(groups, count, model_input_count(estimator.problem))


def true_values(estimator: DecisionRegressor, y: Any, groups: LongTable | None) -> Array:
    """(N, k) true values, from a table with a row for each sample or for each value.

    Raises:
        ProblemError: another shape.
    """
    if groups is None:
        return read_sample_values(estimator.problem, y, "y")
    array = np.asarray(y)
    if array.shape not in ((groups.rows.size,), (groups.rows.size, 1)):
        raise ProblemError(
            f"with groups=, y must have shape ({groups.rows.size},), a value for each row of X; got {array.shape}"
        )
    return groups.gather(array.ravel())


def check_columns(estimator: DecisionRegressor, y: Any) -> None:
    """Raise ProblemError unless the columns of a table of costs are those of ``fit``, in the same order."""
    columns = pandas_columns(y)
    if columns is not None and estimator._columns is not None and columns != estimator._columns:
        raise ProblemError(f"the columns of y must be those of fit, {list(estimator._columns)}; got {list(columns)}")


def forecast_offset(estimator: DecisionRegressor, X: Any, table: Any) -> Array | None:
    """Forecasts of the base for the rows of X: (N, k), or a value for each row of a long table; None without a base.

    Args:
        estimator: the fitted estimator.
        X: rows.
        table: ``base_forecast``, where ``fit`` was given it.
    """
    flat = estimator._long
    size = 1 if flat else model_input_count(estimator.problem)
    values = _base_values(estimator, X, table)
    if values is None:
        return None
    offset = as_offsets(
        values, (count_sample_rows(X), size), "forecasts of the base" if table is None else "base_forecast"
    )
    return offset[:, 0] if flat else offset


def _offset(estimator: DecisionRegressor, X: Any, table: Any, groups: LongTable | None) -> Array | None:
    """Forecasts of the base for rows of a later call, in the shape of the costs; None without a base."""
    values = forecast_offset(estimator, X, table)
    return values if values is None or groups is None else groups.gather(values)


def _first_offset(
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
        return as_offsets(_in_order(estimator, table), shape, "base_forecast", groups)
    if estimator.base is None:
        return None
    made = training_forecast(estimator.base, X, y, groups)
    estimator._corrects, estimator.base_, estimator._base_note = "base", made.base, made.note
    return as_offsets(made.values, shape, "forecasts of the base", groups)


def _base_values(estimator: DecisionRegressor, X: Any, table: Any) -> Any:
    """Forecasts of the base as they come; None without a base."""
    if estimator._corrects == "table":
        if table is None:
            raise ProblemError("fit was given base_forecast=, forecasts that are corrected; pass those of these rows")
        return _in_order(estimator, table)
    if table is not None:
        raise ProblemError("fit was given no base_forecast=; leave it out here as well")
    return None if estimator._corrects is None else forecast_of(estimator.base_, X)


def _in_order(estimator: DecisionRegressor, table: Any) -> Any:
    """A table of forecasts, whose columns must be those of y where both have names."""
    columns = pandas_columns(table)
    if columns is not None and not estimator._long:
        check_pandas_columns(estimator.problem, columns, "base_forecast")
        if estimator._columns is not None and columns != estimator._columns:
            raise ProblemError(
                f"the columns of base_forecast must be those of y, {list(estimator._columns)}; got {list(columns)}"
            )
    return table


def _names_of(y: Any, groups: LongTable | None) -> tuple[Any, ...] | None:
    """Names of the columns of y; the name of a Series with the values of a long table; None for an array."""
    if groups is not None and hasattr(y, "to_frame"):
        return (0 if y.name is None else y.name,)
    return pandas_columns(y)


def check_numbers(table: Any, name: str) -> None:
    """Raise ProblemError where a table or an array holds dates, text, NaN or infinity.

    Other faults are left to scikit-learn.

    Args:
        table: a DataFrame, an array of floating-point numbers, or anything else, which is not looked at.
        name: what it is called in messages.

    Example:
        >>> check_numbers(np.array([[1.0], [np.nan]]), "X")
        Traceback (most recent call last):
        pear.errors.ProblemError: X is NaN or infinite in row 1: fill these cells, or drop the rows
    """
    if is_pandas_frame(table):
        for at, column in enumerate(table.columns):
            _check_column(table.iloc[:, at], f"column {column!r} of {name}", column)
    elif isinstance(table, np.ndarray) and table.dtype.kind == "f":
        _check_finite(table, name)


def _check_column(column: Any, where: str, label: Any) -> None:
    """Raise ProblemError where a column of a DataFrame holds no finite numbers."""
    kind = getattr(column.dtype, "kind", "O")
    if kind in "mM":
        raise ProblemError(
            f"{where} holds dates; make it the index, set_index({label!r}), so that rows are held out in the order of "
            "time, or leave it out"
        )
    if kind == "f":
        _check_finite(column.to_numpy(dtype=np.float64, na_value=np.nan), where)
    elif kind == "O" and (texts := [one for one in column if isinstance(one, str)]):
        raise ProblemError(
            f"{where} holds text, such as {texts[0]!r}; turn categories into numbers, one column for each, as "
            "pandas.get_dummies does, or leave it out"
        )


def _check_finite(values: Any, where: str) -> None:
    """Raise ProblemError where numbers are NaN or infinite; names the rows."""
    finite = np.isfinite(values)
    if not finite.all():
        rows = np.flatnonzero(~finite.reshape(len(finite), -1).all(1)).tolist()
        raise ProblemError(
            f"{where} is NaN or infinite in {list_positions('row', rows)}: fill these cells, or drop the rows"
        )
