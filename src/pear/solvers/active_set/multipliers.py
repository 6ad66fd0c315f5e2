"""Multipliers of a working set: computed, refined, centred, and compared with the signs that they must have."""

from __future__ import annotations

import math

from pear.compile.jit import inner, span
from pear.optimality.rule import FLOOR, ROUNDOFF, SHARE_OF_FORCE, SIGN, WEAK
from pear.solvers.active_set import kernel_arrays as ix
from pear.solvers.active_set.compiled_sizes import compiled_size_or_one, largest_compiled_size
from pear.solvers.active_set.kernel_arrays import ProgramData, Workspace
from pear.solvers.active_set.program_products import (
    add_abs_column_products,
    add_abs_row_products,
    curvature_terms,
    subtract_column_products,
)


@inner
def set_multipliers(D: ProgramData, w: Workspace) -> None:
    """Compute the multipliers of the rows from the gradient at the basic variables, then the reduced gradient."""
    R, n = D.J.shape
    for k in span(R):
        w.y[k] = 0.0
    for b in span(R):
        if w.basis[b] < n:
            factor = w.grad[w.basis[b]]
            for k in span(R):
                w.y[k] += factor * w.inverse[b, k]
    subtract_multipliers_from_gradient(D, w)


@inner
def subtract_multipliers_from_gradient(D: ProgramData, w: Workspace) -> None:
    """Set ``w.reduced`` to grad − Jᵀy for the variables and −y for the slacks; y are the multipliers of the rows J."""
    R, n = D.J.shape
    for j in span(n):
        w.reduced[j] = w.grad[j]
    subtract_column_products(D, w.y, w.reduced)
    for k in span(R):
        w.reduced[n + k] = -w.y[k]


@inner
def refine_multipliers(D: ProgramData, w: Workspace) -> None:
    """Compute the multipliers with one round of refinement.

    Rows whose slack is basic or superbasic get multipliers of exactly zero.
    """
    R, n = D.J.shape
    set_multipliers(D, w)
    for b in span(R):
        left = w.reduced[w.basis[b]]
        if left != 0.0:
            for k in span(R):
                w.y[k] += left * w.inverse[b, k]
    for k in span(R):
        if w.place[n + k] in (ix.BASIC, ix.SUPER):
            w.y[k] = 0.0
    subtract_multipliers_from_gradient(D, w)


@inner
def set_tight_multipliers(D: ProgramData, w: Workspace) -> None:
    """Set the multipliers of tight bounds from the reduced gradient, and those of the other bounds to zero.

    If a multiplier of a bound or of an inequality has the wrong sign, it becomes zero. The caller has made sure that
    only rounding errors have the wrong sign.
    """
    R, n = D.J.shape
    for j in span(n):
        bound = -w.reduced[j] if w.held[j] != 0 else 0.0
        if w.lo[j] != w.up[j]:
            bound = min(bound, 0.0) if w.held[j] == 1 else max(bound, 0.0)
        w.bound[j] = bound
    for k in span(D.equalities, R):
        w.y[k] = min(w.y[k], 0.0)


