"""Projections of an error at the solution of one sample, by the working set of the primal or of the dual method.

The projection P e of an error e is the vector p in the tangent space with Zᵀ(Hp − e) = 0. Here H is the Hessian, and
the columns of Z span the tangent space.
"""

from __future__ import annotations

import math

from pear.compile.jit import inner, span
from pear.optimality.rule import MIXED, NEGLIGIBLE, PROJECTED, SHARP
from pear.solvers.active_set import kernel_arrays as ix
from pear.solvers.active_set.basis_and_superbasics import is_basis_steep, set_superbasic_columns
from pear.solvers.active_set.basis_starts import load_basis_start
from pear.solvers.active_set.compiled_sizes import compiled_size_or_one
from pear.solvers.active_set.dual_working_set import factor_dual_working_set
from pear.solvers.active_set.gram_matrix import (
    gram_constraint_value,
    gram_row,
    solve_gram_factor,
    solve_transposed_gram_factor,
)
from pear.solvers.active_set.kernel_arrays import Array, ProgramData, States, Workspace
from pear.solvers.active_set.program_products import subtract_row_products
from pear.solvers.active_set.reduced_hessian import factorise_reduced_hessian, solve_reduced_hessian
from pear.solvers.active_set.settings import NOISE, REFINEMENTS


