"""The true values, known values and forecasts of a rollout, and the part of them that belongs to each plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pear.errors import ProblemError
from pear.problem import Model
from pear.problem.tensor_conversion import to_float64_tensor
from pear.rolling.timeline import Timeline
from pear.wording import list_names


class TimeSeries:
    """The true values of N periods.

    Args:
        timeline: the periods of the model.
        data: the series: a dictionary from the names of the predicted series to arrays (N, …), a DataFrame with a
            column for each series, or an array if there is one series.

    Attributes:
        length: N, the number of periods.
        labels: the index of a DataFrame, else the numbers of the periods.

    Raises:
        ProblemError: a series is missing, has a wrong shape, is not finite, or is shorter than a plan.
    """

    def __init__(self, timeline: Timeline, data: Any) -> None:
        self.timeline = timeline
        table = data if isinstance(data, Mapping) or hasattr(data, "columns") else None
        if table is None:
            if len(timeline.series) != 1:
                raise ProblemError(
                    f"data came as an array, and there are {len(timeline.series)} series, "
                    f"{list_names(list(timeline.series))}; pass a dictionary from their names to arrays, or a DataFrame"
                )
            table = {next(iter(timeline.series)): data}
        missing = [name for name in timeline.series if name not in table]
        if missing:
            raise ProblemError(f"data holds no series {missing[0]!r}; expected {list_names(list(timeline.series))}")
        columns = {name: to_float64_tensor(name, np.asarray(table[name])) for name in timeline.series}
        self.length = len(next(iter(columns.values())))
        for name, column in columns.items():
            shape = (self.length, *timeline.series[name].shape[1:])
            if tuple(column.shape) != shape:
                raise ProblemError(f"the series {name!r} has shape {tuple(column.shape)}; expected {shape}")
            if not bool(column.isfinite().all()):
                at = int((~column.isfinite()).reshape(len(column), -1).any(1).nonzero()[0])
                raise ProblemError(f"the series {name!r} is not finite in period {at}; fill the gap")
        if self.length < timeline.horizon:
            raise ProblemError(
                f"a plan takes {timeline.horizon} periods, and the data has {self.length}; give it more of them"
            )
        self.labels = np.asarray(data.index) if hasattr(data, "iloc") else np.arange(self.length)
        self._columns = columns

    def starts(self, step: int, first: int = 0, count: int | None = None) -> Tensor:
        """Return the periods at which plans begin: every ``step`` periods, as long as a plan ends within the data.

        Args:
            step: the number of periods between two plans.
            first: the period at which the first plan begins.
            count: the number of plans; as many as possible if omitted.

        Raises:
            ProblemError: so many plans do not fit into the data.
        """
        most = (self.length - self.timeline.horizon - first) // step + 1
        if not 0 <= first <= self.length - self.timeline.horizon or (count is not None and not 1 <= count <= most):
            raise ProblemError(
                f"the data has {self.length} periods, so that {max(most, 0)} plans of {self.timeline.horizon} periods "
                f"can begin at period {first}; got steps={count}, start={first}"
            )
        return first + step * torch.arange(most if count is None else count)

    def values(self, starts: Tensor) -> Tensor:
        """Return the k true values (…, k) of each plan, for plans that begin at the periods ``starts`` (…)."""
        found = torch.empty(*starts.shape, self.timeline.model.inputs, dtype=torch.float64)
        when = starts[..., None] + torch.arange(self.timeline.horizon)
        for name, at in self.timeline.series.items():
            found[..., at.flatten()] = self._columns[name][when].flatten(starts.ndim)
        return found


def read_known_series(model: Model, known: Any, least: int, left_out: tuple[str, ...]) -> Tensor | None:
    """Return the q known numbers of each period, (N, q), or of all periods, (q,); None if the model has none.

    Args:
        model: the model.
        known: arrays (N, …) by the names of the known values that are not states, or (…) for a value that all periods
            share; a single array if there is only one such value.
        least: the smallest number N of rows.
        left_out: the names of the known values that are states. Their numbers are zero.

    Raises:
        ProblemError: the names or shapes do not fit the model.
    """
    if model.known_map is None:
        if known is not None:
            raise ProblemError(
                "known came, and the model has no known values; name them when it is imported: known=[…]"
            )
        return None
    table = dict(known.items()) if hasattr(known, "items") else {} if known is None else None
    others = [one for one in model.known_map.values if one.name not in left_out]
    if table is None:
        if len(others) != 1:
            raise ProblemError("known must be a dictionary from names to arrays, with a row for each step")
        table = {others[0].name: known}
    for one in model.known_map.values:
        if one.name in left_out:
            table[one.name] = np.zeros(one.shape)
    found = model.known_map.read({name: np.asarray(value) for name, value in table.items()})
    if found.ndim == 2 and len(found) < least:
        raise ProblemError(
            f"known has {len(found)} rows; expected at least {least}, one for each period at which a plan may begin"
        )
    return found


def read_forecast_series(forecaster: Any, features: Any, series: TimeSeries, starts: Tensor) -> Tensor:
    """Return the forecasts (S, k) of S plans: k predicted values for each plan.

    Args:
        forecaster: "perfect" for the true values; an object with ``predict``; a torch module or a function of the
            features; or a table of forecasts.
        features: a table with a row for each period or for each plan; None if the forecaster is a table or "perfect".
        series: the true values.
        starts: (S,) the periods at which plans begin.

    Raises:
        ProblemError: features are missing, or forecasts have a wrong shape.
    """
    k = series.timeline.model.inputs
    if isinstance(forecaster, str):
        if forecaster != "perfect":
            raise ProblemError(
                f"the forecaster must be an object, a table of forecasts or 'perfect'; got {forecaster!r}"
            )
        return series.values(starts)
    if hasattr(forecaster, "predict") or callable(forecaster):
        if features is None:
            raise ProblemError("a forecaster needs features, a row for each period; pass features=")
        found = _call_series_forecaster(forecaster, select_series_rows(features, starts, "features"))
        whose = "the forecasts"
    else:
        found, whose = select_series_rows(forecaster, starts, "the table of forecasts"), "the table of forecasts"
    values = to_float64_tensor(whose, found.detach() if isinstance(found, Tensor) else np.asarray(found)).cpu()
    values = values.reshape(len(starts), -1) if values.ndim == 1 else values.flatten(1)
    if values.shape != (len(starts), k):
        raise ProblemError(
            f"{whose} must have shape ({len(starts)}, {k}), {k} values for each plan; got {tuple(values.shape)}"
        )
    return values


def select_series_rows(table: Any, starts: Tensor, name: str) -> Any:
    """Return the rows of a table that belong to plans: one row for each plan.

    Args:
        table: has a row for each plan or for each period.
        starts: (…) the periods at which plans begin.
        name: the name of the table in the error message.

    Raises:
        ProblemError: the table is too short.
    """
    if len(table) == len(starts) and starts.ndim == 1:
        return table
    last = int(starts.max())
    if len(table) <= last:
        raise ProblemError(
            f"{name} has {len(table)} rows; expected one for each of the {len(starts)} plans, or one for each period, "
            f"at least {last + 1}"
        )
    at = starts.numpy()
    if hasattr(table, "iloc"):
        return table.iloc[at]
    return table[starts] if isinstance(table, Tensor) else np.asarray(table)[at]


def _call_series_forecaster(forecaster: Any, rows: Any) -> Any:
    """Return the forecasts of a forecaster for rows of features. A torch module is called in evaluation mode."""
    if not isinstance(forecaster, nn.Module):
        return forecaster.predict(rows) if hasattr(forecaster, "predict") else forecaster(rows)
    like = next(forecaster.parameters(), torch.empty(0))
    inputs = torch.as_tensor(rows if isinstance(rows, Tensor) else np.asarray(rows)).to(like)
    was_training = forecaster.training
    forecaster.eval()
    try:
        with torch.no_grad():
            return forecaster(inputs)
    finally:
        forecaster.train(was_training)
