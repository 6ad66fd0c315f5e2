"""The verdict: solutions sharpened, judged afresh from the data, and written down."""

from __future__ import annotations

import math

import numpy as np

from pear.optimality.rule import (
    FEASIBLE,
    FLOOR,
    OPTIMAL,
    SHARE_OF_FORCE,
    SHARE_OF_SIZE,
    SHARE_OF_TERMS,
    SHARP,
    TIGHT,
    WEAK,
)
from pear.solvers.active_set import layout as ix
from pear.solvers.active_set.basis import set_basics
from pear.solvers.active_set.compile import inner
from pear.solvers.active_set.layout import Data, Outcome, Work
from pear.solvers.active_set.linear import add_abs_rows, set_multipliers, set_reduced_gradient, set_slope, subtract_rows
from pear.solvers.active_set.pricing import curvature_terms, measure_dual_scales, most_wrong, positive
from pear.solvers.active_set.reduced import factorise, solve_reduced
from pear.solvers.active_set.settings import BASICS, CLOSE_BY, REFINEMENTS


@inner
def refine_and_judge(D: Data, w: Work) -> int:
    """Sharpen the solution on its working set, and judge it from the data; returns SOLVED, or a verdict against it."""
    R = D.J.shape[0]
    unbalanced = math.inf
    for attempt in range(REFINEMENTS):
        if attempt > 0:
            if factorise(D, w) >= 0:
                return ix.GIVEN_UP
            for t in range(w.tally[ix.SUPERS]):
                w.v[ix.ALONG, t] = -w.v[ix.REDUCED, w.k[ix.SUP, t]]
            solve_reduced(w, w.tally[ix.SUPERS])
            for t in range(w.tally[ix.SUPERS]):
                w.v[ix.X, w.k[ix.SUP, t]] += w.v[ix.ALONG, t]
                for b in range(R):
                    w.v[ix.X, w.k[ix.BASIS, b]] -= w.W[t, b] * w.v[ix.ALONG, t]
        if not set_basics(D, w, BASICS):
            return ix.GIVEN_UP
        set_slope(D, w)
        sharp_multipliers(D, w)
        measure_dual_scales(D, w)
        for j in range(D.J.shape[1]):  # held bounds take up the reduced gradient, whatever its sign
            w.v[ix.BOUND, j] = 0.0 if w.k[ix.PLACE, j] in (ix.BASIC, ix.SUPER) else -w.v[ix.REDUCED, j]
        unbalanced = imbalance(D, w)
        if unbalanced == math.inf:
            return ix.GIVEN_UP
        if unbalanced <= SHARP:
            break
    if not unbalanced <= CLOSE_BY:
        return ix.GIVEN_UP
    if most_wrong(D, w, np.bool_(False), np.bool_(False)) >= 0:
        return ix.AGAIN
    if not feasible(D, w):
        return ix.OUTSIDE
    return ix.SOLVED if accept_multipliers(D, w) and unbalanced <= FEASIBLE else ix.CLOSE


@inner
def accept_multipliers(D: Data, w: Work) -> bool:
    """Give the tight constraints their multipliers; True where the KKT residual passes."""
    set_tight_multipliers(D, w)
    return kkt_residual(D, w) <= OPTIMAL


@inner
def imbalance(D: Data, w: Work) -> float:
    """Largest residual of stationarity, each by its natural size; infinite where one is not a number."""
    worst = 0.0
    for j in range(D.J.shape[1]):
        left = w.v[ix.REDUCED, j] + w.v[ix.BOUND, j]
        if left != 0.0:
            worst = max(worst, abs(left) / w.v[ix.DUAL_SCALE, j])
        if left != left:
            return math.inf
    return worst


