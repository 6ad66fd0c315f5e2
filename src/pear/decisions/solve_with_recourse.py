"""``solve_with_recourse``: the solution, under a forecast, of a model that predicts right-hand sides."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from pear.decisions.recourse_decider import RecourseDecider
from pear.decisions.recourse_smoothing import choose_recourse_smoothing
from pear.decisions.solution import Solution, as_solution
from pear.optimality.duals_and_active_sets import ActiveSet
from pear.problem import Model


def solve_with_recourse(model: Model, values: Tensor, smoothing: float | str, solver: str) -> Solution:
    """Solve the elastic problem of a model that predicts right-hand sides, under predicted values.

    In the elastic problem, slack variables let decisions violate the predicted right-hand sides at a price.

    Args:
        model: a model with a constraint map.
        values: (B, k) predicted values.
        smoothing: λ or "auto", as in ``pear.solve``.
        solver: "auto" or a name that ``pear solvers`` lists.

    Returns:
        The solution in the variables and constraints of the user's problem, without slack variables.
    """
    n = model.problem.n
    if model.problem.is_integer:
        decider = RecourseDecider(model, solver)
        forecast = decider.values(values.detach(), None)
        return _remove_recourse_slacks(model, decider.solve_integers(forecast, None, smoothing))
    decider = RecourseDecider(model, solver, choose_recourse_smoothing(model, values, smoothing, None))
    found = decider.decide(decider.values(values.detach(), None), None)
    solution = as_solution(decider.forecasts.problem, found.solved)
    if decider.weights is not None:  # the prices of a projection are not part of the objective
        charged = (solution.x * found.cost)[:, n:].sum(1)
        solution = replace(solution, value=solution.value - charged)
    return _remove_recourse_slacks(model, solution)


def _remove_recourse_slacks(model: Model, solution: Solution) -> Solution:
    """Convert a solution of the elastic problem to the variables, rows and bounds of the user's problem."""
    elastic, n = model.elastic, model.problem.n

    def sets(active: ActiveSet) -> ActiveSet:
        rows, lower, upper = elastic.split_rows(active.rows.double())
        return ActiveSet(rows > 0, active.lower[:, :n] | (lower > 0), active.upper[:, :n] | (upper > 0))

    duals = solution.duals
    if duals is not None:
        rows, lower, upper = elastic.split_rows(duals.inequality)
        duals = replace(duals, inequality=rows, bound=duals.bound[:, :n] + upper - lower)
    return replace(solution, x=solution.x[:, :n], active=sets(solution.active), weak=sets(solution.weak), duals=duals)
