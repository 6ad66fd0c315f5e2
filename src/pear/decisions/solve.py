"""``pear.solve``: solves a decision problem for a batch of costs."""

from __future__ import annotations

import logging
import math
import warnings
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from pear.decisions.integer_programs import refuse_curvature, solve_integer
from pear.decisions.pipeline import solve_programs
from pear.decisions.smooth_objective import solve_smooth
from pear.decisions.smoothing import Smoothing, smoothing_from_decisions
from pear.decisions.solution import Solution
from pear.errors import FailedSamplesWarning, ProblemError, SolveError, list_positions
from pear.optimality.duals_and_active_sets import Status
from pear.problem import Model, Problem
from pear.problem.array_conversion import as_batch, given_fields, is_per_sample
from pear.problem.keys_and_columns import check_column_order, column_names
from pear.problem.matrix import matvec
from pear.problem.model import problem_and_cost_map, recourse_model
from pear.sensitivity.verified_solutions import VerifiedSolutions
from pear.solvers.candidate import Start
from pear.solvers.registry import get, resolve
from pear.solvers.time_limit import within

logger = logging.getLogger("pear")

OnFailure = Literal["raise", "mask"]

_ENOUGH, _ENOUGH_SPARSE = 256, 32  # most samples, and most variables without a range, that "auto" solves for