@inner
def set_tight_multipliers(D: Data, w: Work) -> None:
    """Multipliers of all tight constraints from y, without the rounding that has the wrong sign; zero for the rest."""
    R, n = D.J.shape
    for j in range(n):
        bound = -w.v[ix.REDUCED, j] if w.k[ix.HELD, j] != 0 else 0.0
        if w.v[ix.LO, j] != w.v[ix.UP, j]:
            bound = min(bound, 0.0) if w.k[ix.HELD, j] == 1 else max(bound, 0.0)
        w.v[ix.BOUND, j] = bound
    for k in range(D.equalities, R):
        w.v[ix.Y, k] = min(w.v[ix.Y, k], 0.0)


@inner
def sharp_multipliers(D: Data, w: Work) -> None:
    """Multipliers with one step of refinement; exactly zero for rows that are not tight."""
    R, n = D.J.shape
    set_multipliers(D, w)
    for b in range(R):
        left = w.v[ix.REDUCED, w.k[ix.BASIS, b]]
        if left != 0.0:
            for k in range(R):
                w.v[ix.Y, k] += left * w.inverse[b, k]
    for k in range(R):
        if w.k[ix.PLACE, n + k] in (ix.BASIC, ix.SUPER):
            w.v[ix.Y, k] = 0.0
    set_reduced_gradient(D, w)


@inner
def feasible(D: Data, w: Work) -> bool:
    """Measure every slack by its natural size, note which are tight; False where one is violated, or held and not 0."""
    R, n = D.J.shape
    largest = FLOOR * w.v[ix.NUMBER, ix.LEAST_SIZE]
    for j in range(n):
        largest = max(largest, abs(w.v[ix.X, j]))
    for k in range(R):
        w.v[ix.LEFT, k], w.v[ix.TERMS, k] = w.v[ix.RHS, k], abs(w.v[ix.RHS, k])
    for j in range(n):
        spread = min(SHARE_OF_SIZE * largest, w.v[ix.UP, j] - w.v[ix.LO, j])
        w.v[ix.SIZE, j] = max(abs(w.v[ix.X, j]), spread)
    subtract_rows(D, w.v[ix.X], w.v[ix.LEFT])
    add_abs_rows(D, w.v[ix.SIZE], w.v[ix.TERMS])
    good = True
    for j in range(n):
        x, lower, upper = w.v[ix.X, j], math.inf, math.inf
        if w.v[ix.LO, j] > -math.inf:
            lower = (x - w.v[ix.LO, j]) / positive(w.v[ix.SIZE, j] + abs(w.v[ix.LO, j]))
        if w.v[ix.UP, j] < math.inf:
            upper = (w.v[ix.UP, j] - x) / positive(w.v[ix.SIZE, j] + abs(w.v[ix.UP, j]))
        place = w.k[ix.PLACE, j]
        good = good and lower >= -FEASIBLE and upper >= -FEASIBLE
        good = good and not (place == ix.LOWER and lower > FEASIBLE) and not (place == ix.UPPER and upper > FEASIBLE)
        above = place == ix.UPPER or upper <= TIGHT
        w.k[ix.HELD, j] = 1 if place == ix.LOWER or lower <= TIGHT else (2 if above else 0)
    for k in range(R):
        slack, held = w.v[ix.LEFT, k] / positive(w.v[ix.TERMS, k]), w.k[ix.PLACE, n + k] == ix.LOWER
        if k < D.equalities:
            good = good and abs(slack) <= FEASIBLE
            w.k[ix.HELD, n + k] = 1
        elif w.v[ix.LO, n + k] == -math.inf:
            good = good and not held
            w.k[ix.HELD, n + k] = 0
        else:
            good = good and slack >= -FEASIBLE and not (held and slack > FEASIBLE)
            w.k[ix.HELD, n + k] = 1 if held or slack <= TIGHT else 0
    return good


@inner
def hold_working(D: Data, w: Work) -> None:
    """Hold the working set alone, not what happens to be tight: more digits may show that it is not."""
    for v in range(D.J.shape[0] + D.J.shape[1]):
        place = w.k[ix.PLACE, v]
        w.k[ix.HELD, v] = 1 if place == ix.LOWER else (2 if place == ix.UPPER else 0)


