"""``make_dual_plan``: what the dual method computes once for programs that share the Hessian and the equality rows."""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_solve, cholesky, qr, solve_triangular

from pear.optimality.rule import RANK
from pear.solvers.active_set.kernel_arrays import Array, DualPlan, Programs
from pear.solvers.active_set.settings import MOST_CONSTRAINTS

_ROWS_PER_VARIABLE = 0.25
"""Smallest number of rows per variable for which the dual method is used.

All rows count if many of their entries are not zero. Otherwise the inequalities alone count, and they must also
outnumber the equalities. The primal method begins at a corner and keeps an inverse of the size of all rows, which most
inequalities enlarge without being active. The dual method begins at the minimum without inequalities and adds those
that are active. Its cost does not depend on the number of equalities. Rows with few non-zeros are those of networks and
schedules, whose equalities and bounds leave little freedom. For such rows, the dual method begins far from the
solution, and the primal one has little to do. ``pear bench gradient`` measures both.
"""

_FEW_VARIABLES = 10
"""Number of variables below which equalities, and rows of each sample's own, cost the primal method next to nothing."""


def no_dual_plan() -> DualPlan:
    """Make an empty plan, for programs that the primal method solves."""
    return DualPlan(np.zeros((0, 0)), np.zeros((0, 0)), np.zeros((0, 0)), np.zeros(0), 0)


class KeptDualPlan:
    """The dual plan of programs with fixed constraints, whose curvature may change from call to call."""

    def __init__(self) -> None:
        self._last: tuple[Programs, DualPlan] | None = None

    def for_programs(self, P: Programs) -> DualPlan:
        """Return the dual plan of P. It is the plan of the last call if the Hessians are equal."""
        last = self._last
        if last is None or not self._have_same_curvature(last[0], P):
            last = self._last = P, make_dual_plan(P)
        return last[1]

    @staticmethod
    def _have_same_curvature(one: Programs, other: Programs) -> bool:
        """Return True if two batches of programs have equal Hessians."""
        same = one.sign == other.sign and one.smoothing == other.smoothing
        return same and (one.Q is other.Q or np.array_equal(one.Q, other.Q))


def make_dual_plan(P: Programs) -> DualPlan:
    """Make the plan of the dual method; the plan is empty if the method does not apply or saves no time.

    The method applies if all samples share the Hessian and the equality rows, and if the Hessian is positive definite
    on the null space of these rows. Inequality rows, right-hand sides and bounds may differ.
    """
    n, p = P.J.shape[2], P.equalities
    if not (len(P.Q) <= 1 and _is_dual_plan_worthwhile(P) and bool((P.J[:, :p] == P.J[:1, :p]).all())):
        return no_dual_plan()
    H = P.smoothing * np.eye(n) + (P.sign * P.Q[0] if len(P.Q) else 0.0)
    A, G = P.J[0, :p], P.J[0, p:]
    across, tangent = _split_space_for_dual_plan(A)
    try:
        factor = cholesky(tangent.T @ H @ tangent, lower=True)
    except np.linalg.LinAlgError:  # H is not definite on the null space of A
        return no_dual_plan()
    if tangent.shape[1] and factor.diagonal().min() ** 2 <= RANK * factor.diagonal().max() ** 2:
        return no_dual_plan()
    half = solve_triangular(factor, tangent.T, lower=True)
    response = half.T @ half
    particular = across @ np.linalg.pinv(A @ across, rcond=RANK) if p else np.zeros((n, 0))
    origin = particular - tangent @ cho_solve((factor, True), tangent.T @ (H @ particular))
    if len(P.J) > 1:
        gram, size = np.zeros((0, 0)), response.diagonal()
        loose = size > RANK * _dual_plan_row_scales(H, G[:0])
    else:
        C = np.concatenate([half, half @ G.T], 1)
        gram = C.T @ C
        size = gram.diagonal()
        loose = size > RANK * _dual_plan_row_scales(H, G)
    weight = np.where(loose, 1.0 / np.sqrt(np.where(loose, size, 1.0)), 0.0)
    response, origin, gram = (np.ascontiguousarray(value) for value in (response, origin, gram))
    return DualPlan(response, origin, gram, weight, tangent.shape[1])


def replace_dual_plan_rows(plan: DualPlan, n: int) -> DualPlan:
    """Return the plan for a call that replaces the inequality rows of programs of n variables.

    The result is ``plan`` without the Gram matrix and the weights of the rows.
    """
    return plan._replace(gram=np.zeros((0, 0)), weight=plan.weight[:n]) if len(plan.response) else plan


def _is_dual_plan_worthwhile(P: Programs) -> bool:
    """Return True if the dual method is faster than the primal one, and its Gram matrix is not too large."""
    _, rows, n = P.J.shape
    inequalities, many = rows - P.equalities, _ROWS_PER_VARIABLE * n
    if n + inequalities > MOST_CONSTRAINTS or (len(P.J) > 1 and n < _FEW_VARIABLES):
        return False
    if len(P.start) == 0 and n >= _FEW_VARIABLES:
        return rows >= many
    return inequalities >= many and inequalities > P.equalities


def _split_space_for_dual_plan(A: Array) -> tuple[Array, Array]:
    """Return orthonormal bases of the row space of A, (n, rank), and of its null space, (n, n − rank)."""
    if not len(A):
        return np.zeros((A.shape[1], 0)), np.eye(A.shape[1])
    norms = np.linalg.norm(A, axis=1, keepdims=True)
    basis, triangle, _ = qr((A / np.where(norms > 0, norms, 1.0)).T, pivoting=True)
    size = np.abs(triangle.diagonal())
    rank = int((size > RANK * size.max(initial=0.0)).sum())
    return basis[:, :rank], basis[:, rank:]


def _dual_plan_row_scales(H: Array, G: Array) -> Array:
    """Estimate how far one unit of a constraint's multiplier moves the constraint's value.

    The estimate ignores the equalities and the entries of the Hessian off its diagonal. The result (n + m,) has one
    number for the bounds of each variable and one for each of the m inequality rows G.
    """
    curvature = H.diagonal()
    inverse = 1.0 / np.where(curvature > 0, curvature, curvature.max(initial=0.0) or 1.0)
    return np.concatenate([inverse, np.square(G) @ inverse])
