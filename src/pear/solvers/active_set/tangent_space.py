"""The tangent space of a working set: its reduced Hessian ZᵀHZ, the search direction, and the projection."""

from __future__ import annotations

import math

from pear.compile.jit import inner, span
from pear.optimality.rule import FLAT, NEGLIGIBLE, PROJECTED, ROUNDOFF, SHARP
from pear.solvers.active_set import kernel_arrays as ix
from pear.solvers.active_set.kernel_arrays import Array, ProgramData, Workspace
from pear.solvers.active_set.program_products import positive_or_one, subtract_rows
from pear.solvers.active_set.settings import NOISE, REFINEMENTS
from pear.solvers.active_set.working_set import is_basis_steep


@inner
def factorise_reduced_hessian(D: ProgramData, w: Workspace) -> int:
    """Extend the Cholesky factor of ZᵀHZ to all superbasic variables.

    Returns:
        The first superbasic variable along which the objective is flat, or −1.
    """
    R, n = D.J.shape
    L = w.L
    for t in span(w.tally[ix.FACTORED], w.tally[ix.SUPERS]):
        # z = e_s − Σ W[t, b] e_basis[b] for s = sup[t]; H z, first on the basic variables
        set_curved_direction(D, w, t)
        for b in span(R):
            i = w.basis[b]
            w.column[b] = w.step[i] - D.smoothing * w.W[t, b] if i < n else 0.0
        top = 0.0
        for a in span(t + 1):
            i = w.sup[a]
            h = w.step[i] + (D.smoothing if a == t else 0.0) if i < n else 0.0
            size = abs(h)
            for b in span(R):
                term = w.W[a, b] * w.column[b]
                h -= term
                size += abs(term)
            if a == t:
                top = size
            for k in span(a):
                h -= L[t, k] * L[a, k]
            if a < t:
                L[t, a] = h / L[a, a]
            elif not h > FLAT * top:
                return t
            else:
                L[t, t] = math.sqrt(h)
        w.tally[ix.FACTORED] = t + 1
    return -1


