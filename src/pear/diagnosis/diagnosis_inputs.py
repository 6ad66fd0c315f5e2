"""The inputs of ``pear.diagnose``: predicted and true values, their names, and groups or dates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pear.errors import ProblemError
from pear.losses.regret import check_pair
from pear.problem import CostMap, Model, Problem
from pear.problem.array_conversion import as_batch
from pear.problem.keys_and_columns import check_same_order, column_names
from pear.problem.model import problem_and_cost_map

Array = NDArray[Any]


@dataclass(frozen=True)
class Inputs:
    """Predicted and true values, and the costs that they make, in float64.

    Attributes:
        problem: the plain problem.
        cost_map: map from values to costs, or None.
        predicted: (B, k) predicted values.
        true: (B, k) true values.
        predicted_cost: (B, n) costs of the predicted values.
        true_cost: (B, n) costs of the true values.
        names: names of the k values.
        variables: names of the n variables.
    """

    problem: Problem
    cost_map: CostMap | None
    predicted: Tensor
    true: Tensor
    predicted_cost: Tensor
    true_cost: Tensor
    names: tuple[str, ...]
    variables: tuple[str, ...]


def read_inputs(problem: Problem | Model, predicted: Any, true: Any, names: Sequence[Any] | None) -> Inputs:
    """Check the values and their names, and map values to costs.

    Raises:
        ProblemError: shapes, columns or names do not fit.
    """
    if isinstance(problem, Model) and problem.constraint_map is not None:
        raise ProblemError(
            "the model predicts right-hand sides, and a diagnosis attributes regret to predicted costs alone; "
            "pear.regret(model, predicted, true) gives what each sample loses, or diagnose a model that predicts costs"
        )
    plain, cost_map = problem_and_cost_map(problem)
    check_same_order(problem, predicted, true)
    columns = [column_names(table) for table in (predicted, true)]
    forecast, truth = (as_batch(table).detach().double().to(plain.device) for table in (predicted, true))
    check_pair(forecast, truth)
    if not len(forecast):
        raise ProblemError("there is no sample to diagnose; pass one row of predicted and true values at least")
    costs = [values if cost_map is None else cost_map(values) for values in (forecast, truth)]
    model = problem if isinstance(problem, Model) else None
    variables = tuple(f"x{i}" for i in range(plain.n)) if model is None else model.variables
    inherited = tuple(f"c{i}" for i in range(plain.n)) if model is None else model.names
    given = columns[0] or columns[1] or inherited if names is None else names
    named = tuple(str(name) for name in given)
    if len(named) != forecast.shape[1]:
        raise ProblemError(f"names must name the {forecast.shape[1]} predicted values; got {len(named)} names")
    return Inputs(plain, cost_map, forecast, truth, costs[0], costs[1], named, variables)


def read_groups(groups: Any, count: int) -> tuple[Array | None, str]:
    """Read a label for each sample.

    Dates are grouped by the hour of day where it varies, else by month where they span more than one, else by weekday.

    Returns:
        (B,) the labels, or None, and what they are: "group", the name of the column, or "hour of day" and so on.

    Raises:
        ProblemError: there are not as many labels as samples, or one is missing.
    """
    if groups is None:
        return None, ""
    named = getattr(groups, "name", None)
    labels = groups.to_numpy() if hasattr(groups, "to_numpy") else np.asarray(groups)
    if labels.shape != (count,):
        raise ProblemError(f"groups must have one label for each of the {count} samples; got shape {labels.shape}")
    # Check a list before NumPy converts it: NumPy turns a NaN between texts into a text.
    _check_labels(groups if isinstance(groups, list | tuple) else labels)
    if not _are_dates(labels):
        return labels, "group" if named is None else str(named)
    if labels.dtype.kind != "M":  # the local time that a clock showed, whatever its zone
        labels = np.array([date.replace(tzinfo=None) if getattr(date, "tzinfo", None) else date for date in labels])
    dates = labels.astype("datetime64[s]")
    days = dates.astype("datetime64[D]")
    hours = (dates - days).astype("timedelta64[h]").astype(int)
    months = dates.astype("datetime64[M]")
    if len(np.unique(hours)) > 1:
        return hours, "hour of day"
    if len(np.unique(months)) > 1:
        return months.astype(str), "month"
    week = np.array(["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"])
    return week[(days.astype(int) + 3) % 7], "weekday"  # 1 January 1970 was a Thursday


def _check_labels(labels: Any) -> None:
    """Raise an error for None, NaN, NaT and pandas' NA; the message names the first such sample."""
    for i, label in enumerate(labels):
        if label is None or type(label).__name__ == "NAType" or bool(label != label):
            raise ProblemError(
                f"sample {i} has no group, but {label}; give every sample a label, or leave it out of predicted, true "
                "and groups"
            )


def _are_dates(labels: Array) -> bool:
    objects = labels.dtype.kind == "O" and len(labels) > 0
    return labels.dtype.kind == "M" or (objects and all(hasattr(one, "isoformat") for one in labels))
