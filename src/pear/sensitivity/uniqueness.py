"""Tests of the uniqueness of decisions, by linear programs."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import OptimizeResult
from torch import Tensor

from pear.errors import NotUniqueError, SolveError, renumber_samples_in_errors
from pear.optimality.duals_and_active_sets import ActiveSet
from pear.optimality.rule import DESCENT, PROJECTED
from pear.optimality.status import Status
from pear.problem.matrix import SparseMatrix, matrix_of_sample, matvec, tmatvec
from pear.problem.quadratic_program import QuadraticProgram
from pear.sensitivity.convexity import lacks_strict_convexity
from pear.sensitivity.kept_by_sets import keep_by_sets
from pear.sensitivity.verified_solutions import VerifiedSolutions
from pear.solvers.adapters.batch_arrays import stack_matrices
from pear.solvers.adapters.scipy import solve_with_linprog

_DIRECTIONS = 3  # random costs; a variable that can move moves under at least one of them, but for rare accidents


def require_unique(solution: VerifiedSolutions, curved: Tensor) -> None:
    """Raise an error if a decision is not unique and therefore has no derivative. Failed samples are not checked.

    Args:
        solution: the verified solutions.
        curved: (B,) bool, True if the objective is curved along every tangent direction.

    Raises:
        NotUniqueError: a decision is not unique.
        SolveError: a decision is unique, but its derivative could not be computed accurately; or no solver could tell
            whether it is unique.
    """
    # weakly active constraints count as active, although the decision may be able to leave them at no cost
    unique = curved.clone()
    doubtful = (solution.solved & curved & (solution.weak.count() > 0)).nonzero()[:, 0]
    if len(doubtful):
        qp = solution.qp[doubtful]
        flat = lacks_strict_convexity(qp).expand(len(doubtful))
        doubtful = doubtful[flat]
        with renumber_samples_in_errors(doubtful.tolist()):
            unique[doubtful] = is_unique(qp[flat], solution.active[doubtful], solution.weak[doubtful])
    flat_samples = (~unique & solution.solved).nonzero()[:, 0].tolist()
    if not flat_samples:
        return
    if solution.qp.is_sparse and not bool(lacks_strict_convexity(solution.qp).any()):
        # the curvature is definite, so that the derivative exists, but the refinement did not converge
        raise SolveError(
            f"the derivative of {{samples}} could not be computed to {PROJECTED:g}; rescale the problem",
            flat_samples,
            [Status.INACCURATE] * len(flat_samples),
        )
    first = flat_samples[0]
    variables = _find_variables_without_uniqueness(solution.qp, solution.active, solution.weak, first)
    movable = "{variables} can move at no cost; " if variables else ""
    raise NotUniqueError(
        f"the decision of {{samples}} is not unique, so that it has no derivative: {movable}"
        "a bound, a quadratic term or smoothing > 0 makes it unique",
        flat_samples,
        variables,
    )


def _find_variables_without_uniqueness(qp: QuadraticProgram, active: ActiveSet, weak: ActiveSet, i: int) -> list[int]:
    """Find variables of sample i that can move without a change of the objective.

    ``_UniquenessProgram`` is solved for a few random costs. Each solution is a direction to other optimal points. The
    result has the variables that move along at least one of these directions.

    Args:
        qp: the programs.
        active: the tight constraints of the solutions.
        weak: the tight constraints whose multiplier is zero.
        i: position in the batch.

    Returns:
        The positions of these variables.
    """
    directions, generator = _UniquenessProgram(qp, active, weak, i), np.random.default_rng(0)
    moved = np.zeros(qp.n)
    for _ in range(_DIRECTIONS):
        found = directions.solve(generator.standard_normal(qp.n))
        moved = np.maximum(moved, 0.0 if found is None else np.abs(found.x))
    return [int(j) for j in np.flatnonzero(moved > DESCENT)]


def is_unique(qp: QuadraticProgram, active: ActiveSet, weak: ActiveSet) -> Tensor:
    """Return whether each solution is the only optimal point of its program, whose H may be singular.

    Another optimal point exists if there is a direction d ≠ 0 with Hd = 0, with Jd = 0 for the rows J of constraints
    that have a multiplier, and with Jd ≤ 0 for the rows J of weakly active constraints. The caller has already excluded
    the directions that keep every tight constraint tight. What remains to be excluded here are the directions that
    leave a weakly active constraint.

    Args:
        qp: the programs.
        active: the tight constraints of the solutions.
        weak: the tight constraints whose multiplier is zero.

    Returns:
        (B,) bool.

    Raises:
        SolveError: no solver could tell.
    """
    unique = torch.zeros(qp.batch, dtype=torch.bool, device=qp.c.device)
    if qp.is_sparse:
        unique = only_zero_is_left(qp, active, weak)
    for i in (~unique).nonzero()[:, 0].tolist():
        unique[i] = _is_unique_sample(qp, active, weak, i)
    return unique


def only_zero_is_left(qp: QuadraticProgram, active: ActiveSet, weak: ActiveSet) -> Tensor:
    """Return whether simple propagation proves that d = 0 is the only direction with Hd = 0 and Jd = 0.

    J has the rows of the tight constraints that have a multiplier. A row of H or J with a single variable fixes this
    entry of d at zero. Other rows may then be left with a single variable. In a smoothed linear program with elastic
    slacks, H has one entry in the row of each decision variable and none in the row of a slack, so that only slacks
    remain after the first pass.

    Args:
        qp: sparse programs.
        active: the tight constraints of the solutions.
        weak: the tight constraints whose multiplier is zero.

    Returns:
        (B,) bool. False means that the propagation proves nothing.
    """
    used = qp.prepare_once("non-zeros", _stack_nonzeros)
    held = torch.cat([active.rows.new_ones(qp.batch, qp.n + qp.p), active.rows & ~weak.rows], 1).double()
    loose = ~((active.lower & ~weak.lower) | (active.upper & ~weak.upper))
    while bool(loose.any()):
        single = held * (matvec(used, loose.double()) == 1)
        caught = loose & (tmatvec(used, single) > 0)
        if not bool(caught.any()):
            break
        loose &= ~caught
    return ~loose.any(1)


def _stack_nonzeros(qp: QuadraticProgram) -> SparseMatrix:
    """Return [H; A; G] with a one in place of every entry that is not zero."""
    return SparseMatrix(sparse.csr_array(sparse.vstack([part.csr != 0 for part in (qp.H, qp.A, qp.G)])).astype(float))


class _UniquenessProgram:
    """The linear program over the directions d from the solution of sample i to other optimal points.

    The objective has no curvature along d: Hd = 0. Constraints with a multiplier stay tight: Jd = 0. Weakly active
    constraints may be left inward: Jd ≤ 0. The entries of d are at most 1 in absolute value.

    Args:
        qp: the programs.
        active: the tight constraints of the solutions.
        weak: the tight constraints whose multiplier is zero.
        i: position in the batch.
    """

    def __init__(self, qp: QuadraticProgram, active: ActiveSet, weak: ActiveSet, i: int) -> None:
        H, A, G = (matrix_of_sample(v, i) for v in (qp.H, qp.A, qp.G))
        rows, lower, upper = (v[i].cpu().numpy() for v in (active.rows, active.lower, active.upper))
        weak_rows, self.weak_lower, self.weak_upper = (v[i].cpu().numpy() for v in (weak.rows, weak.lower, weak.upper))
        pinned = (lower & ~self.weak_lower) | (upper & ~self.weak_upper)
        self.held, self.loose = stack_matrices(H, A, G[rows & ~weak_rows]), G[weak_rows]
        # a variable at a weakly active bound may only move inward; a variable whose bound has a multiplier may not move
        self.low = np.where(pinned | self.weak_lower, 0.0, -1.0)
        self.high = np.where(pinned | self.weak_upper, 0.0, 1.0)

    def solve(self, cost: NDArray[np.float64]) -> OptimizeResult | None:
        """Minimise ``costᵀd`` over the directions d, for a cost (n,); return None if the solver fails.

        The program has a solution, because d = 0 is a direction and all directions are bounded.
        """
        held, loose = np.zeros(self.held.shape[0]), np.zeros(self.loose.shape[0])
        for presolve in (True, False):
            found = solve_with_linprog(cost, self.held, held, self.loose, loose, self.low, self.high, presolve=presolve)
            if found.status == 0:
                return found
        return None


def _is_unique_sample(qp: QuadraticProgram, active: ActiveSet, weak: ActiveSet, i: int) -> bool:
    """Return whether the solution of sample i is unique. Results for sparse programs are kept between calls."""
    if not qp.is_sparse:
        return _test_uniqueness(qp, active, weak, i)
    sets = [part[i].numpy() for one in (active, weak) for part in (one.rows, one.lower, one.upper)]
    return keep_by_sets(qp, "uniqueness", sets, lambda: _test_uniqueness(qp, active, weak, i), lambda _: 8)


def _test_uniqueness(qp: QuadraticProgram, active: ActiveSet, weak: ActiveSet, i: int) -> bool:
    """Return whether no direction leaves a weakly active constraint of sample i, by one linear program.

    Raises:
        SolveError: the linear program was not solved.
    """
    flat = _UniquenessProgram(qp, active, weak, i)
    gain = np.asarray(flat.loose.sum(0)).reshape(-1) - flat.weak_lower.astype(float) + flat.weak_upper.astype(float)
    leave = flat.solve(gain)
    if leave is None:
        raise SolveError(
            "no solver could tell whether the decision of {samples} is unique; rescale the problem, or make the "
            "decision unique by a quadratic term or smoothing > 0",
            [i],
            [Status.INACCURATE],
        )
    return bool(leave.fun > -DESCENT)
