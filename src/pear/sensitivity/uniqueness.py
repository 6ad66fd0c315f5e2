"""The test whether a decision is the only optimal one, by a linear program."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pear.errors import NotUniqueError, SolveError
from pear.optimality.duals_and_active_sets import ActiveSet, Status
from pear.optimality.rule import DESCENT, PROJECTED
from pear.problem.matrix import sample_of
from pear.problem.quadratic_program import QuadraticProgram
from pear.sensitivity.program_curvature import is_singular_program
from pear.sensitivity.verified_solutions import VerifiedSolutions
from pear.solvers.adapters.batch_arrays import stack
from pear.solvers.adapters.scipy import solve_linear_program


def require_unique(solution: VerifiedSolutions, curved: Tensor) -> None:
    """Raise where a decision is not unique and therefore has no derivative. Failed samples are not checked.

    Args:
        solution: the verified solutions.
        curved: (B,) bool, True where the objective is curved along every tangent direction.

    Raises:
        NotUniqueError: a decision is not unique.
        SolveError: a decision is unique, but its derivative could not be computed accurately.
    """
    # weakly active constraints count as active, although the decision may be able to leave them at no cost
    unique = curved.clone()
    doubtful = (solution.solved & curved & (solution.weak.count() > 0)).nonzero()[:, 0]
    if len(doubtful):
        qp = solution.qp[doubtful]
        flat = is_singular_program(qp).expand(len(doubtful))
        doubtful = doubtful[flat]
        unique[doubtful] = is_unique(qp[flat], solution.active[doubtful], solution.weak[doubtful])
    flat_samples = (~unique & solution.solved).nonzero()[:, 0].tolist()
    if not flat_samples:
        return
    if solution.qp.is_sparse and not bool(is_singular_program(solution.qp).any()):
        # the curvature is definite, so that the derivative exists, but the refinement did not converge
        raise SolveError(
            f"the derivative of {{samples}} could not be computed to {PROJECTED:g}; rescale the problem",
            flat_samples,
            [Status.INACCURATE] * len(flat_samples),
        )
    raise NotUniqueError(
        "the decision of {samples} is not unique "
        "(the objective is flat along a feasible direction), so that it has no derivative; "
        "pass smoothing > 0 or a positive definite Q",
        flat_samples,
    )


def is_unique(qp: QuadraticProgram, active: ActiveSet, weak: ActiveSet) -> Tensor:
    """Whether each solution is the only optimal point, for programs whose H may be singular. Shape (B,), bool.

    Another optimal point exists if some d ≠ 0 has Hd = 0, Jd = 0 for the constraints with a multiplier, and Jd ≤ 0 for
    the weakly active ones. No direction within all tight constraints is flat here, so that it is enough to check
    whether d can leave a weakly active constraint.

    Args:
        qp: the programs.
        active: the tight constraints of the solutions.
        weak: those of them whose multiplier is zero.
    """
    return torch.tensor(
        [_cannot_leave(qp, active, weak, i) for i in range(qp.batch)], dtype=torch.bool, device=qp.c.device
    )


def _cannot_leave(qp: QuadraticProgram, active: ActiveSet, weak: ActiveSet, i: int) -> bool:
    """Whether no direction without curvature leaves a weakly active constraint of sample i."""
    H, A, G = (sample_of(v, i) for v in (qp.H, qp.A, qp.G))
    rows, lower, upper = (v[i].cpu().numpy() for v in (active.rows, active.lower, active.upper))
    weak_rows, weak_lower, weak_upper = (v[i].cpu().numpy() for v in (weak.rows, weak.lower, weak.upper))
    pinned = (lower & ~weak_lower) | (upper & ~weak_upper)
    held, loose = stack(H, A, G[rows & ~weak_rows]), G[weak_rows]
    # a variable at a weakly active bound may only move inward, and one whose bound has a multiplier not at all
    low, high = np.where(pinned | weak_lower, 0.0, -1.0), np.where(pinned | weak_upper, 0.0, 1.0)
    gain = np.asarray(loose.sum(0)).reshape(-1) - weak_lower.astype(float) + weak_upper.astype(float)
    leave = solve_linear_program(gain, held, np.zeros(held.shape[0]), loose, np.zeros(loose.shape[0]), low, high)
    return bool(leave.status == 0 and leave.fun > -DESCENT)
