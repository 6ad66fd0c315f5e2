"""The verdict: solutions sharpened, judged afresh from the data, and written down."""

from __future__ import annotations

import math

import numpy as np

from pear.optimality.rule import FEASIBLE, FLOOR, OPTIMAL, SHARE_OF_SIZE, SHARP, TIGHT, WEAK
from pear.solvers.active_set.basis import set_basics
from pear.solvers.active_set.compile import inner
from pear.solvers.active_set.layout import (
    AGAIN,
    ALONG,
    BASIC,
    BASIS,
    BOUND,
    CHANGES,
    DUAL_SCALE,
    GIVEN_UP,
    GRAD,
    HELD,
    KKT,
    LEFT,
    LO,
    LOWER,
    MAX_CURVATURE,
    NORM,
    NUMBER,
    PLACE,
    PRIMAL_SCALE,
    REDUCED,
    RHS,
    SIZE,
    SOLVED,
    SUP,
    SUPER,
    SUPERS,
    TERMS,
    UP,
    UPPER,
    C,
    Data,
    Outcome,
    Work,
    X,
    Y,
)
from pear.solvers.active_set.linear import add_abs_rows, set_multipliers, set_reduced_gradient, set_slope, subtract_rows
from pear.solvers.active_set.pricing import measure_dual_scales, most_wrong, positive
from pear.solvers.active_set.reduced import factorise, solve_reduced
from pear.solvers.active_set.settings import BASICS, REFINEMENTS


@inner
def refine_and_judge(D: Data, w: Work) -> int:
    """Sharpen the solution on its working set, and judge it from the data: SOLVED, GIVEN_UP or AGAIN."""
    R = D.J.shape[0]
    unbalanced = math.inf
    for attempt in range(REFINEMENTS):
        if attempt > 0:
            if factorise(D, w) >= 0:
                return GIVEN_UP
            for t in range(w.tally[SUPERS]):
                w.v[ALONG, t] = -w.v[REDUCED, w.k[SUP, t]]
            solve_reduced(w, w.tally[SUPERS])
            for t in range(w.tally[SUPERS]):
                w.v[X, w.k[SUP, t]] += w.v[ALONG, t]
                for b in range(R):
                    w.v[X, w.k[BASIS, b]] -= w.W[t, b] * w.v[ALONG, t]
        if not set_basics(D, w, BASICS):
            return GIVEN_UP
        set_slope(D, w)
        sharp_multipliers(D, w)
        measure_dual_scales(D, w)
        set_held_multipliers(D, w)
        unbalanced = imbalance(D, w)
        if unbalanced == math.inf:
            return GIVEN_UP
        if unbalanced <= SHARP:
            break
    if not unbalanced <= FEASIBLE:
        return GIVEN_UP
    if most_wrong(D, w, np.bool_(False)) >= 0:
        return AGAIN
    if not feasible(D, w):
        return GIVEN_UP
    return SOLVED if accept_multipliers(D, w) else GIVEN_UP


@inner
def accept_multipliers(D: Data, w: Work) -> bool:
    """Give the tight constraints their multipliers; True where the KKT residual passes."""
    set_tight_multipliers(D, w)
    return kkt_residual(D, w) <= OPTIMAL


@inner
def set_held_multipliers(D: Data, w: Work) -> None:
    """Multipliers of the bounds: minus the reduced gradient, whatever its sign, for nonbasic variables, else zero."""
    for j in range(D.J.shape[1]):
        w.v[BOUND, j] = 0.0 if w.k[PLACE, j] in (BASIC, SUPER) else -w.v[REDUCED, j]


@inner
def imbalance(D: Data, w: Work) -> float:
    """Largest residual of stationarity, each by its natural size; infinite where one is not a number."""
    worst = 0.0
    for j in range(D.J.shape[1]):
        left = w.v[REDUCED, j] + w.v[BOUND, j]
        if left != 0.0:
            worst = max(worst, abs(left) / w.v[DUAL_SCALE, j])
        if left != left:
            return math.inf
    return worst


@inner
def set_tight_multipliers(D: Data, w: Work) -> None:
    """Multipliers of all tight constraints from y, without the rounding that has the wrong sign; zero for the rest."""
    R, n = D.J.shape
    for j in range(n):
        bound = -w.v[REDUCED, j] if w.k[HELD, j] != 0 else 0.0
        if w.v[LO, j] != w.v[UP, j]:
            bound = min(bound, 0.0) if w.k[HELD, j] == 1 else max(bound, 0.0)
        w.v[BOUND, j] = bound
    for k in range(D.equalities, R):
        w.v[Y, k] = min(w.v[Y, k], 0.0)


@inner
def sharp_multipliers(D: Data, w: Work) -> None:
    """Multipliers with one step of refinement; exactly zero for rows that are not tight."""
    R, n = D.J.shape
    set_multipliers(D, w)
    for b in range(R):
        left = w.v[REDUCED, w.k[BASIS, b]]
        if left != 0.0:
            for k in range(R):
                w.v[Y, k] += left * w.inverse[b, k]
    for k in range(R):
        if w.k[PLACE, n + k] in (BASIC, SUPER):
            w.v[Y, k] = 0.0
    set_reduced_gradient(D, w)


