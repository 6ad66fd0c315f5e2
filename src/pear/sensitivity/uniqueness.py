"""The test whether a decision is the only optimal one, by a linear program."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import OptimizeResult
from torch import Tensor

from pear.errors import NotUniqueError, SolveError
from pear.optimality.duals_and_active_sets import ActiveSet
from pear.optimality.rule import DESCENT, PROJECTED
from pear.optimality.status import Status
from pear.problem.matrix import matrix_of_sample
from pear.problem.quadratic_program import QuadraticProgram
from pear.sensitivity.curvature_sign import has_singular_curvature
from pear.sensitivity.kept_by_sets import keep_by_sets
from pear.sensitivity.verified_solutions import VerifiedSolutions
from pear.solvers.adapters.batch_arrays import stack_matrices
from pear.solvers.adapters.scipy import solve_with_linprog

_DIRECTIONS = 3  # random objectives whose ends are looked at; a variable that can move stands still in all by accident


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
        flat = has_singular_curvature(qp).expand(len(doubtful))
        doubtful = doubtful[flat]
        unique[doubtful] = is_unique(qp[flat], solution.active[doubtful], solution.weak[doubtful])
    flat_samples = (~unique & solution.solved).nonzero()[:, 0].tolist()
    if not flat_samples:
        return
    if solution.qp.is_sparse and not bool(has_singular_curvature(solution.qp).any()):
        # the curvature is definite, so that the derivative exists, but the refinement did not converge
        raise SolveError(
            f"the derivative of {{samples}} could not be computed to {PROJECTED:g}; rescale the problem",
            flat_samples,
            [Status.INACCURATE] * len(flat_samples),
        )
    first = flat_samples[0]
    variables = free_variables(solution.qp, solution.active, solution.weak, first)
    movable = "{variables} can move at no cost; " if variables else ""
    raise NotUniqueError(
        f"the decision of {{samples}} is not unique, so that it has no derivative: {movable}"
        "a bound, a quadratic term or smoothing > 0 makes it unique",
        flat_samples,
        variables,
    )


def free_variables(qp: QuadraticProgram, active: ActiveSet, weak: ActiveSet, i: int) -> list[int]:
    """The positions of variables of sample i that can move without a change of the objective.

    They move along extreme points of the set of directions that ``is_unique`` describes, found for a few random costs.

    Args:
        qp: the programs.
        active: the tight constraints of the solutions.
        weak: those of them whose multiplier is zero.
        i: position in the batch.
    """
    directions, generator = _FlatDirections(qp, active, weak, i), np.random.default_rng(0)
    moved = np.zeros(qp.n)
    for _ in range(_DIRECTIONS):
        found = directions.farthest(generator.standard_normal(qp.n))
        moved = np.maximum(moved, 0.0 if found is None else np.abs(found))
    return [int(j) for j in np.flatnonzero(moved > DESCENT)]


def is_unique(qp: QuadraticProgram, active: ActiveSet, weak: ActiveSet) -> Tensor:
    """Whether each solution is the only optimal point, for programs whose H may be singular. Shape (B,), bool.

    Another optimal point exists if some direction d ≠ 0 has Hd = 0, Jd = 0 for the constraints with a multiplier, and
    Jd ≤ 0 for the weakly active ones. Callers have checked that no such d stays on all tight constraints. It remains to
    check whether one leaves a weakly active constraint.

    Args:
        qp: the programs.
        active: the tight constraints of the solutions.
        weak: those of them whose multiplier is zero.
    """
    return torch.tensor(
        [_cannot_leave(qp, active, weak, i) for i in range(qp.batch)], dtype=torch.bool, device=qp.c.device
    )


class _FlatDirections:
    """The directions d of sample i, with entries of at most 1, along which the objective has no curvature: Hd = 0.

    Constraints with a multiplier stay tight: Jd = 0. Weakly active ones may only be left inward: Jd ≤ 0.

    Args:
        qp: the programs.
        active: the tight constraints of the solutions.
        weak: those of them whose multiplier is zero.
        i: position in the batch.
    """

    def __init__(self, qp: QuadraticProgram, active: ActiveSet, weak: ActiveSet, i: int) -> None:
        H, A, G = (matrix_of_sample(v, i) for v in (qp.H, qp.A, qp.G))
        rows, lower, upper = (v[i].cpu().numpy() for v in (active.rows, active.lower, active.upper))
        weak_rows, self.weak_lower, self.weak_upper = (v[i].cpu().numpy() for v in (weak.rows, weak.lower, weak.upper))
        pinned = (lower & ~self.weak_lower) | (upper & ~self.weak_upper)
        self.held, self.loose = stack_matrices(H, A, G[rows & ~weak_rows]), G[weak_rows]
        # a variable at a weakly active bound may only move inward, and one whose bound has a multiplier not at all
        self.low = np.where(pinned | self.weak_lower, 0.0, -1.0)
        self.high = np.where(pinned | self.weak_upper, 0.0, 1.0)

    def are_clearly_zero(self) -> bool:
        """Whether rows with a single variable prove that zero is the only direction. False if they do not.

        A held row with a single variable fixes it at zero. Other rows may then have a single free variable, too. In a
        smoothed linear program every row of H has one entry, so that only slacks remain after the first pass.
        """
        used = sparse.csr_array(self.held != 0).astype(float)
        loose = (self.low < 0) | (self.high > 0)
        while loose.any():
            single = used @ loose.astype(float) == 1
            caught = loose & (used.T @ single.astype(float) > 0)
            if not caught.any():
                return False
            loose &= ~caught
        return True

    def solve(self, cost: NDArray[np.float64]) -> OptimizeResult:
        """Minimise ``costᵀd`` over these directions."""
        held, loose = np.zeros(self.held.shape[0]), np.zeros(self.loose.shape[0])
        return solve_with_linprog(cost, self.held, held, self.loose, loose, self.low, self.high)

    def farthest(self, cost: NDArray[np.float64]) -> NDArray[np.float64] | None:
        """Return the direction (n,) that lowers ``cost`` (n,) most; None where no solver finds it."""
        found = self.solve(cost)
        return np.asarray(found.x) if found.status == 0 else None


def _cannot_leave(qp: QuadraticProgram, active: ActiveSet, weak: ActiveSet, i: int) -> bool:
    """Whether no direction without curvature leaves a weakly active constraint of sample i."""
    if not qp.is_sparse:
        return _search_way_out(qp, active, weak, i)
    sets = [part[i].numpy() for one in (active, weak) for part in (one.rows, one.lower, one.upper)]
    return keep_by_sets(qp, "uniqueness", sets, lambda: _search_way_out(qp, active, weak, i), lambda _: 8)


def _search_way_out(qp: QuadraticProgram, active: ActiveSet, weak: ActiveSet, i: int) -> bool:
    """Search for a direction that leaves a weakly active constraint of sample i; returns whether there is none."""
    flat = _FlatDirections(qp, active, weak, i)
    if qp.is_sparse and flat.are_clearly_zero():
        return True
    gain = np.asarray(flat.loose.sum(0)).reshape(-1) - flat.weak_lower.astype(float) + flat.weak_upper.astype(float)
    leave = flat.solve(gain)
    return bool(leave.status == 0 and leave.fun > -DESCENT)
