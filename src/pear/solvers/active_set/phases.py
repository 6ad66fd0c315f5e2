"""The two phases: to a feasible point, and from there to the minimum."""

from __future__ import annotations

import math

from pear.optimality.rule import ROUNDOFF
from pear.solvers.active_set.basis import drop, enter, exchange, swap, times_inverse
from pear.solvers.active_set.compile import inner
from pear.solvers.active_set.layout import (
    ALONG,
    BASIC,
    BASIS,
    CHANGES,
    COLUMN,
    DUAL_SCALE,
    FREE,
    GRAD,
    LO,
    LOWER,
    PLACE,
    REDUCED,
    STEP,
    SUP,
    SUPERS,
    UP,
    UPPER,
    Data,
    Work,
    X,
    Y,
)
from pear.solvers.active_set.linear import add_abs_columns, set_multipliers, set_reduced_gradient, set_slope
from pear.solvers.active_set.pricing import measure_dual_scales, most_wrong, most_wrong_roughly
from pear.solvers.active_set.reduced import search_direction
from pear.solvers.active_set.settings import PIVOT, STALLED, START_SLOP


@inner
def phase_one(D: Data, w: Work) -> bool:
    """To a feasible point, by the sum of infeasibilities; False where there is none, or rounding prevents it."""
    R, n = D.J.shape
    N = n + R
    stalled = 0
    for _ in range(20 * N + 100):
        infeasible = False
        for k in range(R):
            w.v[Y, k] = 0.0
        for b in range(R):
            v = w.k[BASIS, b]
            side = side_of(w, v)
            w.v[STEP, b] = side
            if side != 0.0:
                infeasible = True
                for k in range(R):
                    w.v[Y, k] += side * w.inverse[b, k]
        if not infeasible:
            return True
        for j in range(n):
            w.v[GRAD, j] = w.v[DUAL_SCALE, j] = 0.0
        set_reduced_gradient(D, w)
        add_abs_columns(D, w.v[Y], w.v[DUAL_SCALE])
        entering, best = -1, PIVOT
        for j in range(N):
            place = w.k[PLACE, j]
            if place == BASIC or w.v[LO, j] == w.v[UP, j]:
                continue
            size = w.v[DUAL_SCALE, j] if j < n else abs(w.v[Y, j - n])
            gain = -w.v[REDUCED, j] if place == LOWER else (w.v[REDUCED, j] if place == UPPER else abs(w.v[REDUCED, j]))
            if size > 0.0 and gain > best * size:
                entering, best = j, gain / size
                if stalled > STALLED:
                    break
        if entering < 0:
            return False
        length = phase_one_step(D, w, entering, -1.0 if w.v[REDUCED, entering] > 0.0 else 1.0)
        if length == math.inf:
            return False
        stalled = 0 if length > 0.0 else stalled + 1
    return False


@inner
def side_of(w: Work, v: int) -> float:
    """−1 below the lower bound, 1 above the upper one, 0 between."""
    slop = START_SLOP * (1.0 + abs(w.v[X, v]))
    if w.v[X, v] < w.v[LO, v] - slop:
        return -1.0
    return 1.0 if w.v[X, v] > w.v[UP, v] + slop else 0.0


@inner
def phase_one_step(D: Data, w: Work, entering: int, direction: float) -> float:
    """Move one variable until the first basic one meets a bound; returns the length, infinite where none does."""
    R = w.inverse.shape[0]
    times_inverse(D, entering, w, w.v[COLUMN])
    largest = 0.0
    for b in range(R):
        largest = max(largest, abs(w.v[COLUMN, b]))
    far = w.v[UP, entering] if direction > 0.0 else w.v[LO, entering]
    length, leaving, place = abs(far - w.v[X, entering]), -1, UPPER if direction > 0.0 else LOWER
    rate_taken = 0.0
    for b in range(R):
        rate = -direction * w.v[COLUMN, b]
        if abs(rate) <= PIVOT * largest:
            continue
        v, side = w.k[BASIS, b], w.v[STEP, b]
        if side == 0.0:
            goal = w.v[UP, v] if rate > 0.0 else w.v[LO, v]
        elif side * rate < 0.0:
            goal = w.v[LO, v] if side < 0.0 else w.v[UP, v]
        else:
            continue
        step = max(0.0, (goal - w.v[X, v]) / rate)
        if step < length or (step == length and abs(rate) > abs(rate_taken)):
            length, leaving, rate_taken = step, b, rate
            place = UPPER if goal == w.v[UP, v] else LOWER
    if length == math.inf:
        return length
    for b in range(R):
        w.v[X, w.k[BASIS, b]] -= direction * length * w.v[COLUMN, b]
    w.v[X, entering] += direction * length
    w.tally[CHANGES] += 1
    for t in range(w.tally[SUPERS]):
        if w.k[SUP, t] == entering:
            drop(w, t)
            break
    if leaving < 0:
        w.k[PLACE, entering] = place
        w.v[X, entering] = far
        return length
    gone = w.k[BASIS, leaving]
    exchange(w, leaving, w.v[COLUMN])
    w.k[BASIS, leaving] = entering
    w.k[PLACE, entering] = BASIC
    w.k[PLACE, gone] = place
    w.v[X, gone] = w.v[UP, gone] if place == UPPER else w.v[LO, gone]
    return length