@inner
def project_error_primal(D: ProgramData, error: Array, g: Array, w: Workspace) -> bool:
    """Project ``error`` at a working set of the primal method, and write the projection to ``g``.

    The superbasic variables are coordinates of the tangent space.

    Returns:
        False if a variable is FREE (nonbasic at no bound), if the objective is flat along a tangent direction, if the
        basis is too badly conditioned, if refinement has not converged, or if the result cannot be told from rounding.
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
    noise = NEGLIGIBLE * top / compiled_size_or_one(w.number[ix.MAX_CURVATURE])
    largest, change = 0.0, math.inf
    for attempt in span(REFINEMENTS):
        if attempt > 0 and not correct_error_projection(D, error, w) <= max(PROJECTED * largest, noise):
            return False  # the inverse, and so the tangent space, has become inaccurate
        for t in span(supers):
            s = w.error[w.sup[t]] if w.sup[t] < n else 0.0
            for b in span(R):
                if w.basis[b] < n:
                    s -= w.W[t, b] * w.error[w.basis[b]]
            w.along[t] = s
        solve_reduced_hessian(w, supers)
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
    return write_error_projection(D, w, g, noise)


@inner
def correct_error_projection(D: ProgramData, error: Array, w: Workspace) -> float:
    """Correct the direction in ``w.step`` so that it stays on all rows, and set ``w.error`` to error − Hp.

    p is the part of the direction that belongs to the variables. The rest belongs to the slacks.

    Returns:
        The largest correction of an entry of p.
    """
    R, n = D.J.shape
    largest = 0.0
    for k in span(R):
        w.left[k] = -w.step[n + k]
    subtract_row_products(D, w.step, w.left)
    for b in span(R):
        s = 0.0
        for k in span(R):
            s += w.inverse[b, k] * w.left[k]
        w.step[w.basis[b]] += s
        largest = max(largest, abs(s) if w.basis[b] < n else 0.0)
    set_error_projection_residual(D, error, w)
    return largest


@inner
def project_error_dual(D: ProgramData, error: Array, g: Array, w: Workspace) -> bool:
    """Project ``error`` at a working set of the dual method with every tight constraint; write the projection to ``g``.

    Returns:
        False if refinement has not converged, or if the result cannot be told from rounding.
    """
    n, size = D.n, w.tally[ix.WORKING]
    top = 0.0
    for j in span(n):
        g[j] = w.step[j] = 0.0
        w.error[j] = error[j]
        top = max(top, abs(error[j]))
        if not abs(error[j]) < math.inf:  # the projection of NaN or infinity is NaN
            top = math.nan
    if top != top:
        for j in span(n):
            g[j] = math.nan
        return True
    if size >= D.freedom:
        return True
    noise = NEGLIGIBLE * top / compiled_size_or_one(w.number[ix.MAX_CURVATURE])
    largest, change = 0.0, math.inf
    for attempt in span(REFINEMENTS):
        if attempt > 0:
            set_error_projection_residual(D, error, w)
        change = add_dual_error_projection(D, w)
        if attempt == 0:
            largest = change
        elif change <= max(SHARP * largest, NOISE * noise):
            break
    if not change <= max(PROJECTED * largest, noise):
        return False
    return write_error_projection(D, w, g, noise)


@inner
def add_dual_error_projection(D: ProgramData, w: Workspace) -> float:
    """Add the projection of ``w.error`` to ``w.step``, and return the largest change. Held variables do not move."""
    n, size = D.n, w.tally[ix.WORKING]
    for j in span(n):
        s = 0.0
        for i in span(n):
            s += D.response[j, i] * w.error[i]
        w.reduced[j] = s
    for a in span(size):
        w.pull[a] = gram_constraint_value(D, w.reduced, w.sup[a])
    solve_gram_factor(w, size, w.pull)
    solve_transposed_gram_factor(w, size, w.pull)
    for a in span(size):
        row = gram_row(D, w, w.sup[a])
        for j in span(n):
            w.reduced[j] -= w.pull[a] * row[j]
    for a in span(size):
        if w.sup[a] < n:
            w.reduced[w.sup[a]] = 0.0
    change = 0.0
    for j in span(n):
        w.step[j] += w.reduced[j]
        change = max(change, abs(w.reduced[j]))
    return change


@inner
def set_error_projection_residual(D: ProgramData, error: Array, w: Workspace) -> None:
    """Set ``w.error`` to error − Hp, for the direction p in ``w.step``."""
    n = D.n
    for j in span(n):
        w.error[j] = error[j] - D.smoothing * w.step[j]
    if len(D.Q) > 0:
        for j in span(n):
            if w.step[j] != 0.0:
                for i in span(D.band[j, 0], D.band[j, 1]):
                    w.error[i] -= D.sign * w.step[j] * D.Q[j, i]


@inner
def write_error_projection(D: ProgramData, w: Workspace, g: Array, noise: float) -> bool:
    """Write the projection in ``w.step`` to g, or zeros if no entry exceeds ``noise``, a bound on rounding errors.

    The test is that of ``is_naturally_zero``.

    Returns:
        False if the projection may consist of rounding alone, and the units of the variables differ too much to tell.
    """
    biggest = 0.0
    for j in span(D.n):
        biggest = max(biggest, abs(w.step[j]))
    for j in span(D.n):
        g[j] = w.step[j] if biggest > noise else 0.0
    return biggest > noise or biggest == 0.0 or not has_mixed_units(D)


@inner
def has_mixed_units(D: ProgramData) -> bool:
    """Return True if the variables seem to have different units.

    This is assumed if the curvatures, or the largest entries of the columns of J, have very different sizes.
    """
    R, n = D.J.shape
    least = least_entry = math.inf
    most = most_entry = 0.0
    for j in span(n):
        curvature = D.smoothing + (D.sign * D.Q[j, j] if len(D.Q) > 0 else 0.0)
        entry = 0.0
        for k in span(R):
            entry = max(entry, abs(D.J[k, j]))
        most, most_entry = max(most, curvature), max(most_entry, entry)
        least = min(least, curvature) if curvature > 0.0 else least
        least_entry = min(least_entry, entry) if entry > 0.0 else least_entry
    return math.sqrt(most) > MIXED * math.sqrt(least) or most_entry > MIXED * least_entry


@inner
def project_error_at_solution(D: ProgramData, error: Array, states: States, slot: int, g: Array, w: Workspace) -> bool:
    """Project an error at the solution in ``states[slot]``; return False if there is no solution or no projection."""
    if states.has_start[slot] == ix.DUAL_START:
        factor_dual_working_set(D, states, slot, w)
        return project_error_dual(D, error, g, w)
    if states.has_start[slot] != ix.BASIS_START:
        return False
    load_basis_start(D, states, slot, w)
    set_superbasic_columns(D, w)
    return project_error_primal(D, error, g, w)
