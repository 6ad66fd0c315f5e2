"""``pear.solve``: the decision for a batch of costs."""

from __future__ import annotations

import logging
import math
import warnings
from typing import Any, Literal

import torch
from torch import Tensor

from pear.decisions.pipeline import solve_programs
from pear.decisions.smooth import solve_smooth
from pear.decisions.solution import Solution
from pear.errors import FailedSamplesWarning, ProblemError, SolveError
from pear.optimality.active import tight_constraints
from pear.optimality.point import ActiveSet, Duals, Status
from pear.optimality.scale import measure
from pear.optimality.screen import screen
from pear.problem import Problem
from pear.problem.canonical import QuadraticProgram, matvec
from pear.problem.convert import as_batch
from pear.sensitivity.verified import Verified
from pear.solvers.base import Start
from pear.solvers.registry import Backend, get, resolve

logger = logging.getLogger("pear")

OnFailure = Literal["raise", "mask"]
_INTEGER_TOLERANCE = 1e-9


def solve(
    problem: Problem,
    cost: Any,
    smoothing: float | Literal["auto"] = 0.0,
    solver: str = "auto",
    on_failure: OnFailure = "raise",
    **overrides: Any,
) -> Solution:
    """Solve ``min (or max) ½zᵀQz + cᵀz (+ φ)`` for every row of ``cost``.

    Whatever the solver, its answer is only a candidate: it is verified, its active set repaired where needed, and the
    returned decision satisfies the optimality conditions to rounding. Integer problems are solved as such, by HiGHS.

    Args:
        problem: the constraints and the known part of the objective.
        cost: (B, n) or (n,), tensor, array or list.
        smoothing: λ ≥ 0, adds ½λ‖z‖² to what is minimised; "auto" picks it from the scale of the costs and logs it.
        solver: "auto" or a name that ``pear solvers`` lists.
        on_failure: "raise" names the samples that have no solution; "mask" warns, and gives them NaN and a status.
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
    costs = as_batch(cost)
    lam = choose_smoothing(problem, costs, smoothing)
    if problem.is_integer:
        _refuse_smooth_integer(problem, lam, overrides)
        qp = problem.canonical(costs, 0.0, **overrides)
        solution = _solve_integer(problem, qp, resolve(solver, "milp")[0])
    else:
        verified = solve_verified(problem, costs, lam, solver, **overrides)
        solution = _as_solution(problem, verified)
    fail(solution.status, on_failure, "the problem")
    return _in_kind(solution, costs)


def solve_verified(
    problem: Problem, cost: Tensor, smoothing: float, solver: str, start: Start | None = None, **overrides: Any
) -> Verified:
    """The continuous relaxation, solved exactly, in float64 and in the minimised form; nothing is raised or masked."""
    qp = problem.canonical(cost, smoothing, **overrides)
    kind = "lp" if problem.phi is None and qp.is_linear else "qp"
    solvers = resolve(solver, kind, problem.is_sparse)
    if problem.phi is not None:
        return solve_smooth(problem, qp, solvers)
    # the problem's own curvature was checked when it was made; one that comes with the call may be anything
    given = overrides.get("Q") is not None
    return solve_programs(qp, solvers, start, check_convexity=given, seek_vertex=solver == "auto")


def choose_smoothing(problem: Problem, cost: Tensor, smoothing: float | str) -> float:
    """The value of λ: as given, or for "auto" a tenth of the mean cost; 0 where the problem is curved by itself."""
    check_smoothing(smoothing)
    if smoothing != "auto":
        return float(smoothing)
    if problem.is_curved:
        picked = 0.0
    else:
        size = cost.detach().double().abs()
        size = size[size.isfinite()]
        picked = float(f"{0.1 * float(size.mean()) if size.numel() else 0.1:.2g}") or 0.1
    logger.info("smoothing='auto' picked %g", picked)
    return picked


def check_smoothing(smoothing: float | str) -> None:
    """λ is a finite number of at least 0, or "auto"."""
    number = isinstance(smoothing, (int, float)) and not isinstance(smoothing, bool)
    if smoothing != "auto" and not (number and 0 <= float(smoothing) < math.inf):
        raise ProblemError(f"smoothing must be a number of at least 0, or 'auto'; got {smoothing!r}")


def check_solver(solver: str) -> None:
    """The name is in the registry; whether it is installed shows when it is used."""
    if solver != "auto":
        get(solver)


def check_on_failure(on_failure: str) -> None:
    """Refuse anything but the two words."""
    if on_failure not in ("raise", "mask"):
        raise ProblemError(f"on_failure must be 'raise' or 'mask'; got {on_failure!r}")


def fail(status: Tensor, on_failure: str, what: str) -> None:
    """Raise for, or warn of, every sample that is not solved."""
    bad = (status != Status.SOLVED).nonzero()[:, 0].tolist()
    if not bad:
        return
    statuses = [Status(int(status[i])) for i in bad]
    named = "; ".join(
        f"sample {i} ({one.name}): {one.sentence}" for i, one in list(zip(bad, statuses, strict=True))[:5]
    )
    more = f"; and {len(bad) - 5} more" if len(bad) > 5 else ""
    message = f"{len(bad)} of {len(status)} samples could not be solved for {what}: {named}{more}"
    if on_failure == "raise":
        raise SolveError(f"{message}. Pass on_failure='mask' to leave them out", bad, statuses)
    warnings.warn(message, FailedSamplesWarning, stacklevel=3)


def _refuse_smooth_integer(problem: Problem, smoothing: float, overrides: dict[str, Any]) -> None:
    if smoothing > 0 or problem.is_curved or overrides.get("Q") is not None:
        raise ProblemError(
            "an integer problem must have a linear objective: expected smoothing=0, no Q and no phi; "
            "solve problem.relaxed() to smooth the continuous relaxation"
        )


def _as_solution(problem: Problem, v: Verified) -> Solution:
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
    )


def _constant_of_model(problem: Problem, v: Verified) -> Tensor:
    """φ(z) less what the quadratic model of it, which v.qp carries, is worth at z."""
    assert problem.phi is not None
    slope, curvature = problem.phi.gradient(v.x), problem.phi.hessian(v.x)
    return problem.phi.value(v.x) - (v.x * (slope - 0.5 * matvec(curvature, v.x))).sum(1)


def _solve_integer(problem: Problem, qp: QuadraticProgram, backend: Backend) -> Solution:
    """Integer programs: certified optimal by the solver's bound (gap 0), integers made exact."""
    status = screen(qp)
    index = (status == Status.SOLVED).nonzero()[:, 0]
    x = torch.full_like(qp.c, torch.nan)
    if len(index):
        candidate = backend.solve(qp[index], _INTEGER_TOLERANCE)
        status[index] = candidate.status
        x[index] = torch.where(qp.integer, candidate.x.round(), candidate.x) if qp.integer is not None else candidate.x
    solved = status == Status.SOLVED
    x = torch.where(solved[:, None], x, torch.nan)
    none = ActiveSet.none(qp.batch, qp.n, qp.m, qp.c.device)
    return Solution(
        x=x,
        value=problem.sign * (x * qp.c).sum(1),
        status=status,
        active=tight_constraints(qp, measure(qp, x.nan_to_num(), _no_duals(qp)), none)[0],
        weak=none,
        duals=None,
        kkt_residual=_violation(qp, x) if qp.batch else qp.c.new_zeros(0),
        repaired=torch.zeros_like(solved),
    )


def _no_duals(qp: QuadraticProgram) -> Duals:
    return Duals(*(qp.c.new_zeros(qp.batch, size) for size in (qp.p, qp.m, qp.n)))


def _violation(qp: QuadraticProgram, x: Tensor) -> Tensor:
    """(B,) largest scaled violation of rows and bounds after rounding to integers."""
    size = x.abs().amax(1, keepdim=True).clamp(min=1.0)
    parts = [
        matvec(qp.A, x) - qp.b,
        (matvec(qp.G, x) - qp.h).clamp(min=0),
        (qp.lb - x).clamp(min=0),
        (x - qp.ub).clamp(min=0),
    ]
    return (torch.cat(parts, 1).abs() / size).amax(1)


def _in_kind(solution: Solution, cost: Tensor) -> Solution:
    """Floating-point results in the dtype of the costs."""

    def convert(value: Tensor) -> Tensor:
        return value.to(cost.dtype) if value.is_floating_point() else value

    return solution.map(convert)
