"""The basis: its inverse, the point it determines, and the exchange of one variable for another."""

from __future__ import annotations

import math

from pear.optimality.rule import FEASIBLE, RANK
from pear.solvers.active_set import layout as ix
from pear.solvers.active_set.compile import inner
from pear.solvers.active_set.layout import Array, Data, Work
from pear.solvers.active_set.linear import add_abs_rows, subtract_rows
from pear.solvers.active_set.settings import REFINEMENTS, UNBALANCED


@inner
def rows_left(D: Data, w: Work) -> float:
    """Residual = r − Jx − s for the point as it is; returns its largest entry relative to the terms."""
    R, n = D.J.shape
    for k in range(R):
        w.v[ix.LEFT, k] = w.v[ix.RHS, k] - w.v[ix.X, n + k]
        w.v[ix.TERMS, k] = abs(w.v[ix.RHS, k]) + abs(w.v[ix.X, n + k])
    subtract_rows(D, w.v[ix.X], w.v[ix.LEFT])
    add_abs_rows(D, w.v[ix.X], w.v[ix.TERMS])
    worst = 0.0
    for k in range(R):
        if w.v[ix.LEFT, k] != 0.0:
            worst = max(worst, abs(w.v[ix.LEFT, k]) / w.v[ix.TERMS, k])
        if w.v[ix.LEFT, k] != w.v[ix.LEFT, k]:
            worst = math.inf
    return worst


@inner
def set_basics(D: Data, w: Work, goal: float) -> bool:
    """Solve the rows for the basic variables, by refinement from what they are; False where the inverse is none."""
    R = D.J.shape[0]
    for _ in range(REFINEMENTS):
        if rows_left(D, w) <= goal:
            return True
        for b in range(R):
            s = 0.0
            for k in range(R):
                s += w.inverse[b, k] * w.v[ix.LEFT, k]
            w.v[ix.X, w.k[ix.BASIS, b]] += s
    return rows_left(D, w) <= FEASIBLE


@inner
def invert(D: Data, w: Work) -> bool:
    """The inverse of the basic columns afresh, by Gauss-Jordan elimination; False where they are dependent."""
    R, n = D.J.shape
    M, inverse = w.scratch, w.inverse
    for a in range(R):
        for b in range(R):
            M[a, b] = 0.0
            inverse[a, b] = 1.0 if a == b else 0.0
    for b in range(R):
        j = w.k[ix.BASIS, b]
        if j >= n:
            M[j - n, b] = 1.0
        else:
            for k in range(R):
                M[k, b] = D.J[k, j]
    largest = 0.0
    for a in range(R):
        for b in range(R):
            largest = max(largest, abs(M[a, b]))
    for b in range(R):
        best = b
        for a in range(b + 1, R):
            if abs(M[a, b]) > abs(M[best, b]):
                best = a
        if not abs(M[best, b]) > min(RANK, w.v[ix.NUMBER, ix.PIVOT]) * largest:
            return False
        if best != b:
            for k in range(R):
                M[b, k], M[best, k] = M[best, k], M[b, k]
                inverse[b, k], inverse[best, k] = inverse[best, k], inverse[b, k]
        scale = 1.0 / M[b, b]
        for k in range(R):
            M[b, k] *= scale
            inverse[b, k] *= scale
        for a in range(R):
            factor = M[a, b]
            if a != b and factor != 0.0:
                for k in range(b, R):
                    M[a, k] -= factor * M[b, k]
                for k in range(R):
                    inverse[a, k] -= factor * inverse[b, k]
    w.tally[ix.AGE] = w.tally[ix.FACTORED] = 0
    return True


@inner
def times_inverse(D: Data, j: int, w: Work, out: Array) -> None:
    """B⁻¹ times the column of variable j."""
    R, n = D.J.shape
    if j >= n:
        for b in range(R):
            out[b] = w.inverse[b, j - n]
        return
    if D.start.shape[0] == 0:
        for k in range(R):
            w.v[ix.LEFT, k] = D.J[k, j]
        for b in range(R):
            s = 0.0
            for k in range(R):
                s += w.inverse[b, k] * w.v[ix.LEFT, k]
            out[b] = s
        return
    for b in range(R):
        s = 0.0
        for k in range(D.start[j], D.start[j + 1]):
            s += w.inverse[b, D.row[k]] * D.value[k]
        out[b] = s


