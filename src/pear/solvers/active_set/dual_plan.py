"""``make_dual_plan``: what the dual method computes once for all programs that share Hessian and rows."""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_solve, cholesky, qr, solve_triangular

from pear.optimality.rule import RANK
from pear.solvers.active_set.kernel_arrays import Array, DualPlan, Programs

_MOST_CONSTRAINTS = 1_000  # variables and inequalities: the Gram matrix has this many rows and columns
_ROWS_PER_VARIABLE = 0.25
"""Inequalities, relative to the variables, from which on the dual method is used.

The primal method begins at a corner and keeps an inverse of the size of all rows, which most inequalities make larger
without being active. The dual method begins at the minimum without inequalities and adds those that are active. It
begins far from the solution where equalities and bounds leave little freedom. ``pear bench gradient`` measures both.
"""


def no_dual_plan() -> DualPlan:
    """Make the empty plan of programs that the primal method solves."""
    return DualPlan(np.zeros((0, 0)), np.zeros((0, 0)), np.zeros((0, 0)), np.zeros(0), 0)


class KeptDualPlan:
    """The dual plan of constraints whose curvature may change from call to call: that of the last curvature is kept."""

    def __init__(self) -> None:
        self._last: tuple[Programs, DualPlan] | None = None

    def for_programs(self, P: Programs) -> DualPlan:
        """Return the dual plan of programs with these constraints."""
        last = self._last
        if last is None or not _has_same_curvature(last[0], P):
            last = self._last = P, make_dual_plan(P)
        return last[1]


def _has_same_curvature(one: Programs, other: Programs) -> bool:
    same = one.sign == other.sign and one.smoothing == other.smoothing
    return same and (one.Q is other.Q or np.array_equal(one.Q, other.Q))


def make_dual_plan(P: Programs) -> DualPlan:
    """Make the plan of the dual method; empty where the method does not apply or does not pay.

    It applies to strictly convex programs whose Hessian and rows are the same for all samples. Right-hand sides and
    bounds may differ.
    """
    n, inequalities = P.J.shape[2], P.J.shape[1] - P.equalities
    shared = len(P.J) == 1 and len(P.Q) <= 1
    pays = inequalities >= _ROWS_PER_VARIABLE * n and inequalities > P.equalities
    if not (shared and pays and n + inequalities <= _MOST_CONSTRAINTS):
        return no_dual_plan()
    H = P.smoothing * np.eye(n) + (P.sign * P.Q[0] if len(P.Q) else 0.0)
    A, G = P.J[0, : P.equalities], P.J[0, P.equalities :]
    across, tangent = _split_by_rows(A)
    try:
        factor = cholesky(tangent.T @ H @ tangent, lower=True)
    except np.linalg.LinAlgError:  # H is not definite on the null space of A
        return no_dual_plan()
    if tangent.shape[1] and factor.diagonal().min() ** 2 <= RANK * factor.diagonal().max() ** 2:
        return no_dual_plan()
    half = solve_triangular(factor, tangent.T, lower=True)
    response = half.T @ half
    particular = across @ np.linalg.pinv(A @ across, rcond=RANK) if P.equalities else np.zeros((n, 0))
    origin = particular - tangent @ cho_solve((factor, True), tangent.T @ (H @ particular))
    C = np.concatenate([half, half @ G.T], 1)
    gram = C.T @ C
    diagonal = gram.diagonal()
    loose = diagonal > RANK * _scale_of_rows(H, G)
    weight = np.where(loose, 1.0 / np.sqrt(np.where(loose, diagonal, 1.0)), 0.0)
    response, origin, gram = (np.ascontiguousarray(value) for value in (response, origin, gram))
    return DualPlan(response, origin, gram, weight, tangent.shape[1])


def _split_by_rows(A: Array) -> tuple[Array, Array]:
    """Return orthonormal bases of the row space of A (n, r) and of its null space (n, n − r)."""
    if not len(A):
        return np.zeros((A.shape[1], 0)), np.eye(A.shape[1])
    norms = np.linalg.norm(A, axis=1, keepdims=True)
    basis, triangle, _ = qr((A / np.where(norms > 0, norms, 1.0)).T, pivoting=True)
    size = np.abs(triangle.diagonal())
    rank = int((size > RANK * size.max(initial=0.0)).sum())
    return basis[:, :rank], basis[:, rank:]


def _scale_of_rows(H: Array, G: Array) -> Array:
    """Return how far the multiplier of each constraint would move it, (N,), if there were no equalities."""
    curvature = H.diagonal()
    inverse = 1.0 / np.where(curvature > 0, curvature, curvature.max(initial=0.0) or 1.0)
    return np.concatenate([inverse, np.square(G) @ inverse])
