"""The inputs of ``pear.diagnose``: predicted and true values with their names, and a group for each sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pear.errors import ProblemError
from pear.losses.cost_pairs import check_cost_pair
from pear.problem import Model, Problem
from pear.problem.constraint_map import refuse_constraint_coefficients
from pear.problem.model import model_with_predicted_rows, split_cost_model
from pear.problem.pandas_data import check_pandas_order, pandas_columns
from pear.problem.tensor_conversion import to_batch_tensor

_WEEK = np.array(["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"])


class DiagnosisInputs:
    """Predicted and true values of B samples and the costs that follow from these values, in float64.

    Args:
        problem: the argument ``problem`` of ``pear.diagnose``.
        predicted: the argument ``predicted`` of ``pear.diagnose``.
        true: the argument ``true`` of ``pear.diagnose``.
        names: the argument ``names`` of ``pear.diagnose``.

    Attributes:
        problem: the problem without names and maps.
        recourse: the model if it predicts right-hand sides, otherwise None.
        cost_map: map from values to costs, or None if the values are the costs.
        predicted: (B, k) predicted values.
        true: (B, k) true values.
        predicted_cost: (B, n) costs that follow from the predicted values.
        true_cost: (B, n) costs that follow from the true values.
        names: names of the k values.
        variables: names of the n variables.

    Raises:
        ProblemError: shapes, columns or names do not fit.
    """

    def __init__(self, problem: Problem | Model, predicted: Any, true: Any, names: Sequence[Any] | None) -> None:
        self.recourse = model_with_predicted_rows(problem)
        if self.recourse is None:
            self.problem, self.cost_map = split_cost_model(problem)
        else:
            refuse_constraint_coefficients(self.recourse.constraint_map, "a diagnosis")
            self.problem, self.cost_map = self.recourse.problem, self.recourse.cost_map
        check_pandas_order(problem, predicted, true)
        columns = [pandas_columns(table) for table in (predicted, true)]
        device, n = self.problem.device, self.problem.n
        self.predicted, self.true = (to_batch_tensor(table).detach().double().to(device) for table in (predicted, true))
        check_cost_pair(self.predicted, self.true)
        if not len(self.true):
            raise ProblemError("there is no sample to diagnose; pass one row of predicted and true values at least")
        self.predicted_cost, self.true_cost = (
            values if self.cost_map is None else self.cost_map(values) for values in (self.predicted, self.true)
        )
        model = problem if isinstance(problem, Model) else None
        self.variables = tuple(f"x{i}" for i in range(n)) if model is None else model.variables
        inherited = tuple(f"c{i}" for i in range(n)) if model is None else model.names
        given = columns[0] or columns[1] or inherited if names is None else names
        self.names = tuple(str(name) for name in given)
        count = self.true.shape[1]
        if len(self.names) != count:
            raise ProblemError(f"names must name the {count} predicted values; got {len(self.names)} names")


def read_input_groups(groups: Any, count: int) -> tuple[NDArray[Any] | None, str]:
    """Return a label for each of ``count`` samples.

    Dates are replaced by the hour of the day if it varies, otherwise by the month if there are several months,
    otherwise by the weekday.

    Returns:
        The labels (count,), or None if ``groups`` is None; and what the labels are: "group", the name of the column,
        "hour of day", "month" or "weekday", or "" without groups.

    Raises:
        ProblemError: the number of labels is not ``count``, or a label is missing.
    """
    if groups is None:
        return None, ""
    named = getattr(groups, "name", None)
    labels = groups.to_numpy() if hasattr(groups, "to_numpy") else np.asarray(groups)
    if labels.shape != (count,):
        raise ProblemError(f"groups must have one label for each of the {count} samples; got shape {labels.shape}")
    # Check a list before NumPy converts it: NumPy turns a NaN between texts into a text.
    _check_input_groups(groups if isinstance(groups, list | tuple) else labels)
    if not _are_date_groups(labels):
        return labels, "group" if named is None else str(named)
    if labels.dtype.kind != "M":  # the local time that a clock showed, whatever its time zone
        labels = np.array([date.replace(tzinfo=None) if getattr(date, "tzinfo", None) else date for date in labels])
    dates = labels.astype("datetime64[s]")
    days = dates.astype("datetime64[D]")
    hours = (dates - days).astype("timedelta64[h]").astype(int)
    months = dates.astype("datetime64[M]")
    if len(np.unique(hours)) > 1:
        return hours, "hour of day"
    if len(np.unique(months)) > 1:
        return months.astype(str), "month"
    return _WEEK[(days.astype(int) + 3) % 7], "weekday"  # 1 January 1970 was a Thursday


def _check_input_groups(labels: Any) -> None:
    """Raise ``ProblemError`` if a label is None, NaN, NaT or pandas' NA. The message names the first such sample."""
    for i, label in enumerate(labels):
        if label is None or type(label).__name__ == "NAType" or bool(label != label):
            raise ProblemError(
                f"sample {i} has no group, but {label}; give every sample a label, or leave it out of predicted, true "
                "and groups"
            )


def _are_date_groups(labels: NDArray[Any]) -> bool:
    """Return whether the labels (B,) are dates: a datetime array, or objects that all have ``isoformat``."""
    objects = labels.dtype.kind == "O" and len(labels) > 0
    return labels.dtype.kind == "M" or (objects and all(hasattr(one, "isoformat") for one in labels))