@inner
def set_curved_direction(D: ProgramData, w: Workspace, t: int) -> None:
    """Write Qz to ``w.step``, where z is the direction in which superbasic variable t moves the basic ones.

    Rows of Q are added, one for each variable that moves, because most directions move few variables.
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
            for j in span(n):
                w.step[j] += change * D.Q[i, j]


@inner
def solve_reduced_system(w: Workspace, count: int) -> None:
    """Solve the reduced system in place: ``w.along`` ← (LLᵀ)⁻¹ ``w.along`` for the first ``count`` superbasics."""
    for t in span(count):
        s = w.along[t]
        for a in span(t):
            s -= w.L[t, a] * w.along[a]
        w.along[t] = s / w.L[t, t]
    for t in range(count - 1, -1, -1):
        s = w.along[t]
        for a in span(t + 1, count):
            s -= w.L[a, t] * w.along[a]
        w.along[t] = s / w.L[t, t]


@inner
def search_direction(D: ProgramData, w: Workspace) -> float:
    """Write the search direction to ``w.along`` and ``w.column``.

    Returns:
        The longest useful step: 1 to the minimum of a curved objective; infinite where the objective is flat and falls;
        −inf where it is flat and constant.
    """
    R = len(D.J)
    supers = w.tally[ix.SUPERS]
    flat = factorise_reduced_hessian(D, w)
    longest = 1.0
    if flat < 0:
        for t in span(supers):
            w.along[t] = -w.reduced[w.sup[t]]
        solve_reduced_system(w, supers)
    else:
        # L[flat, :flat] holds L⁻¹ of the column, so that the flat direction needs the second half of the solve only
        for t in range(flat - 1, -1, -1):
            s = -w.L[flat, t]
            for a in span(t + 1, flat):
                s -= w.L[a, t] * w.along[a]
            w.along[t] = s / w.L[t, t]
        w.along[flat] = 1.0
        rise = size = 0.0
        for t in span(flat + 1):
            rise += w.reduced[w.sup[t]] * w.along[t]
            size += abs(w.reduced[w.sup[t]] * w.along[t])
        for t in span(flat + 1, supers):
            w.along[t] = 0.0
        if rise > 0.0:
            for t in span(flat + 1):
                w.along[t] = -w.along[t]
        longest = math.inf if abs(rise) > ROUNDOFF * size else -math.inf
    for b in span(R):
        s = 0.0
        for t in span(supers):
            s -= w.W[t, b] * w.along[t]
        w.column[b] = s
    return longest


@inner
def project_error(D: ProgramData, error: Array, g: Array, w: Workspace) -> bool:
    """Compute ``g = P error`` at the working set of w, whose superbasic variables span the tangent space.

    Returns:
        False where the objective is flat along a tangent direction, or refinement has not converged.
    """
    R, n = D.J.shape
    supers = w.tally[ix.SUPERS]
    for j in span(n):
        g[j] = 0.0
        if w.place[j] == ix.FREE:  # the variable is held, but not by a constraint
            return False
    if supers == 0:
        return True
    if factorise_reduced_hessian(D, w) >= 0 or is_basis_steep(w):
        return False
    for v in span(n + R):
        w.step[v] = 0.0
    for j in span(n):
        w.error[j] = error[j]
    top = 0.0
    for j in span(n):
        if not abs(error[j]) < math.inf:  # the projection of NaN or infinity is NaN
            for i in span(n):
                g[i] = math.nan
            return True
        top = max(top, abs(error[j]))
    noise = NEGLIGIBLE * top / positive_or_one(w.number[ix.MAX_CURVATURE])
    largest, change = 0.0, math.inf
    for attempt in span(REFINEMENTS):
        if attempt > 0 and not correct_tangent(D, error, w) <= max(PROJECTED * largest, noise):
            return False  # the inverse, and so the tangent space, has become inaccurate
        for t in span(supers):
            s = w.error[w.sup[t]] if w.sup[t] < n else 0.0
            for b in span(R):
                if w.basis[b] < n:
                    s -= w.W[t, b] * w.error[w.basis[b]]
            w.along[t] = s
        solve_reduced_system(w, supers)
        change = 0.0
        for t in span(supers):
            w.step[w.sup[t]] += w.along[t]
            change = max(change, abs(w.along[t]))
            for b in span(R):
                w.step[w.basis[b]] -= w.W[t, b] * w.along[t]
        if attempt == 0:
            largest = change
        elif change <= max(SHARP * largest, NOISE * noise):
            break
    if not change <= max(PROJECTED * largest, noise):
        return False
    return write_projection(D, w, g, noise)


@inner
def write_projection(D: ProgramData, w: Workspace, g: Array, noise: float) -> bool:
    """Write the projection in ``w.step`` to g; False where it is of rounding size, which needs exact residuals."""
    biggest = 0.0
    for j in span(D.n):
        biggest = max(biggest, abs(w.step[j]))
    for j in span(D.n):
        g[j] = w.step[j]
    return biggest > noise or biggest == 0.0


@inner
def set_projection_residual(D: ProgramData, error: Array, w: Workspace) -> None:
    """Set ``w.error`` to what the direction p in ``w.step`` leaves of an error: error − Hp."""
    n = D.n
    for j in span(n):
        w.error[j] = error[j] - D.smoothing * w.step[j]
    if len(D.Q) > 0:
        for j in span(n):
            if w.step[j] != 0.0:
                for i in span(n):
                    w.error[i] -= D.sign * w.step[j] * D.Q[j, i]


@inner
def correct_tangent(D: ProgramData, error: Array, w: Workspace) -> float:
    """Correct the direction p in ``w.step`` so that Jp = 0, and write the remaining error − Hp to ``w.error``.

    Returns:
        The largest correction of p.
    """
    R, n = D.J.shape
    largest = 0.0
    for k in span(R):
        w.left[k] = -w.step[n + k]
    subtract_rows(D, w.step, w.left)
    for b in span(R):
        s = 0.0
        for k in span(R):
            s += w.inverse[b, k] * w.left[k]
        w.step[w.basis[b]] += s
        largest = max(largest, abs(s) if w.basis[b] < n else 0.0)
    set_projection_residual(D, error, w)
    return largest
