"""Which constraint leaves the working set: multipliers measured by their natural size."""

from __future__ import annotations

import math

from pear.compile.jit import inner, span
from pear.optimality.rule import FLOOR, SHARE_OF_FORCE, SIGN
from pear.solvers.active_set import layout as ix
from pear.solvers.active_set.layout import Data, Work
from pear.solvers.active_set.products import add_abs_columns, add_abs_rows


@inner
def measure_dual_scales(D: Data, w: Work) -> None:
    """The natural size of every multiplier, as ``pear.optimality.natural_sizes`` has it."""
    R, n = D.J.shape
    largest = FLOOR * w.number[ix.LEAST_SIZE] * w.number[ix.MAX_CURVATURE]
    largest = max(largest, curvature_terms(D, w))
    for j in span(n):
        w.dual_scale[j] = abs(w.grad[j] - w.c[j]) + abs(w.c[j])
    add_abs_columns(D, w.y, w.dual_scale)
    for j in span(n):
        largest = max(largest, w.dual_scale[j])
    for j in span(n):
        w.dual_scale[j] = positive(max(w.dual_scale[j], SHARE_OF_FORCE * largest))
    if D.equalities < R:
        for k in span(R):
            w.terms[k] = 0.0
        add_abs_rows(D, w.dual_scale, w.terms)
        for k in span(D.equalities, R):
            w.dual_scale[n + k] = positive(w.terms[k]) / positive(w.norm[k])


@inner
def curvature_terms(D: Data, w: Work) -> float:
    """The largest term that Hx is summed from, at most, as ``pear.optimality.natural_sizes`` has it."""
    largest = 0.0
    for j in span(D.n):
        curvature = D.smoothing + (D.sign * D.Q[j, j] if len(D.Q) > 0 else 0.0)
        largest = max(largest, math.sqrt(max(curvature, 0.0)) * abs(w.x[j]))
    return math.sqrt(max(w.number[ix.MAX_CURVATURE], 0.0)) * largest


@inner
def most_wrong(D: Data, w: Work, rough: bool, first: bool) -> int:
    """The nonbasic variable whose multiplier has the wrong sign by most (or the first such one), or −1.

    ``rough`` compares them without their natural sizes: enough to choose a direction, not to stop.
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
        wrong = wrongness(place, w.reduced[j])
        if wrong > 0.0 and not rough:
            wrong /= w.dual_scale[j]
        if wrong > worst:
            found, worst = j, wrong
            if first:
                break
    return found


@inner
def wrongness(place: int, multiplier: float) -> float:
    """By how much the multiplier of a nonbasic variable has the wrong sign; for a free variable it must be zero."""
    return -multiplier if place == ix.LOWER else (multiplier if place == ix.UPPER else abs(multiplier))


@inner
def positive(value: float) -> float:
    """The value, or 1 where there is nothing to divide by."""
    return value if value > 0.0 else 1.0
