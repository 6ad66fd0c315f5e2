"""The tangent space of the tight constraints, and the projection onto it."""

from __future__ import annotations

import math

from pear.optimality.rule import NEGLIGIBLE, PROJECTED, ROUNDOFF, SHARP, WEAK
from pear.solvers.active_set import layout as ix
from pear.solvers.active_set.basis import drop, swap
from pear.solvers.active_set.compile import inner
from pear.solvers.active_set.layout import Array, Data, Work
from pear.solvers.active_set.linear import set_reduced_gradient, subtract_columns, subtract_rows
from pear.solvers.active_set.pricing import positive
from pear.solvers.active_set.reduced import factorise, solve_reduced
from pear.solvers.active_set.settings import NOISE, PIVOT, REFINEMENTS, STEEP


@inner
def hold_tight(w: Work) -> bool:
    """Hold every tight constraint: superbasic variables that are tight go, and tight basic ones trade places.

    What is left superbasic are coordinates of the tangent space. Multipliers stay as they are, because the reduced
    gradient is zero along every superbasic variable.

    Returns:
        False where a tight constraint is too nearly parallel to others to be held: the tangent space is another one.
    """
    held = True
    for t in range(w.tally[ix.SUPERS] - 1, -1, -1):
        tight = w.k[ix.HELD, w.k[ix.SUP, t]]
        if tight != 0:
            w.k[ix.PLACE, w.k[ix.SUP, t]] = ix.LOWER if tight == 1 else ix.UPPER
            drop(w, t)
    for b in range(w.inverse.shape[0]):
        tight, supers = w.k[ix.HELD, w.k[ix.BASIS, b]], w.tally[ix.SUPERS]
        if tight == 0 or supers == 0:
            continue
        best, largest = 0, 0.0
        for t in range(supers):
            if abs(w.W[t, b]) > abs(w.W[best, b]):
                best = t
        for a in range(w.inverse.shape[0]):
            largest = max(largest, abs(w.W[best, a]))
        if abs(w.W[best, b]) > PIVOT * max(1.0, largest):
            swap(w, b, best, ix.LOWER if tight == 1 else ix.UPPER)
        else:
            held = held and abs(w.W[best, b]) <= ROUNDOFF * max(1.0, largest)
    return held


@inner
def centre(D: Data, w: Work) -> bool:
    """Give tight constraints a multiplier each, where that costs none of the others theirs; True where it did.

    A tight basic variable has multiplier zero only because it is basic. Raising it by t changes the multipliers of
    nonbasic variables by t times its row of B⁻¹J; half of what the first of them allows leaves all of them positive.
    """
    R, n = D.J.shape
    N = n + R
    changed = False
    for _ in range(2):
        for b in range(R):
            v = w.k[ix.BASIS, b]
            size = w.v[ix.DUAL_SCALE, v]
            if w.k[ix.HELD, v] == 0 or w.v[ix.LO, v] == w.v[ix.UP, v] or abs(w.v[ix.REDUCED, v]) > WEAK * size:
                continue
            sign = 1.0 if w.k[ix.HELD, v] == 1 else -1.0
            for j in range(n):
                w.v[ix.STEP, j] = 0.0
            for k in range(R):
                w.v[ix.COLUMN, k] = w.inverse[b, k]
            subtract_columns(D, w.v[ix.COLUMN], w.v[ix.STEP])
            longest = math.inf
            for j in range(N):
                if w.k[ix.PLACE, j] in (ix.BASIC, ix.SUPER) or w.v[ix.LO, j] == w.v[ix.UP, j]:
                    continue
                rate = -w.v[ix.STEP, j] if j < n else w.v[ix.COLUMN, j - n]
                rate *= sign
                room = w.v[ix.REDUCED, j]
                if w.k[ix.PLACE, j] == ix.UPPER:
                    rate, room = -rate, -room
                if rate < -ROUNDOFF:
                    longest = min(longest, max(0.0, room) / -rate)
            if longest == math.inf:
                longest = 0.0
                for j in range(n):
                    longest = max(longest, abs(w.v[ix.GRAD, j]))
            if longest > 0.0:
                changed = True
                for k in range(R):
                    w.v[ix.Y, k] -= 0.5 * longest * sign * w.v[ix.COLUMN, k]
                set_reduced_gradient(D, w)
    if changed:
        for k in range(R):
            if w.k[ix.HELD, n + k] == 0:
                w.v[ix.Y, k] = 0.0
        set_reduced_gradient(D, w)
    return changed


