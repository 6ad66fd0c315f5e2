"""The tangent space of the tight constraints, and the projection onto it."""

from __future__ import annotations

import math

from pear.compile.jit import inner, span
from pear.optimality.rule import NEGLIGIBLE, PROJECTED, ROUNDOFF, SHARP, WEAK
from pear.solvers.active_set import compiled_arrays as ix
from pear.solvers.active_set.basis import drop_superbasic, swap_basic
from pear.solvers.active_set.compiled_arrays import Array, ProgramData, Workspace
from pear.solvers.active_set.pricing import positive_or_one
from pear.solvers.active_set.products import set_reduced_gradient, subtract_columns, subtract_rows
from pear.solvers.active_set.reduced_system import factorise, solve_reduced
from pear.solvers.active_set.settings import NOISE, PIVOT, REFINEMENTS, STEEP


@inner
def hold_tight(w: Workspace) -> bool:
    """Add every tight constraint to the working set.

    Tight superbasic variables become nonbasic. Tight basic variables are exchanged with superbasic ones and then become
    nonbasic, too. The remaining superbasic variables are coordinates of the tangent space. Multipliers do not change,
    because the reduced gradient is zero along every superbasic variable.

    Returns:
        False where a tight constraint cannot be added because it is too nearly parallel to others. The working set then
        does not span the right tangent space.
    """
    held = True
    for t in range(w.tally[ix.SUPERS] - 1, -1, -1):
        tight = w.held[w.sup[t]]
        if tight != 0:
            w.place[w.sup[t]] = ix.LOWER if tight == 1 else ix.UPPER
            drop_superbasic(w, t)
    for b in span(len(w.inverse)):
        tight, supers = w.held[w.basis[b]], w.tally[ix.SUPERS]
        if tight == 0 or supers == 0:
            continue
        best, largest = 0, 0.0
        for t in span(supers):
            if abs(w.W[t, b]) > abs(w.W[best, b]):
                best = t
        for a in span(len(w.inverse)):
            largest = max(largest, abs(w.W[best, a]))
        if abs(w.W[best, b]) > PIVOT * max(1.0, largest):
            swap_basic(w, b, best, ix.LOWER if tight == 1 else ix.UPPER)
        else:
            held = held and abs(w.W[best, b]) <= ROUNDOFF * max(1.0, largest)
    return held


@inner
def centre(D: ProgramData, w: Workspace) -> bool:
    """Make zero multipliers of tight constraints positive where all others stay positive.

    A tight basic variable has multiplier zero only because it is basic. Raising the multiplier by t changes those of
    nonbasic variables by t times the variable's row of B⁻¹J. Half of the largest t that keeps them nonnegative leaves
    all of them positive.

    Returns:
        True where a multiplier has changed.
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
            subtract_columns(D, w.column, w.step)
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
                set_reduced_gradient(D, w)
    if changed:
        for k in span(R):
            if w.held[n + k] == 0:
                w.y[k] = 0.0
        set_reduced_gradient(D, w)
    return changed


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
    if factorise(D, w) >= 0 or is_steep(w):
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
        solve_reduced(w, supers)
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
    biggest = 0.0
    for j in span(n):
        biggest = max(biggest, abs(w.step[j]))
    for j in span(n):
        g[j] = w.step[j]
    return biggest > noise or biggest == 0.0  # a result of rounding size needs exact residuals


@inner
def is_steep(w: Workspace) -> bool:
    """True where the inverse amplifies the rounding of the rows too much."""
    for b in span(len(w.inverse)):
        total = 0.0
        for k in span(len(w.inverse)):
            total += abs(w.inverse[b, k]) * math.sqrt(w.norm[k])
        if total > STEEP:
            return True
    return False


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
    for j in span(n):
        w.error[j] = error[j] - D.smoothing * w.step[j]
    if len(D.Q) > 0:
        for j in span(n):
            if w.step[j] != 0.0:
                for i in span(n):
                    w.error[i] -= D.sign * w.step[j] * D.Q[j, i]
    return largest