def solve(
    problem: Problem | Model,
    cost: Any,
    smoothing: float | Literal["auto"] = 0.0,
    solver: str = "auto",
    on_failure: OnFailure = "raise",
    time_limit: float | None = None,
    **overrides: Any,
) -> Solution:
    """Solve ``min (or max) ½zᵀQz + cᵀz (+ φ)`` for every row of ``cost``.

    The answer of a solver is only a candidate: it is verified, and its active set is repaired where needed. The
    returned decision satisfies the optimality conditions to rounding. An integer problem is solved in integers, and the
    proof of optimality is checked.

    Args:
        problem: the constraints and the known part of the objective; a ``Model`` maps predicted values to costs. Where
            it predicts right-hand sides too, the elastic problem of its recourse is solved.
        cost: (B, n) or (n,), tensor, array or list; (B, k) or (k,) values that a cost map takes.
        smoothing: λ ≥ 0, which adds ½λ‖z‖² to the minimised objective. "auto" picks λ_j for each variable from costs
            and decisions, in any units, adds ``½ Σ λ_j z_j²``, and logs it.
        solver: "auto" or a name that ``pear solvers`` lists.
        on_failure: "raise" raises an error that names the samples without a solution. "mask" warns instead; these
            samples get NaN and a status.
        time_limit: seconds for the whole batch of an integer problem; each sample may use an equal share of what is
            left. Samples that are not proven optimal by then get the status TIME_LIMIT: "raise" names their gaps,
            "mask" returns the best points found. Continuous problems ignore the limit.
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
    model = recourse_model(problem)
    if model is not None:
        check_column_order(model, column_names(cost), "cost")
        return _solve_forecast(model, as_batch(cost), smoothing, solver, on_failure, time_limit, overrides)
    whole, (problem, cost_map) = problem, problem_and_cost_map(problem)
    check_column_order(whole, column_names(cost), "cost")
    costs = as_batch(cost) if cost_map is None else cost_map(as_batch(cost))
    with within(time_limit):
        if problem.is_integer:
            check_smoothing(smoothing)
            refuse_curvature(problem, math.inf if smoothing == "auto" else smoothing, overrides)
            solution = solve_integer(problem, problem.canonical(costs, 0.0, **overrides), solver)
        else:
            scale = choose_smoothing(problem, costs, smoothing, **overrides)
            problem, given = scale.problem(problem), scale.fields(given_fields(**overrides))
            solved = solve_verified(problem, scale.times_units(costs), scale.value, solver, **given)
            solution = _in_own_units(as_solution(problem, solved), scale)
    report_failures(solution.status, on_failure, "the problem", gap=solution.gap)
    return _in_kind(solution, costs)


def _solve_forecast(
    model: Model,
    values: Tensor,
    smoothing: float | Literal["auto"],
    solver: str,
    on_failure: OnFailure,
    time_limit: float | None,
    overrides: dict[str, Any],
) -> Solution:
    """Solve for a model with predicted right-hand sides; the arguments are those of ``solve``."""
    from pear.decisions.recourse_decider import solve_forecast  # that module imports this one

    if overrides:
        raise ProblemError(
            f"{', '.join(overrides)} came with a model that predicts right-hand sides; put them into its problem"
        )
    with within(time_limit):
        solution = solve_forecast(model, values, smoothing, solver)
    report_failures(solution.status, on_failure, "the problem", gap=solution.gap)
    return _in_kind(solution, values)


def solve_verified(
    problem: Problem,
    cost: Tensor,
    smoothing: float,
    solver: str,
    start: Start | None = None,
    known: Tensor | None = None,
    **overrides: Any,
) -> VerifiedSolutions:
    """Solve the continuous relaxation exactly, in float64 and as a minimisation.

    No error is raised for failed samples; their status says why they failed.

    Args:
        problem, cost, smoothing, solver, overrides: as for ``solve``.
        start: warm starts, or None.
        known: (B,) int8 statuses of samples that are known to fail, SOLVED elsewhere.
    """
    qp = problem.canonical(cost, smoothing, **overrides)
    kind = "lp" if problem.phi is None and qp.is_linear else "qp"
    solvers = resolve(solver, kind, problem.is_sparse)
    named = solver != "auto"
    if problem.phi is not None:
        return solve_smooth(problem, qp, solvers, named)
    # the problem's own curvature was checked at construction; that of a call has not been checked
    given = overrides.get("Q") is not None
    vertex = not named and problem.is_sparse
    return solve_programs(qp, solvers, start, check_convexity=given, seek_vertex=vertex, known=known, named=named)


def choose_smoothing(problem: Problem, cost: Tensor, smoothing: float | str, **overrides: Any) -> Smoothing:
    """Return the given λ, or choose λ for "auto" from costs and decisions; 0 for an objective with curvature.

    Args:
        problem: the continuous problem of these samples.
        cost: (B, n).
        smoothing: λ or "auto".
        **overrides: as for ``solve``.
    """
    check_smoothing(smoothing)
    if smoothing != "auto":
        return Smoothing.given(float(smoothing))
    if problem.is_curved or overrides.get("Q") is not None:
        found = Smoothing(0.0, note="smoothing='auto' settled on λ = 0: the objective is curved by itself")
    else:
        found = _auto_smoothing(problem, cost, given_fields(**overrides))
    logger.info(found.note)
    return found


def _auto_smoothing(problem: Problem, cost: Tensor, overrides: dict[str, Any]) -> Smoothing:
    """Solve some of the samples without smoothing, and choose λ from their decisions."""
    fields, enough = problem.checked(cost, **overrides), _ENOUGH_SPARSE if problem.is_sparse else _ENOUGH

    def solve_for(costs: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        given = {name: fields[name] for name in overrides}
        own: Any = {name: value[rows] if is_per_sample(name, value) else value for name, value in given.items()}
        solved = solve_verified(problem[rows], costs, 0.0, "auto", **own)
        # Put variables that a bound holds exactly on it: the rounding between them is not a range.
        x = torch.where(solved.active.lower, solved.qp.lb, torch.where(solved.active.upper, solved.qp.ub, solved.x))
        return x, solved.solved

    def reach(variables: Tensor) -> Tensor:
        if len(variables) > enough:
            return torch.full_like(cost[0, variables], torch.nan, dtype=torch.float64)
        ends = torch.zeros(len(variables), problem.n, dtype=torch.float64, device=cost.device)
        ends.scatter_(1, variables[:, None], 1.0)
        points, solved = solve_for(torch.cat([ends, -ends]), torch.zeros_like(variables).repeat(2))
        low, high = (points * ends.repeat(2, 1)).sum(1).chunk(2)
        return torch.where(solved.reshape(2, -1).all(0), (high - low).abs(), torch.nan)

    some = torch.linspace(0, len(cost) - 1, min(len(cost), enough), device=cost.device).round().long()
    decisions, solved = solve_for(cost[some], some)
    costs = problem.sign * cost.detach()[some]
    return smoothing_from_decisions(costs, decisions, solved, (fields.get("lb"), fields.get("ub")), reach)


def check_smoothing(smoothing: float | str) -> None:
    """Raise ProblemError where λ is neither a finite number of at least 0 nor "auto"."""
    number = isinstance(smoothing, (int, float)) and not isinstance(smoothing, bool)
    if smoothing != "auto" and not (number and 0 <= float(smoothing) < math.inf):
        raise ProblemError(f"smoothing must be a number of at least 0, or 'auto'; got {smoothing!r}")


def check_solver(solver: str) -> None:
    """Raise UnknownSolverError where the registry has no solver of this name, installed or not."""
    if solver != "auto":
        get(solver)


def check_on_failure(on_failure: str) -> None:
    """Raise ProblemError where ``on_failure`` is neither "raise" nor "mask"."""
    if on_failure not in ("raise", "mask"):
        raise ProblemError(f"on_failure must be 'raise' or 'mask'; got {on_failure!r}")


def report_failures(
    status: Tensor, on_failure: str, what: str, spreads: bool = False, gap: Tensor | None = None
) -> None:
    """Raise an error, or warn, where samples are not solved; the message names each reason with its samples.

    Args:
        status: (B,) int8 of ``Status``.
        on_failure: "raise" or "mask".
        what: the problem that was to be solved, in words.
        spreads: whether the samples come from a model that is being trained. The warning then says that NaN in its
            inputs makes the gradient of its weights NaN.
        gap: (B,) gaps of integer programs; the message names them for samples with TIME_LIMIT.

    Raises:
        SolveError: a sample is not solved, and ``on_failure`` is "raise".
    """
    bad = (status != Status.SOLVED).nonzero()[:, 0].tolist()
    if not bad:
        return
    statuses = [Status(int(status[i])) for i in bad]
    alike = {one: [i for i, other in zip(bad, statuses, strict=True) if other == one] for one in statuses}
    named = "; ".join(
        f"{list_positions('sample', some)} ({one.name}{_gaps(one, gap, some)}): {one.sentence}"
        for one, some in alike.items()
    )
    message = f"{len(bad)} of {len(status)} samples could not be solved for {what}: {named}"
    if on_failure == "raise":
        hint = "leave them out, or pass on_failure='mask' where it is an argument"
        raise SolveError(f"{message}. To go on, {hint}", bad, statuses)
    if spreads and Status.NOT_FINITE in statuses:
        message += (
            ". Behind a prediction that is not finite the gradient of the weights is NaN where a feature is, because "
            "0 × NaN is NaN: leave these rows out before the model sees them, as pear.fit does"
        )
    warnings.warn(message, FailedSamplesWarning, stacklevel=3)


def _gaps(status: Status, gap: Tensor | None, samples: list[int]) -> str:
    if status != Status.TIME_LIMIT or gap is None:
        return ""
    found = [float(gap[i]) for i in samples if not bool(gap[i].isnan())]
    if not found:
        return ", no point"
    without = f", {len(samples) - len(found)} without a point" if len(found) < len(samples) else ""
    return f", {'gap' if len(samples) == 1 else 'gaps up to'} {max(found):.1e}{without}"


def as_solution(problem: Problem, v: VerifiedSolutions) -> Solution:
    """Convert verified solutions to a ``Solution``, with values in the problem's own sense."""
    x = torch.where(v.solved[:, None], v.x, torch.nan)
    value = problem.sign * (v.x * (0.5 * matvec(v.qp.H, v.x) + v.qp.c)).sum(1)
    if problem.phi is not None:
        value = value + _constant_of_model(problem, v)
    return Solution(
        x=x,
        value=torch.where(v.solved, value, torch.nan),
        status=v.status,
        active=v.active,
        weak=v.weak,
        duals=v.duals,
        kkt_residual=v.kkt_residual,
        repaired=v.repaired,
        gap=torch.where(v.solved, 0.0, torch.nan).to(v.x),
    )


def _in_own_units(solution: Solution, scale: Smoothing) -> Solution:
    """Convert a solution to the variables of the user's problem."""
    if scale.units is None or solution.duals is None:
        return solution
    duals = replace(solution.duals, bound=scale.per_unit(solution.duals.bound))
    return replace(solution, x=scale.times_units(solution.x), duals=duals)


def _constant_of_model(problem: Problem, v: VerifiedSolutions) -> Tensor:
    """Return φ(z) minus its quadratic model at z, (B,); ``v.qp`` contains this model."""
    assert problem.phi is not None
    slope, curvature = problem.phi.gradient(v.x), problem.phi.hessian(v.x)
    return problem.phi.value(v.x) - (v.x * (slope - 0.5 * matvec(curvature, v.x))).sum(1)


def _in_kind(solution: Solution, cost: Tensor) -> Solution:
    """Convert floating-point results to the dtype of the costs."""

    def convert(value: Tensor) -> Tensor:
        return value.to(cost.dtype) if value.is_floating_point() else value

    return solution.map(convert)
