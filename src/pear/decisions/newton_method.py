"""Newton's method for convex programs whose objective has a smooth term φ.

Each step solves a QP whose objective has the same gradient and Hessian at the current point z as the true objective. A
backtracking line search then lowers the true objective along the direction from z to the QP's solution. Near the
solution of the program, full steps converge quadratically. The gradient of the decision uses the last QP, whose H is
the Hessian at the solution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from pear.decisions.pipeline import solve_in_pipeline
from pear.errors import ProblemError
from pear.optimality.status import Status
from pear.problem import Problem
from pear.problem.matrix import matvec
from pear.problem.quadratic_program import QuadraticProgram
from pear.sensitivity.verified_solutions import VerifiedSolutions
from pear.solvers.backend_registry import Backend
from pear.solvers.candidate import Start

_MAX_STEPS = 100
_HALVINGS = 40  # the most halvings of a step in the line search
_STILL = 1e-11  # relative length of a step that counts as zero
_ARMIJO = 1e-4  # share of the predicted decrease that a step must achieve


def solve_by_newton_method(
    problem: Problem, base: QuadraticProgram, solvers: Sequence[Backend], named: bool
) -> VerifiedSolutions:
    """Solve ``min φ(z) + ½zᵀHz + cᵀz`` over the constraints of ``base`` for every sample.

    Args:
        problem: the problem, which contains φ (``pear.Smooth``) and the sense.
        base: the canonical programs without φ, which contain H, c and the constraints.
        solvers: the solvers to try for the QPs, in order.
        named: whether the user chose the first solver by name. If so, a solver that does not support the programs
            raises UnknownSolverError.

    Returns:
        The verified solutions of the last QPs; samples that have not converged are INACCURATE.
    """
    nearest = _find_newton_start(problem, base, solvers, named)
    z = nearest.x
    start: Start | None = None
    for _ in range(_MAX_STEPS):
        result = solve_in_pipeline(_newton_model(problem, base, z), solvers, start)
        direction = torch.where(result.solved[:, None], result.x - z, torch.zeros_like(z))
        still = direction.abs().amax(1) <= _STILL * z.abs().amax(1).clamp(min=1e-300)
        resting = still | ~result.solved
        if bool(resting.all()):
            break
        z = z + _newton_step_length(problem, base, z, direction) * direction
        start = result.as_start()
    result.status[~resting & result.solved] = int(Status.INACCURATE)
    result.status = torch.where(nearest.solved, result.status, nearest.status)
    return result


def _find_newton_start(
    problem: Problem, base: QuadraticProgram, solvers: Sequence[Backend], named: bool
) -> VerifiedSolutions:
    """Find each sample's feasible point nearest to the starting point of φ, or nearest to zero if φ has none.

    Raises:
        ProblemError: φ is not finite at the feasible point.
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


def _newton_model(problem: Problem, base: QuadraticProgram, z: Tensor) -> QuadraticProgram:
    """Return the QPs whose objective has the same gradient and Hessian at z (B, n) as the true objective."""
    assert problem.phi is not None
    curvature = problem.sign * problem.phi.hessian(z)
    slope = problem.sign * problem.phi.gradient(z)
    return replace(base, H=base.H + curvature, c=base.c + slope - matvec(curvature, z), diagonal=False)


def _newton_objective(problem: Problem, base: QuadraticProgram, z: Tensor) -> Tensor:
    """Compute the objective (B,) with φ at z (B, n); it is infinite outside the domain of φ or of its gradient."""
    assert problem.phi is not None
    value = base.objective(z) + problem.sign * problem.phi.value(z)
    # a point on the edge of φ's domain may have a value, but no gradient for the next step
    inside = problem.phi.gradient(z).isfinite().all(1) & ~value.isnan()
    return torch.where(inside, value, torch.inf)


def _newton_step_length(problem: Problem, base: QuadraticProgram, z: Tensor, direction: Tensor) -> Tensor:
    """Return the length (B, 1) of a step along ``direction`` (B, n) from z (B, n), by a backtracking line search.

    It is the largest of 1, ½, ¼, … with which the step achieves the share ``_ARMIJO`` of the decrease of the objective
    that the gradient predicts; 1 for a direction of zero.
    """
    assert problem.phi is not None
    slope = base.c + matvec(base.H, z) + problem.sign * problem.phi.gradient(z)
    fall = (slope * direction).sum(1)
    here = _newton_objective(problem, base, z)
    noise = 1e-14 * here.abs()  # near the solution the decrease is smaller than rounding, and a full step is right
    length = torch.ones_like(here)
    for _ in range(_HALVINGS):
        there = _newton_objective(problem, base, z + length[:, None] * direction)
        high = ~(there <= here + _ARMIJO * length * fall + noise)
        if not bool(high.any()):
            break
        length = torch.where(high, length / 2, length)
    return length[:, None]