@inner
def project_error(D: Data, error: Array, g: Array, w: Work) -> bool:
    """``g = P error`` at the working set of w, whose superbasics span the tangent space.

    Returns:
        False where the objective is flat along a tangent direction, or refinement has not converged.
    """
    R, n = D.J.shape
    supers = w.tally[ix.SUPERS]
    for j in range(n):
        g[j] = 0.0
        if w.k[ix.PLACE, j] == ix.FREE:  # held, but by no constraint
            return False
    if supers == 0:
        return True
    if factorise(D, w) >= 0 or is_steep(w):
        return False
    for v in range(n + R):
        w.v[ix.STEP, v] = 0.0
    for j in range(n):
        w.v[ix.ERROR, j] = error[j]
    top = 0.0
    for j in range(n):
        if not abs(error[j]) < math.inf:  # what is no number has no projection that is one
            for i in range(n):
                g[i] = math.nan
            return True
        top = max(top, abs(error[j]))
    noise = NEGLIGIBLE * top / positive(w.v[ix.NUMBER, ix.MAX_CURVATURE])
    largest, change = 0.0, math.inf
    for attempt in range(REFINEMENTS):
        if attempt > 0 and not correct_tangent(D, error, w) <= max(PROJECTED * largest, noise):
            return False  # the inverse has lost its digits on the way, and with it the tangent space
        for t in range(supers):
            s = w.v[ix.ERROR, w.k[ix.SUP, t]] if w.k[ix.SUP, t] < n else 0.0
            for b in range(R):
                if w.k[ix.BASIS, b] < n:
                    s -= w.W[t, b] * w.v[ix.ERROR, w.k[ix.BASIS, b]]
            w.v[ix.ALONG, t] = s
        solve_reduced(w, supers)
        change = 0.0
        for t in range(supers):
            w.v[ix.STEP, w.k[ix.SUP, t]] += w.v[ix.ALONG, t]
            change = max(change, abs(w.v[ix.ALONG, t]))
            for b in range(R):
                w.v[ix.STEP, w.k[ix.BASIS, b]] -= w.W[t, b] * w.v[ix.ALONG, t]
        if attempt == 0:
            largest = change
        elif change <= max(SHARP * largest, NOISE * noise):
            break
    if not change <= max(PROJECTED * largest, noise):
        return False
    biggest = 0.0
    for j in range(n):
        biggest = max(biggest, abs(w.v[ix.STEP, j]))
    for j in range(n):
        g[j] = w.v[ix.STEP, j]
    return biggest > noise or biggest == 0.0  # what may be rounding is for exact residuals to tell


@inner
def is_steep(w: Work) -> bool:
    """True where basic variables answer to rounding of the rows as if it were much more."""
    for b in range(w.inverse.shape[0]):
        total = 0.0
        for k in range(w.inverse.shape[0]):
            total += abs(w.inverse[b, k]) * math.sqrt(w.v[ix.NORM, k])
        if total > STEEP:
            return True
    return False


@inner
def correct_tangent(D: Data, error: Array, w: Work) -> float:
    """Bring STEP = p back to Jp = 0, and write what is left of the error, ERROR = error − Hp.

    Returns:
        The largest correction of p.
    """
    R, n = D.J.shape
    largest = 0.0
    for k in range(R):
        w.v[ix.LEFT, k] = -w.v[ix.STEP, n + k]
    subtract_rows(D, w.v[ix.STEP], w.v[ix.LEFT])
    for b in range(R):
        s = 0.0
        for k in range(R):
            s += w.inverse[b, k] * w.v[ix.LEFT, k]
        w.v[ix.STEP, w.k[ix.BASIS, b]] += s
        largest = max(largest, abs(s) if w.k[ix.BASIS, b] < n else 0.0)
    for j in range(n):
        w.v[ix.ERROR, j] = error[j] - D.smoothing * w.v[ix.STEP, j]
    if D.Q.shape[0] > 0:
        for j in range(n):
            if w.v[ix.STEP, j] != 0.0:
                for i in range(n):
                    w.v[ix.ERROR, i] -= D.sign * w.v[ix.STEP, j] * D.Q[j, i]
    return largest
