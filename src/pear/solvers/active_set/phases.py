"""The two phases: to a feasible point, and from there to the minimum."""

from __future__ import annotations

import math

from pear.optimality.rule import ROUNDOFF, SHARE_OF_SIZE
from pear.solvers.active_set import layout as ix
from pear.solvers.active_set.basis import drop, enter, exchange, rebalance, swap, times_inverse
from pear.solvers.active_set.compile import inner
from pear.solvers.active_set.layout import Data, Work
from pear.solvers.active_set.linear import add_abs_columns, set_multipliers, set_reduced_gradient, set_slope
from pear.solvers.active_set.pricing import measure_dual_scales, most_wrong, wrongness
from pear.solvers.active_set.reduced import search_direction
from pear.solvers.active_set.settings import ROUNDING, STALLED, START_SLOP


@inner
def phase_one(D: Data, w: Work) -> bool:
    """To a feasible point, by the sum of infeasibilities; False where there is none, or rounding prevents it."""
    R, n = D.J.shape
    N = n + R
    stalled = 0
    for _ in range(20 * N + 100):
        infeasible = False
        largest = 0.0
        for j in range(n):
            largest = max(largest, abs(w.v[ix.X, j]))
        for k in range(R):
            w.v[ix.Y, k] = 0.0
        for b in range(R):
            v = w.k[ix.BASIS, b]
            side = side_of(w, v, n, SHARE_OF_SIZE * largest)
            w.v[ix.STEP, b] = side
            if side != 0.0:
                infeasible = True
                for k in range(R):
                    w.v[ix.Y, k] += side * w.inverse[b, k]
        if not infeasible:
            return True
        for j in range(n):
            w.v[ix.GRAD, j] = w.v[ix.DUAL_SCALE, j] = 0.0
        set_reduced_gradient(D, w)
        add_abs_columns(D, w.v[ix.Y], w.v[ix.DUAL_SCALE])
        entering, best = -1, w.v[ix.NUMBER, ix.PIVOT]
        for j in range(N):
            place = w.k[ix.PLACE, j]
            if place == ix.BASIC or w.v[ix.LO, j] == w.v[ix.UP, j]:
                continue
            size = w.v[ix.DUAL_SCALE, j] if j < n else abs(w.v[ix.Y, j - n])
            gain = wrongness(place, w.v[ix.REDUCED, j])
            if size > 0.0 and gain > best * size:
                entering, best = j, gain / size
                if stalled > STALLED:
                    break
        if entering < 0:
            return False
        length = phase_one_step(D, w, entering, -1.0 if w.v[ix.REDUCED, entering] > 0.0 else 1.0)
        if length == math.inf:
            return False
        stalled = 0 if length > 0.0 else stalled + 1
    return False


@inner
def side_of(w: Work, v: int, n: int, spread: float) -> float:
    """−1 below the lower bound, 1 above the upper one, 0 between, up to rounding.

    The natural size is that of ``pear.optimality.scale``: of a slack, the terms of its row as they were at the start.
    """
    if v < n:
        slop = START_SLOP * max(abs(w.v[ix.X, v]), min(spread, w.v[ix.UP, v] - w.v[ix.LO, v]))
    else:
        slop = START_SLOP * w.v[ix.TERMS, v - n]
    if w.v[ix.X, v] < w.v[ix.LO, v] - slop:
        return -1.0
    return 1.0 if w.v[ix.X, v] > w.v[ix.UP, v] + slop else 0.0


@inner
def shift(w: Work, v: int, change: float) -> None:
    """Move a variable, and leave it on a bound that it misses by no more than the rounding of this very sum."""
    x = w.v[ix.X, v]
    slop = ROUNDING * (abs(x) + abs(change))
    x += change
    if abs(x - w.v[ix.LO, v]) <= slop:
        x = w.v[ix.LO, v]
    elif abs(x - w.v[ix.UP, v]) <= slop:
        x = w.v[ix.UP, v]
    w.v[ix.X, v] = x