@inner
def write(D: Data, outcome: Outcome, k: int, w: Work) -> None:
    """Write a judged point to row k of the outcome: multipliers, tight and weakly active constraints."""
    R, n = D.J.shape
    p = D.equalities
    for j in range(n):
        bound = w.v[ix.BOUND, j]
        outcome.x[k, j], outcome.bound[k, j] = w.v[ix.X, j], bound
        pinned = w.v[ix.LO, j] == w.v[ix.UP, j]
        lower, upper = w.k[ix.HELD, j] == 1, w.k[ix.HELD, j] == 2
        scaled = bound / w.v[ix.DUAL_SCALE, j]
        outcome.lower[k, j], outcome.upper[k, j] = lower, upper
        outcome.weak_lower[k, j] = lower and -scaled <= WEAK and not pinned
        outcome.weak_upper[k, j] = upper and scaled <= WEAK and not pinned
    for i in range(p):
        outcome.equality[k, i] = -w.v[ix.Y, i]
    for i in range(p, R):
        multiplier = -w.v[ix.Y, i] if w.v[ix.Y, i] != 0.0 else 0.0
        tight = w.k[ix.HELD, n + i] == 1
        outcome.inequality[k, i - p] = multiplier
        outcome.rows[k, i - p] = tight
        outcome.weak_rows[k, i - p] = tight and multiplier / w.v[ix.DUAL_SCALE, n + i] <= WEAK
    outcome.changes[k] = w.tally[ix.CHANGES]
    outcome.kkt_residual[k] = w.v[ix.NUMBER, ix.KKT]


@inner
def kkt_residual(D: Data, w: Work) -> float:
    """The yardstick of ``pear.optimality.residual``, kept in w; w.v[LEFT] holds the slacks of the rows."""
    R, n = D.J.shape
    p = D.equalities
    size = FLOOR * w.v[ix.NUMBER, ix.LEAST_SIZE]
    dual, cost = size * w.v[ix.NUMBER, ix.MAX_CURVATURE], 0.0
    for j in range(n):
        cost = max(cost, abs(w.v[ix.C, j]))
    limit = cost / SHARE_OF_FORCE if cost > 0.0 else math.inf
    dual = max(dual, min(SHARE_OF_TERMS * curvature_terms(D, w), limit))
    for j in range(n):
        size = max(size, abs(w.v[ix.X, j]))
        dual = max(dual, abs(w.v[ix.C, j]), abs(w.v[ix.GRAD, j] - w.v[ix.C, j]))
    dual = positive(dual)
    worst = 0.0
    for j in range(n):
        bound = w.v[ix.BOUND, j]
        worst = max(worst, abs(w.v[ix.REDUCED, j] + bound) / dual)
        # an absent constraint may carry no multiplier at all
        slack = (w.v[ix.X, j] - w.v[ix.LO, j]) / size if w.v[ix.LO, j] > -math.inf else 1.0
        worst = max(worst, -slack, abs(slack * min(bound, 0.0) / dual))
        slack = (w.v[ix.UP, j] - w.v[ix.X, j]) / size if w.v[ix.UP, j] < math.inf else 1.0
        worst = max(worst, -slack, abs(slack * max(bound, 0.0) / dual))
    for i in range(R):
        norm = positive(math.sqrt(w.v[ix.NORM, i]))
        slack = w.v[ix.LEFT, i] / norm / size if w.v[ix.LO, n + i] > -math.inf else 1.0
        if i < p:
            worst = max(worst, abs(slack))
        else:
            multiplier = -w.v[ix.Y, i] * norm / dual
            worst = max(worst, -slack, -multiplier, abs(slack * multiplier))
    w.v[ix.NUMBER, ix.KKT] = worst
    return worst
