"""Which constraint leaves the working set: multipliers measured by their natural size."""

from __future__ import annotations

from pear.optimality.rule import FLOOR, SHARE_OF_FORCE, SIGN
from pear.solvers.active_set.compile import inner
from pear.solvers.active_set.layout import (
    BASIC,
    DUAL_SCALE,
    GRAD,
    LO,
    LOWER,
    MAX_CURVATURE,
    NORM,
    NUMBER,
    PLACE,
    PRIMAL_SCALE,
    REDUCED,
    SUPER,
    TERMS,
    UP,
    UPPER,
    C,
    Data,
    Work,
    Y,
)
from pear.solvers.active_set.linear import add_abs_columns, add_abs_rows


@inner
def measure_dual_scales(D: Data, w: Work) -> None:
    """The natural size of every multiplier, as ``pear.optimality.scale`` has it."""
    R, n = D.J.shape
    largest = FLOOR * w.v[NUMBER, PRIMAL_SCALE] * w.v[NUMBER, MAX_CURVATURE]
    for j in range(n):
        w.v[DUAL_SCALE, j] = abs(w.v[GRAD, j] - w.v[C, j]) + abs(w.v[C, j])
    add_abs_columns(D, w.v[Y], w.v[DUAL_SCALE])
    for j in range(n):
        largest = max(largest, w.v[DUAL_SCALE, j])
    for j in range(n):
        w.v[DUAL_SCALE, j] = positive(max(w.v[DUAL_SCALE, j], SHARE_OF_FORCE * largest))
    if D.equalities < R:
        for k in range(R):
            w.v[TERMS, k] = 0.0
        add_abs_rows(D, w.v[DUAL_SCALE], w.v[TERMS])
        for k in range(D.equalities, R):
            w.v[DUAL_SCALE, n + k] = positive(w.v[TERMS, k]) / positive(w.v[NORM, k])


@inner
def most_wrong(D: Data, w: Work, first: bool) -> int:
    """The nonbasic variable whose multiplier has the wrong sign by most (or the first such one), or −1."""
    found, worst = -1, SIGN
    for j in range(D.J.shape[0] + D.J.shape[1]):
        place = w.k[PLACE, j]
        if place in (BASIC, SUPER) or w.v[LO, j] == w.v[UP, j]:
            continue
        wrong = -w.v[REDUCED, j] if place == LOWER else (w.v[REDUCED, j] if place == UPPER else abs(w.v[REDUCED, j]))
        if wrong > 0.0:
            wrong /= w.v[DUAL_SCALE, j]
            if wrong > worst:
                found, worst = j, wrong
                if first:
                    break
    return found


@inner
def most_wrong_roughly(D: Data, w: Work) -> int:
    """The same without the natural sizes: enough to choose a direction, not to stop."""
    largest = 0.0
    for j in range(D.J.shape[1]):
        largest = max(largest, abs(w.v[GRAD, j]))
    found, worst = -1, SIGN * largest
    for j in range(D.J.shape[0] + D.J.shape[1]):
        place = w.k[PLACE, j]
        if place in (BASIC, SUPER) or w.v[LO, j] == w.v[UP, j]:
            continue
        wrong = -w.v[REDUCED, j] if place == LOWER else (w.v[REDUCED, j] if place == UPPER else abs(w.v[REDUCED, j]))
        if wrong > worst:
            found, worst = j, wrong
    return found


@inner
def positive(value: float) -> float:
    """The value, or 1 where there is nothing to divide by."""
    return value if value > 0.0 else 1.0