@inner
def phase_one_step(D: Data, w: Work, entering: int, direction: float) -> float:
    """Move one variable until the first basic one meets a bound; returns the length, infinite where none does."""
    R = w.inverse.shape[0]
    times_inverse(D, entering, w, w.v[ix.COLUMN])
    largest = 0.0
    for b in range(R):
        largest = max(largest, abs(w.v[ix.COLUMN, b]))
    far = w.v[ix.UP, entering] if direction > 0.0 else w.v[ix.LO, entering]
    length, leaving, place = abs(far - w.v[ix.X, entering]), -1, ix.UPPER if direction > 0.0 else ix.LOWER
    rate_taken = 0.0
    for b in range(R):
        rate = -direction * w.v[ix.COLUMN, b]
        if abs(rate) <= w.v[ix.NUMBER, ix.PIVOT] * largest:
            continue
        v, side = w.k[ix.BASIS, b], w.v[ix.STEP, b]
        if side == 0.0:
            goal = w.v[ix.UP, v] if rate > 0.0 else w.v[ix.LO, v]
        elif side * rate < 0.0:
            goal = w.v[ix.LO, v] if side < 0.0 else w.v[ix.UP, v]
        else:
            continue
        step = max(0.0, (goal - w.v[ix.X, v]) / rate)
        if step < length or (step == length and abs(rate) > abs(rate_taken)):
            length, leaving, rate_taken = step, b, rate
            place = ix.UPPER if goal == w.v[ix.UP, v] else ix.LOWER
    if length == math.inf:
        return length
    for b in range(R):
        shift(w, w.k[ix.BASIS, b], -direction * length * w.v[ix.COLUMN, b])
    shift(w, entering, direction * length)
    w.tally[ix.CHANGES] += 1
    for t in range(w.tally[ix.SUPERS]):
        if w.k[ix.SUP, t] == entering:
            drop(w, t)
            break
    if leaving < 0:
        w.k[ix.PLACE, entering] = place
        w.v[ix.X, entering] = far
        return length
    gone = w.k[ix.BASIS, leaving]
    exchange(w, leaving, w.v[ix.COLUMN])
    w.k[ix.BASIS, leaving] = entering
    w.k[ix.PLACE, entering] = ix.BASIC
    w.k[ix.PLACE, gone] = place
    w.v[ix.X, gone] = w.v[ix.UP, gone] if place == ix.UPPER else w.v[ix.LO, gone]
    return length


@inner
def enter_free_variables(D: Data, w: Work) -> None:
    """Make variables without bounds superbasic, as far as there is room."""
    for j in range(D.J.shape[1]):
        if w.k[ix.PLACE, j] == ix.FREE and w.tally[ix.SUPERS] < w.L.shape[0] - 1:
            enter(D, w, j)


@inner
def phase_two(D: Data, w: Work, careful: bool) -> bool:
    """From a feasible point to a minimum whose multipliers have the right signs; False where that fails."""
    N, most = D.J.shape[0] + D.J.shape[1], w.L.shape[0] - 1
    stalled = 0
    set_slope(D, w)
    at_minimum = w.tally[ix.SUPERS] == 0
    for _ in range(20 * N + 100):
        set_multipliers(D, w)
        if at_minimum:
            rough = not careful and stalled <= STALLED
            if not rough:
                measure_dual_scales(D, w)
            entering = most_wrong(D, w, rough, stalled > STALLED)
            if entering < 0:
                return True
            if w.tally[ix.SUPERS] == most:
                return False
            enter(D, w, entering)
            w.tally[ix.CHANGES] += 1
        longest = search_direction(D, w)
        if abs(longest) == math.inf and rebalance(w):  # flat by rounding, perhaps
            at_minimum = False
            continue
        length, met = ratio_test(D, w, abs(longest))
        if longest == -math.inf and length == math.inf:  # level: the other way is as good
            reverse(w)
            length, met = ratio_test(D, w, length)
            if length == math.inf:
                hold_level(w)
                at_minimum = w.tally[ix.SUPERS] == 0
                continue
        if not length < math.inf or not take_step(D, w, length, met):
            return False
        stalled = 0 if length > 0.0 else stalled + 1
        at_minimum = met < 0 or w.tally[ix.SUPERS] == 0
    return False