@inner
def enter_free_variables(D: Data, w: Work) -> None:
    """Make variables without bounds superbasic, as far as there is room."""
    for j in range(D.J.shape[1]):
        if w.k[PLACE, j] == FREE and w.tally[SUPERS] < w.L.shape[0] - 1:
            enter(D, w, j)


@inner
def phase_two(D: Data, w: Work, careful: bool) -> bool:
    """From a feasible point to a minimum whose multipliers have the right signs; False where that fails."""
    N, most = D.J.shape[0] + D.J.shape[1], w.L.shape[0] - 1
    stalled = 0
    set_slope(D, w)
    at_minimum = w.tally[SUPERS] == 0
    for _ in range(20 * N + 100):
        set_multipliers(D, w)
        if at_minimum:
            if careful or stalled > STALLED:
                measure_dual_scales(D, w)
                entering = most_wrong(D, w, stalled > STALLED)
            else:
                entering = most_wrong_roughly(D, w)
            if entering < 0:
                return True
            if w.tally[SUPERS] == most:
                return False
            enter(D, w, entering)
            w.tally[CHANGES] += 1
        longest = search_direction(D, w)
        if longest == 0.0:
            return False
        length, met = ratio_test(D, w, longest)
        if not length < math.inf or not take_step(D, w, length, met):
            return False
        stalled = 0 if length > 0.0 else stalled + 1
        at_minimum = met < 0 or w.tally[SUPERS] == 0
    return False


@inner
def ratio_test(D: Data, w: Work, longest: float) -> tuple[float, int]:
    """The step along ALONG and COLUMN to the first bound, and which variable meets it: −1 where none does.

    Superbasic variables are numbered first, then basic ones.
    """
    R, supers = D.J.shape[0], w.tally[SUPERS]
    largest = 0.0
    for t in range(supers):
        largest = max(largest, abs(w.v[ALONG, t]))
    for b in range(R):
        largest = max(largest, abs(w.v[COLUMN, b]))
    length, met, rate_taken = longest, -1, 0.0
    for a in range(supers + R):
        v = w.k[SUP, a] if a < supers else w.k[BASIS, a - supers]
        rate = w.v[ALONG, a] if a < supers else w.v[COLUMN, a - supers]
        if abs(rate) <= ROUNDOFF * largest:
            continue
        goal = w.v[UP, v] if rate > 0.0 else w.v[LO, v]
        step = max(0.0, (goal - w.v[X, v]) / rate)
        if step < length or (step == length and met >= 0 and abs(rate) > abs(rate_taken)):
            length, met, rate_taken = step, a, rate
    return length, met


@inner
def take_step(D: Data, w: Work, length: float, met: int) -> bool:
    """Move along ALONG and COLUMN, and put the variable that ``met`` its bound there; False where nothing replaces it.

    It leaves the superbasic ones, or the basic ones, where the superbasic that moves it most takes its place.
    """
    R, supers = D.J.shape[0], w.tally[SUPERS]
    if length > 0.0:
        for t in range(supers):
            move(D, w, w.k[SUP, t], length * w.v[ALONG, t])
        for b in range(R):
            move(D, w, w.k[BASIS, b], length * w.v[COLUMN, b])
    if met < 0:
        return True
    v = w.k[SUP, met] if met < supers else w.k[BASIS, met - supers]
    rate = w.v[ALONG, met] if met < supers else w.v[COLUMN, met - supers]
    place = UPPER if rate > 0.0 else LOWER
    w.v[X, v] = w.v[UP, v] if place == UPPER else w.v[LO, v]
    w.tally[CHANGES] += 1
    if met < supers:
        w.k[PLACE, v] = place
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
    w.v[X, v] += change
    n = D.J.shape[1]
    if v < n:
        w.v[GRAD, v] += D.smoothing * change
        if D.Q.shape[0] > 0:
            for i in range(n):
                w.v[GRAD, i] += D.sign * change * D.Q[v, i]