@inner
def times_all(D: Data, w: Work) -> None:
    """W afresh: B⁻¹ times the columns of the superbasic variables."""
    for t in range(w.tally[ix.SUPERS]):
        times_inverse(D, w.k[ix.SUP, t], w, w.W[t])
    w.tally[ix.FACTORED] = 0


@inner
def exchange(w: Work, b: int, column: Array) -> None:
    """Update the inverse and W when a variable with ``column`` = B⁻¹J_j becomes basic at position b."""
    R = w.inverse.shape[0]
    pivot = 1.0 / column[b]
    for k in range(R):
        w.inverse[b, k] *= pivot
    for a in range(R):
        factor = column[a]
        if a != b and factor != 0.0:
            for k in range(R):
                w.inverse[a, k] -= factor * w.inverse[b, k]
    for t in range(w.tally[ix.SUPERS]):
        factor = w.W[t, b] * pivot
        if factor != 0.0:
            for a in range(R):
                w.W[t, a] -= factor * column[a]
            w.W[t, b] = factor
    w.tally[ix.AGE] += 1
    w.tally[ix.FACTORED] = 0


@inner
def drop(w: Work, t: int) -> None:
    """Take the superbasic at position t out of the list."""
    last = w.tally[ix.SUPERS] - 1
    for a in range(t, last):
        w.k[ix.SUP, a] = w.k[ix.SUP, a + 1]
        for b in range(w.inverse.shape[0]):
            w.W[a, b] = w.W[a + 1, b]
    w.tally[ix.SUPERS] = last
    w.tally[ix.FACTORED] = min(w.tally[ix.FACTORED], t)


@inner
def swap(w: Work, b: int, t: int, place: int) -> None:
    """The basic variable at position b goes to a bound, and the superbasic at position t becomes basic instead."""
    leaving, entering = w.k[ix.BASIS, b], w.k[ix.SUP, t]
    for a in range(w.inverse.shape[0]):
        w.v[ix.COLUMN, a] = w.W[t, a]
    drop(w, t)
    exchange(w, b, w.v[ix.COLUMN])
    w.k[ix.BASIS, b] = entering
    w.k[ix.PLACE, entering] = ix.BASIC
    w.k[ix.PLACE, leaving] = place


@inner
def rebalance(w: Work) -> bool:
    """Trade superbasic variables for basic ones that they move by far more than themselves; True where any was.

    Each exchange makes the volume of the basis larger by that factor, so that there are few. Rows that are nearly
    parallel leave a basis in which curvature would be lost to rounding.
    """
    R, changed = w.inverse.shape[0], False
    for t in range(w.tally[ix.SUPERS]):
        best = 0
        for b in range(R):
            if abs(w.W[t, b]) > abs(w.W[t, best]):
                best = b
        if R == 0 or not abs(w.W[t, best]) > UNBALANCED:
            continue
        leaving, entering, pivot = w.k[ix.BASIS, best], w.k[ix.SUP, t], w.W[t, best]
        for b in range(R):
            w.v[ix.COLUMN, b] = w.W[t, b]
        exchange(w, best, w.v[ix.COLUMN])
        for b in range(R):
            w.W[t, b] = 1.0 / pivot if b == best else -w.v[ix.COLUMN, b] / pivot
        w.k[ix.BASIS, best], w.k[ix.SUP, t] = entering, leaving
        w.k[ix.PLACE, entering], w.k[ix.PLACE, leaving] = ix.BASIC, ix.SUPER
        changed = True
    return changed


@inner
def enter(D: Data, w: Work, j: int) -> None:
    """Make a nonbasic variable superbasic."""
    t = w.tally[ix.SUPERS]
    w.k[ix.SUP, t] = j
    w.k[ix.PLACE, j] = ix.SUPER
    times_inverse(D, j, w, w.W[t])
    w.tally[ix.SUPERS] = t + 1