@inner
def reverse(w: Work) -> None:
    """Turn the search direction around."""
    for t in range(w.tally[ix.SUPERS]):
        w.v[ix.ALONG, t] = -w.v[ix.ALONG, t]
    for b in range(w.inverse.shape[0]):
        w.v[ix.COLUMN, b] = -w.v[ix.COLUMN, b]


@inner
def hold_level(w: Work) -> None:
    """Hold the superbasic variable along which the objective is flat and level where it is: any value is as good."""
    t = w.tally[ix.FACTORED]
    w.k[ix.PLACE, w.k[ix.SUP, t]] = ix.FREE
    drop(w, t)


@inner
def ratio_test(D: Data, w: Work, longest: float) -> tuple[float, int]:
    """The step along ALONG and COLUMN to the first bound, and which variable meets it: −1 where none does.

    Superbasic variables are numbered first, then basic ones.
    """
    R, supers = D.J.shape[0], w.tally[ix.SUPERS]
    largest = 0.0
    for t in range(supers):
        largest = max(largest, abs(w.v[ix.ALONG, t]))
    for b in range(R):
        largest = max(largest, abs(w.v[ix.COLUMN, b]))
    length, met, rate_taken = longest, -1, 0.0
    for a in range(supers + R):
        v = w.k[ix.SUP, a] if a < supers else w.k[ix.BASIS, a - supers]
        rate = w.v[ix.ALONG, a] if a < supers else w.v[ix.COLUMN, a - supers]
        if abs(rate) <= ROUNDOFF * largest:
            continue
        goal = w.v[ix.UP, v] if rate > 0.0 else w.v[ix.LO, v]
        step = max(0.0, (goal - w.v[ix.X, v]) / rate)
        if step < length or (step == length and met >= 0 and abs(rate) > abs(rate_taken)):
            length, met, rate_taken = step, a, rate
    return length, met


@inner
def take_step(D: Data, w: Work, length: float, met: int) -> bool:
    """Move along ALONG and COLUMN, and put the variable that ``met`` its bound there; False where nothing replaces it.

    It leaves the superbasic ones, or the basic ones, where the superbasic that moves it most takes its place.
    """
    R, supers = D.J.shape[0], w.tally[ix.SUPERS]
    if length > 0.0:
        for t in range(supers):
            move(D, w, w.k[ix.SUP, t], length * w.v[ix.ALONG, t])
        for b in range(R):
            move(D, w, w.k[ix.BASIS, b], length * w.v[ix.COLUMN, b])
    if met < 0:
        return True
    v = w.k[ix.SUP, met] if met < supers else w.k[ix.BASIS, met - supers]
    rate = w.v[ix.ALONG, met] if met < supers else w.v[ix.COLUMN, met - supers]
    place = ix.UPPER if rate > 0.0 else ix.LOWER
    w.v[ix.X, v] = w.v[ix.UP, v] if place == ix.UPPER else w.v[ix.LO, v]
    w.tally[ix.CHANGES] += 1
    if met < supers:
        w.k[ix.PLACE, v] = place
        drop(w, met)
        return True
    b, best = met - supers, 0
    for t in range(supers):
        if abs(w.W[t, b]) > abs(w.W[best, b]):
            best = t
    if w.W[best, b] == 0.0:
        return False
    swap(w, b, best, place)
    return True


@inner
def move(D: Data, w: Work, v: int, change: float) -> None:
    """Move one variable, and the gradient with it."""
    if change == 0.0:
        return
    w.v[ix.X, v] += change
    n = D.J.shape[1]
    if v < n:
        w.v[ix.GRAD, v] += D.smoothing * change
        if D.Q.shape[0] > 0:
            for i in range(n):
                w.v[ix.GRAD, i] += D.sign * change * D.Q[v, i]
