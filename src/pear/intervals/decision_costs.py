"""Costs of decisions: planned costs, under a forecast, and realised costs, under the true values."""

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
from pear.losses.recourse_judge import RecourseJudge
from pear.problem import Model, Problem, Projection
from pear.problem.model import model_input_count, model_with_predicted_rows, problem_of_model
from pear.problem.pandas_data import check_pandas_order, check_pandas_rows
from pear.problem.tensor_conversion import to_batch_tensor
from pear.wording import list_positions

Array = NDArray[np.float64]


class PlannedDecisions(NamedTuple):
    """Decisions under a forecast, and what they cost under this forecast.

    Attributes:
        z: (B, n) decisions.
        planned: (B,) what the decisions cost if the forecast comes true, in the problem's own sense, with constants.
    """

    z: Tensor
    planned: Array


def plan_decision_costs(problem: Problem | Model, predicted: Any) -> PlannedDecisions:
    """Return the decisions under predicted values, with integers and without smoothing, and what they cost.

    Args:
        problem: the problem of these samples, with their known values.
        predicted: (B, k), k predicted costs of each sample, or k values that a model maps to costs and right-hand
            sides.

    Raises:
        SolveError: a sample has no decision.
    """
    problem, values = read_decision_cost_values(problem, predicted, "forecasts")
    z = solve(problem, values).x
    model = model_with_predicted_rows(problem)
    stays = model is not None and isinstance(
        model.recourse, Projection
    )  # a decision is feasible under its own forecast
    return PlannedDecisions(z, _objective_cost(problem, z, values) if stays else cost_of_decisions(problem, z, values))


def cost_of_decisions(problem: Problem | Model, z: Tensor, values: Any) -> Array:
    """Return what decisions cost under given values, in the problem's own sense and with constants.

    If the model's recourse is a ``Penalty``, the costs include its prices for violated right-hand sides. If it is a
    ``Projection``, they are the costs of the nearest feasible points.

    Args:
        problem: the problem of these samples, with their known values.
        z: (B, n) decisions.
        values: (B, k), k costs of each sample, or k values that a model maps to costs and right-hand sides.

    Returns:
        (B,) costs.

    Raises:
        SolveError: a sample has no feasible point.
    """
    problem, values = read_decision_cost_values(problem, values, "values")
    model = model_with_predicted_rows(problem)
    if model is None:
        return _objective_cost(problem, z, values)
    return _cost_array(RecourseJudge(model, values).value(z.to(values)) + model.offset)


def regrets_of_decision_costs(problem: Problem | Model, cost: Array, true: Any) -> Array:
    """Return the regret (B,) of decisions.

    Args:
        problem: the problem of these samples, with their known values.
        cost: (B,) realised costs of the decisions.
        true: (B, k) the k true values of each sample.
    """
    problem, values = read_decision_cost_values(problem, true, "true values")
    best = ForecastJudge(problem, values).best + (problem.offset if isinstance(problem, Model) else 0.0)
    return np.maximum(problem_of_model(problem).sign * (cost - _cost_array(best)), 0.0)


def read_forecasts_and_truth(problem: Problem | Model, predicted: Any, true: Any) -> tuple[Tensor, Tensor]:
    """Return forecasts and true values of the same samples as tensors (B, k), after a check.

    Raises:
        ProblemError: shapes, columns or rows differ, or a number is not finite.
    """
    check_pandas_rows({"forecasts": predicted, "true values": true})
    check_pandas_order(problem, predicted, true)
    values, came_true = (
        read_decision_cost_values(problem, predicted, "forecasts")[1],
        read_decision_cost_values(problem, true, "true values")[1],
    )
    check_cost_pair(values, came_true)
    return values, came_true


def read_decision_cost_values(problem: Problem | Model, given: Any, name: str) -> tuple[Any, Tensor]:
    """Return the problem and the k values of each sample, (B, k) in float64, on the device that computes decisions.

    Args:
        problem: the problem or model.
        given: the values, (B, k) or a table.
        name: what the values are called in messages.

    Raises:
        ProblemError: the shape is wrong, or a number is not finite.
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


def _objective_cost(problem: Problem | Model, z: Tensor, values: Tensor) -> Array:
    """Return the objective (B,) of decisions z (B, n) under k values (B, k), with constants and without recourse."""
    if not isinstance(problem, Model):
        return _cost_array(problem.objective(z.to(values), values))
    value = problem.problem.objective(z.to(values), problem.cost(values), Q=problem.curvature(values))
    return _cost_array(value + problem.offset)


def _cost_array(values: Tensor) -> Array:
    """Return a tensor (B,) as a float64 array."""
    found: Array = values.double().cpu().numpy()
    return found
