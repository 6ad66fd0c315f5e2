"""``pear.solve``: solves a decision problem for a batch of costs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from pear.decisions.continuous_programs import solve_continuous_programs
from pear.decisions.decision_device import follow_costs
from pear.decisions.failures import OnFailure, check_on_failure, report_failures
from pear.decisions.integer_programs import solve_integer_programs
from pear.decisions.one_pass import solve_in_one_pass
from pear.decisions.oracle_decisions import decide_by_oracle
from pear.decisions.recourse_decider import refuse_fields, solve_forecast
from pear.decisions.smoothing import Smoothing, choose_smoothing
from pear.decisions.solution import Solution, as_solution
from pear.problem import Model, Oracle, Problem
from pear.problem.curvature_map import split_curvature_map
from pear.problem.known_samples import fill_known_samples
from pear.problem.model import model_with_predicted_rows, split_cost_model
from pear.problem.pandas_data import check_pandas_columns, pandas_columns
from pear.problem.problem_fields import given_fields
from pear.problem.tensor_conversion import to_batch_tensor
from pear.setting_checks import check_smoothing_setting
from pear.solvers.time_limit import limit_time


@follow_costs
def solve(
    problem: Problem | Model,
    cost: Any,
    smoothing: float | Literal["auto"] = 0.0,
    solver: str = "auto",
    on_failure: OnFailure = "raise",
    time_limit: float | None = None,
    known: Any = None,
    **overrides: Any,
) -> Solution:
    """Solve ``min (or max) ½zᵀQz + cᵀz (+ φ)`` for every row of ``cost``.

    The answer of a solver is only a candidate: it is verified, and its active set is repaired where needed. The
    returned decision satisfies the optimality conditions to rounding. An integer problem is solved in integers, and the
    proof of optimality is checked.

    Args:
        problem: the constraints and the known part of the objective; a ``Model`` maps predicted values to costs. Where
            it predicts right-hand sides too, the elastic problem of its recourse is solved. The function of an
            ``Oracle`` decides; whether its decisions are optimal is not checked, and their status is CLAIMED.
        cost: (B, n) or (n,), tensor, array or list; (B, k) or (k,) values that a cost map takes.
        smoothing: λ ≥ 0, which adds ½λ‖z‖² to the minimised objective. "auto" picks λ_j for each variable from costs
            and decisions, in any units, adds ``½ Σ λ_j z_j²``, and logs it.
        solver: "auto" or a name that ``pear solvers`` lists.
        on_failure: "raise" raises an error that names the samples without a solution. "mask" warns instead; these
            samples get NaN and a status.
        time_limit: seconds for the whole batch of an integer problem; each sample may use an equal share of what is
            left. Samples that are not proven optimal by then get the status TIME_LIMIT: "raise" names their gaps,
            "mask" returns the best points found. Continuous problems ignore the limit.
        known: the known values of each sample, if the model has any: a dictionary from their names to
            arrays (B, …), a DataFrame, or an array where there is one; see ``Model.with_known``.
        **overrides: Q, A, b, G, h, lb or ub for this call, shared or one per sample.

    Returns:
        A ``Solution``; floating-point results come back in the dtype and on the device of ``cost``.

    Example:
        >>> import pear
        >>> square = pear.Problem(lb=[0.0, 0.0], ub=[1.0, 1.0])
        >>> pear.solve(square, [[1.0, -2.0]]).x
        tensor([[0., 1.]], dtype=torch.float64)
    """
    check_on_failure(on_failure)
    problem = fill_known_samples(problem, known, cost)
    model = model_with_predicted_rows(problem)
    problem, curvature = split_curvature_map(problem, cost)
    if curvature is not None:
        overrides["Q"] = curvature
    plain, cost_map = split_cost_model(problem) if model is None else (model.problem, None)
    check_pandas_columns(problem, pandas_columns(cost), "cost")
    costs = to_batch_tensor(cost) if cost_map is None else cost_map(to_batch_tensor(cost))
    if model is not None:
        refuse_fields(overrides)
    if model is None and time_limit is None and not given_fields(**overrides):
        found = _solve_in_one_pass(plain, costs, smoothing, solver)
        if found is not None:
            return _in_kind(found, costs)
    what = "the problem"
    with limit_time(time_limit):
        if model is not None:
            solution = solve_forecast(model, costs, smoothing, solver)
        elif isinstance(plain, Oracle):
            solution, what = decide_by_oracle(plain, costs, smoothing, solver, **overrides)
        elif plain.is_integer:
            solution = solve_integer_programs(plain, costs, smoothing, solver, **overrides)
        else:
            solution = _solve_continuous(plain, costs, smoothing, solver, given_fields(**overrides))
    report_failures(solution.status, on_failure, what, gap=solution.gap, unchecked=solution.unchecked)
    return _in_kind(solution, costs)


def _solve_continuous(
    problem: Problem, cost: Tensor, smoothing: float | Literal["auto"], solver: str, fields: dict[str, Any]
) -> Solution:
    """Solve a continuous problem in the pipeline."""
    scale = choose_smoothing(problem, cost, smoothing, **fields)
    scaled = scale.problem(problem)
    solved = solve_continuous_programs(scaled, scale.times_units(cost), scale.value, solver, **scale.fields(fields))
    return _in_own_units(as_solution(scaled, solved), scale)


def _solve_in_one_pass(
    problem: Problem, cost: Tensor, smoothing: float | Literal["auto"], solver: str
) -> Solution | None:
    """Solve all samples by one call of a solver; None where that is not possible."""
    if isinstance(problem, Oracle) or problem.is_integer:
        return None
    check_smoothing_setting(smoothing)
    return None if smoothing == "auto" else solve_in_one_pass(problem, cost, float(smoothing), solver)


def _in_kind(solution: Solution, costs: Tensor) -> Solution:
    """Return a solution with its floating-point results in the dtype of the costs."""
    if costs.dtype == torch.float64:  # that of every solution
        return solution
    return solution.map(lambda value: value.to(costs.dtype) if value.is_floating_point() else value)


def _in_own_units(solution: Solution, scale: Smoothing) -> Solution:
    """Convert a solution to the variables of the user's problem."""
    if scale.units is None or solution.duals is None:
        return solution
    duals = replace(solution.duals, bound=scale.per_unit(solution.duals.bound))
    return replace(solution, x=scale.times_units(solution.x), duals=duals)
