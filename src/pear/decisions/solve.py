"""``pear.solve``: solves a decision problem for a batch of costs."""

from __future__ import annotations

from typing import Any, Literal

from pear.decisions.choose_smoothing import choose_smoothing
from pear.decisions.continuous_programs import solve_continuous_programs
from pear.decisions.decision_device import on_chosen_device
from pear.decisions.failures import OnFailure, check_on_failure, report_failures
from pear.decisions.integer_programs import solve_integer_programs
from pear.decisions.one_pass import solve_in_one_pass
from pear.decisions.oracle_decisions import decide_by_oracle
from pear.decisions.recourse_decider import RecourseDecider
from pear.decisions.solution import Solution, as_solution, solution_in_dtype, solution_in_user_units
from pear.decisions.solve_with_recourse import solve_with_recourse
from pear.problem import Model, Oracle, Problem
from pear.problem.curvature_map import split_curvature_map
from pear.problem.known_samples import fill_known_samples
from pear.problem.model import model_with_predicted_rows, split_cost_model
from pear.problem.pandas_data import check_pandas_columns, pandas_columns
from pear.problem.problem_fields import given_fields
from pear.problem.tensor_conversion import to_batch_tensor
from pear.solvers.time_limit import limit_time


@on_chosen_device
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
    """Solve ``min (or max) ½zᵀQz + cᵀz (+ φ(z))`` for every row of ``cost``.

    The cost c of a sample is its row of ``cost``. Q and the smooth term φ belong to the problem, if it has any.
    The answer of a solver is only a candidate: it is verified, and its active set is repaired if necessary. The
    returned decision satisfies the optimality conditions to rounding. An integer problem is solved in integers, and the
    proof of optimality is checked.

    Args:
        problem: the constraints and the known part of the objective. The cost map of a ``Model`` maps predicted values
            to costs. If the model also predicts right-hand sides, the elastic problem of its recourse is solved. The
            function of an ``Oracle`` decides; its decisions are not checked for optimality and have the status CLAIMED.
        cost: (B, n) or (n,) costs as a tensor, array or list; or (B, k) or (k,) values, which a cost map maps to costs.
        smoothing: λ ≥ 0, which adds ``½λ‖z‖²`` to the minimised objective. "auto" chooses λ_j for each variable from
            costs and decisions, and adds ``½ Σ λ_j z_j²``. If the problem has a Q, it adds only what Q lacks of this
            curvature. The choice is logged. It does not depend on the units of variables and costs.
        solver: "auto" or a name that ``pear solvers`` lists.
        on_failure: "raise" raises an error that names the samples without a solution. "mask" warns instead; these
            samples get NaN and a status.
        time_limit: seconds for the whole batch of an integer problem; each sample may use an equal share of the time
            that is left. Samples that are not proven optimal in time get the status TIME_LIMIT: "raise" names their
            gaps, "mask" returns the best points found. Continuous problems ignore the limit.
        known: the known values of each sample, if the model has any: a dictionary from their names to arrays (B, …), a
            DataFrame, or an array if only one value is known; see ``Model.with_known``.
        **overrides: Q, A, b, G, h, lb or ub, which replace those of the problem in this call, shared by all samples or
            one per sample.

    Returns:
        A ``Solution``, with floating-point results in the dtype and on the device of ``cost``.

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
        RecourseDecider.refuse_fields(overrides)
    if model is None and time_limit is None and not given_fields(**overrides):
        found = solve_in_one_pass(plain, costs, smoothing, solver)
        if found is not None:
            return solution_in_dtype(found, costs.dtype)
    what = "the problem"
    with limit_time(time_limit):
        if model is not None:
            solution = solve_with_recourse(model, costs, smoothing, solver)
        elif isinstance(plain, Oracle):
            solution, what = decide_by_oracle(plain, costs, smoothing, solver, **overrides)
        elif plain.is_integer:
            solution = solve_integer_programs(plain, costs, smoothing, solver, **overrides)
        else:
            fields = given_fields(**overrides)
            scale = choose_smoothing(plain, costs, smoothing, **fields)
            scaled, scaled_costs, fields = scale.problem(plain), scale.times_units(costs), scale.fields(fields)
            solved = solve_continuous_programs(scaled, scaled_costs, scale.value, solver, **fields)
            solution = solution_in_user_units(as_solution(scaled, solved), scale)
    report_failures(solution.status, on_failure, what, gap=solution.gap, unchecked=solution.unchecked)
    return solution_in_dtype(solution, costs.dtype)