@inner
def centre_multipliers(D: ProgramData, w: Workspace) -> bool:
    """Move multipliers of tight constraints away from zero if they are zero only because their variable is basic.

    If the multiplier of a tight basic variable grows by t, those of the nonbasic variables change by t times the row of
    B⁻¹J that belongs to the basic variable, where B has the basic columns of the rows J. The function takes half of the
    largest t at which all multipliers keep their signs, so that no other multiplier becomes zero.

    Returns:
        True if a multiplier has changed.
    """
    R, n = D.J.shape
    N = n + R
    changed = False
    for _ in span(2):
        for b in span(R):
            v = w.basis[b]
            size = w.dual_scale[v]
            if w.held[v] == 0 or w.lo[v] == w.up[v] or abs(w.reduced[v]) > WEAK * size:
                continue
            sign = 1.0 if w.held[v] == 1 else -1.0
            for j in span(n):
                w.step[j] = 0.0
            for k in span(R):
                w.column[k] = w.inverse[b, k]
            subtract_column_products(D, w.column, w.step)
            longest = math.inf
            for j in span(N):
                if w.place[j] in (ix.BASIC, ix.SUPER) or w.lo[j] == w.up[j]:
                    continue
                rate = -w.step[j] if j < n else w.column[j - n]
                rate *= sign
                room = w.reduced[j]
                if w.place[j] == ix.UPPER:
                    rate, room = -rate, -room
                if rate < -ROUNDOFF:
                    longest = min(longest, max(0.0, room) / -rate)
            if longest == math.inf:
                longest = 0.0
                for j in span(n):
                    longest = max(longest, abs(w.grad[j]))
            if longest > 0.0:
                changed = True
                for k in span(R):
                    w.y[k] -= 0.5 * longest * sign * w.column[k]
                subtract_multipliers_from_gradient(D, w)
    if changed:
        for k in span(R):
            if w.held[n + k] == 0:
                w.y[k] = 0.0
        subtract_multipliers_from_gradient(D, w)
    return changed


@inner
def measure_multiplier_sizes(D: ProgramData, w: Workspace) -> None:
    """Set ``w.dual_scale`` to the natural size of every multiplier, as ``pear.optimality.natural_sizes`` defines it."""
    R, n = D.J.shape
    largest = FLOOR * w.number[ix.LEAST_SIZE] * w.number[ix.MAX_CURVATURE]
    largest = max(largest, curvature_terms(D, w))
    for j in span(n):
        w.dual_scale[j] = abs(w.grad[j] - w.c[j]) + abs(w.c[j])
    add_abs_column_products(D, w.y, w.dual_scale)
    for j in span(n):
        largest = max(largest, w.dual_scale[j])
    for j in span(n):
        w.dual_scale[j] = compiled_size_or_one(max(w.dual_scale[j], SHARE_OF_FORCE * largest))
    if D.equalities < R:
        for k in span(R):
            w.terms[k] = 0.0
        add_abs_row_products(D, w.dual_scale, w.terms)
        for k in span(D.equalities, R):
            w.dual_scale[n + k] = compiled_size_or_one(w.terms[k]) / compiled_size_or_one(w.norm[k])


@inner
def most_wrong_multiplier(D: ProgramData, w: Workspace, rough: bool, first: bool) -> int:
    """Return the nonbasic variable whose multiplier violates its sign most; −1 if no sign is violated.

    Args:
        D: the program.
        w: the workspace.
        rough: whether multipliers are compared with the largest entry of the gradient instead of their natural sizes.
            This is enough to choose a direction, but not to stop.
        first: whether the first variable with a wrong sign is returned instead of the most wrong one.
    """
    N, allowed = len(D.J) + D.n, SIGN * (largest_compiled_size(w.grad, D.n) if rough else 1.0)
    for j in span(N):  # without branches, so that it runs in parallel lanes
        place = w.place[j]
        wrong = multiplier_sign_violation(place, w.reduced[j])
        held = (place != ix.BASIC) & (place != ix.SUPER) & (w.lo[j] != w.up[j])
        w.step[j] = wrong if held & (wrong > 0.0) else 0.0
    if not rough:
        for j in span(N):
            if w.step[j] > 0.0:
                w.step[j] /= w.dual_scale[j]
    worst = largest_compiled_size(w.step, N)
    if not worst > allowed:
        return -1
    found = 0
    while not w.step[found] > allowed if first else w.step[found] != worst:
        found += 1
    return found


@inner
def multiplier_sign_violation(place: int, multiplier: float) -> float:
    """Return by how much the multiplier of a nonbasic variable has the wrong sign; at most 0 if the sign is right.

    The multiplier of a FREE variable must be zero.
    """
    return -multiplier if place == ix.LOWER else (multiplier if place == ix.UPPER else abs(multiplier))
