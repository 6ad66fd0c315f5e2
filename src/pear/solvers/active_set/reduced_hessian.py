"""The reduced Hessian ZᵀHZ of a working set, whose tangent space is spanned by the columns of Z, and its factor."""

from __future__ import annotations

import math

from pear.compile.jit import inner, span
from pear.optimality.rule import FLAT, ROUNDOFF
from pear.solvers.active_set import kernel_arrays as ix
from pear.solvers.active_set.basis_and_superbasics import basis_inverse_terms
from pear.solvers.active_set.kernel_arrays import ProgramData, Workspace


@inner
def factorise_reduced_hessian(D: ProgramData, w: Workspace) -> int:
    """Extend the Cholesky factor of the reduced Hessian to all superbasic variables.

    Returns:
        The position of the first superbasic variable along which the objective is flat; −1 if there is none.
    """
    for t in span(w.tally[ix.FACTORED], w.tally[ix.SUPERS]):
        h, top, length = set_reduced_hessian_factor_row(D, w, t)
        tiny = FLAT * w.number[ix.MAX_CURVATURE] * length
        if FLAT * top < h <= tiny and drop_rounding_of_tangent(D, w, t):
            h, top, length = set_reduced_hessian_factor_row(D, w, t)
        if not h > FLAT * top:
            return t
        w.L[t, t] = math.sqrt(h)
        w.tally[ix.FACTORED] = t + 1
    return -1


@inner
def set_reduced_hessian_factor_row(D: ProgramData, w: Workspace, t: int) -> tuple[float, float, float]:
    """Set row t of ``w.L`` but for its diagonal entry.

    Returns:
        The square of the diagonal entry, the size of the terms that it is summed from, and the squared length of the
        tangent direction z of the superbasic variable at position t.
    """
    R, n = D.J.shape
    L = w.L
    # z = e_s − Σ W[t, b] e_basis[b] for s = sup[t]; H z, first on the basic variables
    set_reduced_hessian_product(D, w, t)
    for b in span(R):
        i = w.basis[b]
        w.column[b] = w.step[i] - D.smoothing * w.W[t, b] if i < n else 0.0
    h = top = 0.0
    for a in span(t + 1):
        i = w.sup[a]
        h = w.step[i] + (D.smoothing if a == t else 0.0) if i < n else 0.0
        top = abs(h)
        for b in span(R):
            h -= w.W[a, b] * w.column[b]
        for k in span(a):
            h -= L[t, k] * L[a, k]
        if a < t:
            L[t, a] = h / L[a, a]
    length = 1.0
    for b in span(R):
        top += abs(w.W[t, b] * w.column[b])
        length += w.W[t, b] * w.W[t, b]
    return h, top, length


@inner
def drop_rounding_of_tangent(D: ProgramData, w: Workspace, t: int) -> bool:
    """Set the entries of row t of ``w.W`` that may be rounding errors to zero.

    If variables have very different units, such an entry can make a flat direction seem curved. This function is
    therefore called for directions whose curvature is tiny.

    Returns:
        True if an entry has changed.
    """
    changed = False
    for b in span(len(w.inverse)):
        entry = abs(w.W[t, b])
        if entry > 0.0 and entry <= ROUNDOFF * basis_inverse_terms(D, w, b, w.sup[t]):
            w.W[t, b], changed = 0.0, True
    return changed


@inner
def set_reduced_hessian_product(D: ProgramData, w: Workspace, t: int) -> None:
    """Set ``w.step`` to σQz, where z is the tangent direction of the superbasic variable at position t.

    σ is 1 to minimise and −1 to maximise. The function adds up rows of Q, one for each variable that z moves, because
    most such directions move few variables.
    """
    R, n = D.J.shape
    for j in span(n):
        w.step[j] = 0.0
    if len(D.Q) == 0:
        return
    for a in span(-1, R):
        i = w.sup[t] if a < 0 else w.basis[a]
        change = D.sign * (1.0 if a < 0 else -w.W[t, a])
        if i < n and change != 0.0:
            for j in span(D.band[i, 0], D.band[i, 1]):
                w.step[j] += change * D.Q[i, j]


@inner
def solve_reduced_hessian(w: Workspace, count: int) -> None:
    """Solve ``L Lᵀ x = w.along`` in place with the factor ``w.L``, for the first ``count`` superbasic variables."""
    for t in span(count):
        s = w.along[t]
        for a in span(t):
            s -= w.L[t, a] * w.along[a]
        w.along[t] = s / w.L[t, t]
    for t in range(count - 1, -1, -1):
        w.along[t] /= w.L[t, t]
        for a in span(t):
            w.along[a] -= w.L[t, a] * w.along[t]
