"""Pricing: choose the constraint that leaves the working set, by multipliers relative to their natural sizes."""

from __future__ import annotations

import math

from pear.compile.jit import inner, span
from pear.optimality.rule import FLOOR, SHARE_OF_FORCE, SIGN
from pear.solvers.active_set import compiled_arrays as ix
from pear.solvers.active_set.compiled_arrays import ProgramData, Workspace
from pear.solvers.active_set.products import add_abs_columns, add_abs_rows


@inner
def measure_dual_scales(D: ProgramData, w: Workspace) -> None:
    """Compute the natural size of every multiplier, as ``pear.optimality.natural_sizes`` defines it."""
    R, n = D.J.shape
    largest = FLOOR * w.number[ix.LEAST_SIZE] * w.number[ix.MAX_CURVATURE]
    largest = max(largest, curvature_terms(D, w))
    for j in span(n):
        w.dual_scale[j] = abs(w.grad[j] - w.c[j]) + abs(w.c[j])
    add_abs_columns(D, w.y, w.dual_scale)
    for j in span(n):
        largest = max(largest, w.dual_scale[j])
    for j in span(n):
        w.dual_scale[j] = positive_or_one(max(w.dual_scale[j], SHARE_OF_FORCE * largest))
    if D.equalities < R:
        for k in span(R):
            w.terms[k] = 0.0
        add_abs_rows(D, w.dual_scale, w.terms)
        for k in span(D.equalities, R):
            w.dual_scale[n + k] = positive_or_one(w.terms[k]) / positive_or_one(w.norm[k])


@inner
def curvature_terms(D: ProgramData, w: Workspace) -> float:
    """Return an upper bound of the terms that Hx is summed from, as ``pear.optimality.natural_sizes`` defines it."""
    largest = 0.0
    for j in span(D.n):
        curvature = D.smoothing + (D.sign * D.Q[j, j] if len(D.Q) > 0 else 0.0)
        largest = max(largest, math.sqrt(max(curvature, 0.0)) * abs(w.x[j]))
    return math.sqrt(max(w.number[ix.MAX_CURVATURE], 0.0)) * largest


@inner
def most_wrong_multiplier(D: ProgramData, w: Workspace, rough: bool, first: bool) -> int:
    """Return the nonbasic variable whose multiplier violates its sign most, or −1.

    Args:
        D: the program.
        w: the workspace.
        rough: compare multipliers without their natural sizes. This is enough to choose a direction, but not to stop.
        first: return the first variable with a wrong sign instead of the most wrong one.
    """
    found, worst = -1, SIGN
    if rough:
        largest = 0.0
        for j in span(D.n):
            largest = max(largest, abs(w.grad[j]))
        worst *= largest
    for j in span(len(D.J) + D.n):
        place = w.place[j]
        if place in (ix.BASIC, ix.SUPER) or w.lo[j] == w.up[j]:
            continue
        wrong = sign_violation(place, w.reduced[j])
        if wrong > 0.0 and not rough:
            wrong /= w.dual_scale[j]
        if wrong > worst:
            found, worst = j, wrong
            if first:
                break
    return found


@inner
def sign_violation(place: int, multiplier: float) -> float:
    """Return by how much the multiplier of a nonbasic variable has the wrong sign.

    The multiplier of a free variable must be zero.
    """
    return -multiplier if place == ix.LOWER else (multiplier if place == ix.UPPER else abs(multiplier))


@inner
def positive_or_one(value: float) -> float:
    """Return a positive value unchanged, and 1 instead of any other, so that it can be divided by."""
    return value if value > 0.0 else 1.0
