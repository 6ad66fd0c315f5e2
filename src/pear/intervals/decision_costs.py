"""Planned costs of decisions, under a forecast, and realised costs, under the true values."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pear.decisions.decision_device import bring_to_decision_device
from pear.decisions.solve import solve
from pear.errors import ProblemError
from pear.losses.cost_pairs import check_cost_pair
from pear.losses.forecast_judge import ForecastJudge
from pear.losses.recourse_outcome import RecourseOutcome
from pear.problem import Model, Problem, Projection
from pear.problem.model import model_input_count, model_with_predicted_rows, problem_of_model
from pear.problem.pandas_data import check_pandas_order, check_pandas_rows
from pear.problem.tensor_conversion import to_batch_tensor
from pear.wording import list_positions

Array = NDArray[np.float64]


class PlannedDecisions(NamedTuple):
    """Decisions under a forecast.

    Attributes:
        z: (B, n) decisions.
        planned: (B,) what they cost if the forecast comes true, in the problem's own sense, constants included.
    """

    z: Tensor
    planned: Array


def plan_decisions(problem: Problem | Model, predicted: Any) -> PlannedDecisions:
    """Decide under predicted values (B, k), with integers and without smoothing.

    Args:
        problem: the problem of these samples, known values filled in.
        predicted: costs, or the values that a model maps to costs and right-hand sides.

    Raises:
        SolveError: a sample has no decision.
    """
    problem, values = read_values(problem, predicted, "forecasts")
    z = solve(problem, values).x
    model = model_with_predicted_rows(problem)
    stays = model is not None and isinstance(model.recourse, Projection)  # what a forecast allows is not projected
    return PlannedDecisions(z, _objective(problem, z, values) if stays else cost_of_decisions(problem, z, values))


def cost_of_decisions(problem: Problem | Model, z: Tensor, values: Any) -> Array:
    """What decisions z (B, n) cost under values (B, k), in the problem's own sense; (B,), constants included.

    Violations of predicted right-hand sides cost what a ``Penalty`` says. With a ``Projection`` it is the cost of the
    nearest point that the values allow.

    Raises:
        SolveError: there is no such point.
    """
    problem, values = read_values(problem, values, "values")
    model = model_with_predicted_rows(problem)
    if model is None:
        return _objective(problem, z, values)
    return _as_array(RecourseOutcome(model, values).value(z.to(values)) + model.offset)


def regrets_of_costs(problem: Problem | Model, cost: Array, true: Any) -> Array:
    """What decisions lose to the best ones, (B,), from what they cost under true values (B, k)."""
    problem, values = read_values(problem, true, "true values")
    best = ForecastJudge(problem, values).best + (problem.offset if isinstance(problem, Model) else 0.0)
    return np.maximum(problem_of_model(problem).sign * (cost - _as_array(best)), 0.0)


def read_pair(problem: Problem | Model, predicted: Any, true: Any) -> tuple[Tensor, Tensor]:
    """Forecasts and true values of the same samples, (B, k) each.

    Raises:
        ProblemError: their shapes, columns or rows differ, or a number is not finite.
    """
    check_pandas_rows({"forecasts": predicted, "true values": true})
    check_pandas_order(problem, predicted, true)
    values, came_true = read_values(problem, predicted, "forecasts")[1], read_values(problem, true, "true values")[1]
    check_cost_pair(values, came_true)
    return values, came_true


def read_values(problem: Problem | Model, given: Any, name: str) -> tuple[Any, Tensor]:
    """Values (B, k) in float64, and the problem on their device.

    Raises:
        ProblemError: another shape, or a number that is not finite.
    """
    values = to_batch_tensor(given).detach().double()
    inputs = model_input_count(problem)
    if values.ndim != 2 or values.shape[1] != inputs:
        raise ProblemError(
            f"{name} must have shape (N, {inputs}), a column for each value that the problem takes; got "
            f"{tuple(values.shape)}"
        )
    wrong = (~values.isfinite().all(1)).nonzero()[:, 0].tolist()
    if wrong:
        raise ProblemError(f"{name} must be finite numbers; {list_positions('row', wrong)} of {name} has others")
    return bring_to_decision_device(problem, values)


def _objective(problem: Problem | Model, z: Tensor, values: Tensor) -> Array:
    """The objective of decisions z (B, n) under values (B, k), without recourse, its constant included."""
    if not isinstance(problem, Model):
        return _as_array(problem.objective(z.to(values), values))
    value = problem.problem.objective(z.to(values), problem.cost(values), Q=problem.curvature(values))
    return _as_array(value + problem.offset)


def _as_array(values: Tensor) -> Array:
    found: Array = values.double().cpu().numpy()
    return found
