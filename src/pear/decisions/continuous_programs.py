"""Continuous programs: quadratic ones go to the pipeline, those with a smooth convex term φ to Newton's method.

Newton's method replaces the objective at z by its second-order model and solves that QP exactly. The direction leads to
the minimiser of the model over the constraints, and a backtracking line search lowers the objective along it. Near the
solution the steps are full and converge quadratically. The gradient of the decision uses the last model, whose H is the
Hessian at the solution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from pear.decisions.pipeline import solve_in_pipeline
from pear.errors import ProblemError
from pear.optimality.status import Status
from pear.problem import Problem
from pear.problem.matrix import matvec
from pear.problem.quadratic_program import QuadraticProgram
from pear.sensitivity.verified_solutions import VerifiedSolutions
from pear.solvers.backend_registry import Backend, order_backends_by_cost, resolve_backends
from pear.solvers.candidate import Start

_MAX_STEPS = 100
_HALVINGS = 40  # of a step in the line search
_STILL = 1e-11  # relative length of a step that counts as zero
_ARMIJO = 1e-4  # share of the predicted decrease that a step must achieve


def solve_continuous_programs(
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
        problem, cost, smoothing, solver, overrides: as for ``pear.solve``.
        start: warm starts, or None.
        known: (B,) int8 statuses of samples that are known to fail, SOLVED elsewhere.
    """
    qp = problem.canonical(cost, smoothing, **overrides)
    kind = "lp" if problem.phi is None and qp.is_linear else "qp"
    solvers = resolve_backends(solver, kind, problem.is_sparse)
    named = solver != "auto"
    if problem.phi is not None:
        return _solve_by_newton(problem, qp, solvers, named)
    # the problem's own curvature was checked at construction; that of a call has not been checked
    given = overrides.get("Q") is not None
    vertex = not named and problem.is_sparse
    solvers = solvers if named else order_backends_by_cost(solvers, qp)
    return solve_in_pipeline(qp, solvers, start, check_convexity=given, seek_vertex=vertex, known=known, named=named)


def _solve_by_newton(
    problem: Problem, base: QuadraticProgram, solvers: Sequence[Backend], named: bool
) -> VerifiedSolutions:
    """Solve ``min φ(z) + ½zᵀHz + cᵀz`` over the constraints of ``base`` for every sample.

    Args:
        problem: carries φ (``pear.Smooth``) and the sense.
        base: the canonical programs without φ.
        solvers: the solvers to try for the quadratic models, in order.
        named: whether the user chose the first solver by name; it must then take the programs.

    Returns:
        The verified solutions of the last model; samples that have not converged are INACCURATE.
    """
    nearest = _feasible_start(problem, base, solvers, named)
    z, start = nearest.x, None
    for _ in range(_MAX_STEPS):
        result = solve_in_pipeline(_quadratic_model(problem, base, z), solvers, start)
        direction = torch.where(result.solved[:, None], result.x - z, torch.zeros_like(z))
        still = direction.abs().amax(1) <= _STILL * z.abs().amax(1).clamp(min=1e-300)
        resting = still | ~result.solved
        if bool(resting.all()):
            break
        z = z + _step_length(problem, base, z, direction) * direction
        start = result.as_start()
    result.status[~resting & result.solved] = int(Status.INACCURATE)
    result.status = torch.where(nearest.solved, result.status, nearest.status)
    return result


def _feasible_start(
    problem: Problem, base: QuadraticProgram, solvers: Sequence[Backend], named: bool
) -> VerifiedSolutions:
    """Find the feasible point nearest to φ's start, or to zero without one.

    Raises:
        ProblemError: φ is not finite there.
    """
    assert problem.phi is not None
    eye = torch.eye(base.n, dtype=base.c.dtype, device=base.c.device)[None]
    centre = problem.phi.start if problem.phi.start is not None else torch.zeros(base.n)
    c = -torch.as_tensor(centre, dtype=base.c.dtype, device=base.c.device).expand_as(base.c)
    nearest = solve_in_pipeline(replace(base, H=eye, c=c, diagonal=True), solvers, named=named)
    outside = nearest.solved & ~problem.phi.value(nearest.x).isfinite()
    if bool(outside.any()):
        raise ProblemError(
            f"phi is not finite at the starting point of sample {int(outside.nonzero()[0])}; "
            "expected a point in its domain: pass Smooth(..., start=z) with z near the feasible set's interior"
        )
    return nearest


def _quadratic_model(problem: Problem, base: QuadraticProgram, z: Tensor) -> QuadraticProgram:
    """Make the quadratic programs whose objective agrees with the true one at z (B, n) up to second order."""
    assert problem.phi is not None
    curvature = problem.sign * problem.phi.hessian(z)
    slope = problem.sign * problem.phi.gradient(z)
    return replace(base, H=base.H + curvature, c=base.c + slope - matvec(curvature, z), diagonal=False)


def _objective_with_phi(problem: Problem, base: QuadraticProgram, z: Tensor) -> Tensor:
    """Compute the objective (B,) with φ at z (B, n); infinite outside the domain of φ and of its gradient."""
    assert problem.phi is not None
    value = base.objective(z) + problem.sign * problem.phi.value(z)
    # a point on the edge of φ's domain may have a value, but no slope to go on from
    inside = problem.phi.gradient(z).isfinite().all(1) & ~value.isnan()
    return torch.where(inside, value, torch.inf)


def _step_length(problem: Problem, base: QuadraticProgram, z: Tensor, direction: Tensor) -> Tensor:
    """Return the largest of 1, ½, ¼, … that lowers the objective enough, (B, 1); 1 for a direction of zero."""
    assert problem.phi is not None
    slope = base.c + matvec(base.H, z) + problem.sign * problem.phi.gradient(z)
    fall = (slope * direction).sum(1)
    here = _objective_with_phi(problem, base, z)
    noise = 1e-14 * here.abs()  # near the solution the decrease is below rounding, and a full step is right
    length = torch.ones_like(here)
    for _ in range(_HALVINGS):
        there = _objective_with_phi(problem, base, z + length[:, None] * direction)
        high = ~(there <= here + _ARMIJO * length * fall + noise)
        if not bool(high.any()):
            break
        length = torch.where(high, length / 2, length)
    return length[:, None]
