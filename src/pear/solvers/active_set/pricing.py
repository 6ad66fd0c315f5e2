"""Which constraint is to let go: multipliers measured by their natural size."""

from __future__ import annotations

from pear.optimality.rule import FLOOR, SHARE_OF_FORCE, SIGN
from pear.solvers.active_set.compile import inner
from pear.solvers.active_set.layout import (
    BASIC,
    FORCE,
    GRAD,
    LO,
    LOWER,
    NORM,
    NUMBER,
    PLACE,
    PULL,
    REACH,
    STIFFNESS,
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
def measure_forces(D: Data, w: Work) -> None:
    """The natural size of every multiplier, as ``pear.optimality.scale`` has it."""
    R, n = D.J.shape
    largest = FLOOR * w.v[NUMBER, REACH] * w.v[NUMBER, STIFFNESS]
    for j in range(n):
        w.v[FORCE, j] = abs(w.v[GRAD, j] - w.v[C, j]) + abs(w.v[C, j])
    add_abs_columns(D, w.v[Y], w.v[FORCE])
    for j in range(n):
        largest = max(largest, w.v[FORCE, j])
    for j in range(n):
        w.v[FORCE, j] = positive(max(w.v[FORCE, j], SHARE_OF_FORCE * largest))
    if D.equalities < R:
        for k in range(R):
            w.v[TERMS, k] = 0.0
        add_abs_rows(D, w.v[FORCE], w.v[TERMS])
        for k in range(D.equalities, R):
            w.v[FORCE, n + k] = positive(w.v[TERMS, k]) / positive(w.v[NORM, k])


@inner
def most_wrong(D: Data, w: Work, first: bool) -> int:
    """The nonbasic variable whose multiplier has the wrong sign by most (or the first such one), or −1."""
    found, worst = -1, SIGN
    for j in range(D.J.shape[0] + D.J.shape[1]):
        place = w.k[PLACE, j]
        if place in (BASIC, SUPER) or w.v[LO, j] == w.v[UP, j]:
            continue
        wrong = -w.v[PULL, j] if place == LOWER else (w.v[PULL, j] if place == UPPER else abs(w.v[PULL, j]))
        if wrong > 0.0:
            wrong /= w.v[FORCE, j]
            if wrong > worst:
                found, worst = j, wrong
                if first:
                    break
    return found


@inner
def most_wrong_roughly(D: Data, w: Work) -> int:
    """The same without the natural sizes: good enough to find the way, not to say that it has ended."""
    largest = 0.0
    for j in range(D.J.shape[1]):
        largest = max(largest, abs(w.v[GRAD, j]))
    found, worst = -1, SIGN * largest
    for j in range(D.J.shape[0] + D.J.shape[1]):
        place = w.k[PLACE, j]
        if place in (BASIC, SUPER) or w.v[LO, j] == w.v[UP, j]:
            continue
        wrong = -w.v[PULL, j] if place == LOWER else (w.v[PULL, j] if place == UPPER else abs(w.v[PULL, j]))
        if wrong > worst:
            found, worst = j, wrong
    return found


@inner
def positive(value: float) -> float:
    """The value, or 1 where there is nothing to divide by."""
    return value if value > 0.0 else 1.0
