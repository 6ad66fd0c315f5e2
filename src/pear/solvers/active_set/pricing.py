"""Which constraint leaves the working set: multipliers measured by their natural size."""

from __future__ import annotations

import math

from pear.optimality.rule import FLOOR, SHARE_OF_FORCE, SIGN
from pear.solvers.active_set import layout as ix
from pear.solvers.active_set.compile import inner
from pear.solvers.active_set.layout import Data, Work
from pear.solvers.active_set.linear import add_abs_columns, add_abs_rows


@inner
def measure_dual_scales(D: Data, w: Work) -> None:
    """The natural size of every multiplier, as ``pear.optimality.scale`` has it."""
    R, n = D.J.shape
    largest = FLOOR * w.v[ix.NUMBER, ix.LEAST_SIZE] * w.v[ix.NUMBER, ix.MAX_CURVATURE]
    largest = max(largest, curvature_terms(D, w))
    for j in range(n):
        w.v[ix.DUAL_SCALE, j] = abs(w.v[ix.GRAD, j] - w.v[ix.C, j]) + abs(w.v[ix.C, j])
    add_abs_columns(D, w.v[ix.Y], w.v[ix.DUAL_SCALE])
    for j in range(n):
        largest = max(largest, w.v[ix.DUAL_SCALE, j])
    for j in range(n):
        w.v[ix.DUAL_SCALE, j] = positive(max(w.v[ix.DUAL_SCALE, j], SHARE_OF_FORCE * largest))
    if D.equalities < R:
        for k in range(R):
            w.v[ix.TERMS, k] = 0.0
        add_abs_rows(D, w.v[ix.DUAL_SCALE], w.v[ix.TERMS])
        for k in range(D.equalities, R):
            w.v[ix.DUAL_SCALE, n + k] = positive(w.v[ix.TERMS, k]) / positive(w.v[ix.NORM, k])


@inner
def curvature_terms(D: Data, w: Work) -> float:
    """The largest term that Hx is summed from, at most, as ``pear.optimality.scale`` has it."""
    largest = 0.0
    for j in range(D.J.shape[1]):
        curvature = D.smoothing + (D.sign * D.Q[j, j] if D.Q.shape[0] > 0 else 0.0)
        largest = max(largest, math.sqrt(max(curvature, 0.0)) * abs(w.v[ix.X, j]))
    return math.sqrt(max(w.v[ix.NUMBER, ix.MAX_CURVATURE], 0.0)) * largest


@inner
def most_wrong(D: Data, w: Work, rough: bool, first: bool) -> int:
    """The nonbasic variable whose multiplier has the wrong sign by most (or the first such one), or −1.

    ``rough`` compares them without their natural sizes: enough to choose a direction, not to stop.
    """
    found, worst = -1, SIGN
    if rough:
        largest = 0.0
        for j in range(D.J.shape[1]):
            largest = max(largest, abs(w.v[ix.GRAD, j]))
        worst *= largest
    for j in range(D.J.shape[0] + D.J.shape[1]):
        place = w.k[ix.PLACE, j]
        if place in (ix.BASIC, ix.SUPER) or w.v[ix.LO, j] == w.v[ix.UP, j]:
            continue
        wrong = wrongness(place, w.v[ix.REDUCED, j])
        if wrong > 0.0 and not rough:
            wrong /= w.v[ix.DUAL_SCALE, j]
        if wrong > worst:
            found, worst = j, wrong
            if first:
                break
    return found


@inner
def wrongness(place: int, multiplier: float) -> float:
    """By how much the multiplier of a nonbasic variable has the wrong sign; one without bounds may have none."""
    return -multiplier if place == ix.LOWER else (multiplier if place == ix.UPPER else abs(multiplier))


@inner
def positive(value: float) -> float:
    """The value, or 1 where there is nothing to divide by."""
    return value if value > 0.0 else 1.0