@inner
def feasible(D: Data, w: Work) -> bool:
    """Measure every slack by its natural size, note which are tight; False where one is violated, or held and not 0."""
    R, n = D.J.shape
    largest = FLOOR * w.v[NUMBER, PRIMAL_SCALE]
    for j in range(n):
        largest = max(largest, abs(w.v[X, j]))
    for k in range(R):
        w.v[LEFT, k], w.v[TERMS, k] = w.v[RHS, k], abs(w.v[RHS, k])
    for j in range(n):
        w.v[SIZE, j] = max(abs(w.v[X, j]), SHARE_OF_SIZE * largest)
    subtract_rows(D, w.v[X], w.v[LEFT])
    add_abs_rows(D, w.v[SIZE], w.v[TERMS])
    good = True
    for j in range(n):
        x, lower, upper = w.v[X, j], math.inf, math.inf
        if w.v[LO, j] > -math.inf:
            lower = (x - w.v[LO, j]) / positive(w.v[SIZE, j] + abs(w.v[LO, j]))
        if w.v[UP, j] < math.inf:
            upper = (w.v[UP, j] - x) / positive(w.v[SIZE, j] + abs(w.v[UP, j]))
        place = w.k[PLACE, j]
        good = good and lower >= -FEASIBLE and upper >= -FEASIBLE
        good = good and not (place == LOWER and lower > FEASIBLE) and not (place == UPPER and upper > FEASIBLE)
        w.k[HELD, j] = 1 if place == LOWER or lower <= TIGHT else (2 if place == UPPER or upper <= TIGHT else 0)
    for k in range(R):
        slack, held = w.v[LEFT, k] / positive(w.v[TERMS, k]), w.k[PLACE, n + k] == LOWER
        if k < D.equalities:
            good = good and abs(slack) <= FEASIBLE
            w.k[HELD, n + k] = 1
        elif w.v[LO, n + k] == -math.inf:
            good = good and not held
            w.k[HELD, n + k] = 0
        else:
            good = good and slack >= -FEASIBLE and not (held and slack > FEASIBLE)
            w.k[HELD, n + k] = 1 if held or slack <= TIGHT else 0
    return good


@inner
def write(D: Data, outcome: Outcome, k: int, w: Work) -> None:
    """Write a judged point to row k of the outcome: multipliers, tight and weakly active constraints."""
    R, n = D.J.shape
    p = D.equalities
    for j in range(n):
        bound = w.v[BOUND, j]
        outcome.x[k, j], outcome.bound[k, j] = w.v[X, j], bound
        pinned = w.v[LO, j] == w.v[UP, j]
        lower, upper = w.k[HELD, j] == 1, w.k[HELD, j] == 2
        scaled = bound / w.v[DUAL_SCALE, j]
        outcome.lower[k, j], outcome.upper[k, j] = lower, upper
        outcome.weak_lower[k, j] = lower and -scaled <= WEAK and not pinned
        outcome.weak_upper[k, j] = upper and scaled <= WEAK and not pinned
    for i in range(p):
        outcome.equality[k, i] = -w.v[Y, i]
    for i in range(p, R):
        multiplier = -w.v[Y, i] if w.v[Y, i] != 0.0 else 0.0
        tight = w.k[HELD, n + i] == 1
        outcome.inequality[k, i - p] = multiplier
        outcome.rows[k, i - p] = tight
        outcome.weak_rows[k, i - p] = tight and multiplier / w.v[DUAL_SCALE, n + i] <= WEAK
    outcome.changes[k] = w.tally[CHANGES]
    outcome.kkt_residual[k] = w.v[NUMBER, KKT]


@inner
def kkt_residual(D: Data, w: Work) -> float:
    """The yardstick of ``pear.optimality.residual``, kept in w; w.v[LEFT] holds the slacks of the rows."""
    R, n = D.J.shape
    p = D.equalities
    size = FLOOR * w.v[NUMBER, PRIMAL_SCALE]
    dual = size * w.v[NUMBER, MAX_CURVATURE]
    for j in range(n):
        size = max(size, abs(w.v[X, j]))
        dual = max(dual, abs(w.v[C, j]), abs(w.v[GRAD, j] - w.v[C, j]))
    dual = positive(dual)
    worst = 0.0
    for j in range(n):
        bound = w.v[BOUND, j]
        worst = max(worst, abs(w.v[REDUCED, j] + bound) / dual)
        # an absent constraint may carry no multiplier at all
        slack = (w.v[X, j] - w.v[LO, j]) / size if w.v[LO, j] > -math.inf else 1.0
        worst = max(worst, -slack, abs(slack * min(bound, 0.0) / dual))
        slack = (w.v[UP, j] - w.v[X, j]) / size if w.v[UP, j] < math.inf else 1.0
        worst = max(worst, -slack, abs(slack * max(bound, 0.0) / dual))
    for i in range(R):
        norm = positive(math.sqrt(w.v[NORM, i]))
        slack = w.v[LEFT, i] / norm / size if w.v[LO, n + i] > -math.inf else 1.0
        if i < p:
            worst = max(worst, abs(slack))
        else:
            multiplier = -w.v[Y, i] * norm / dual
            worst = max(worst, -slack, -multiplier, abs(slack * multiplier))
    w.v[NUMBER, KKT] = worst
    return worst
