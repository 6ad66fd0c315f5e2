"""The proximal search of one sample: strictly convex programs whose solutions converge to that of the sample.

Exchanges may fail where more constraints are active than there are variables, because a working set may then
contradict itself. Such programs are usual: a plant that is off in a unit commitment has six tight constraints for three
variables. The proximal search has no such working sets. Each of its programs has a centre, a point x₀ with multipliers
v₀, and two small numbers μ and δ above zero. The program is

    min  ½xᵀHx + cᵀx + ½δ‖x − x₀‖² + ½μ‖[v₀ + (Jx − rhs)/μ]₊‖²,

with the rows J = [A; G] and their right-hand sides rhs = [b; h]. For equalities, the bracket itself takes the place of
its positive part [·]₊. Bounds have terms like those of inequalities. The objective is convex and piecewise quadratic,
so that Newton's method with a line search finds the minimum in a finite number of steps. Each step factors the whole
system of ``masked_system``, in which E is μ for the equalities and for the inequalities with a positive bracket.

The solution and its multipliers, which are the brackets, become the centre of the next program, which has a smaller μ
(the proximal method of multipliers). After each program, the equalities and the constraints with positive multipliers
are tried as a working set.
"""

from __future__ import annotations

import math

from pear.compile.jit import inner
from pear.solvers.exchanges.exchange_arrays import (
    ALONG,
    CENTRE,
    CENTRE_BOUND,
    DIAGONAL,
    DV,
    DX,
    EXCESS,
    FREE,
    HX,
    LOWER,
    POINT,
    POINT_BOUND,
    ROW_CENTRE,
    ROW_DIAGONAL,
    ROW_POINT,
    SLOPE,
    UPPER,
    ExchangeMemory,
    ExchangeSamples,
    F,
    R,
)
from pear.solvers.exchanges.exchange_matrix import multiply_exchange_matrix
from pear.solvers.exchanges.exchange_plan import HELD, ExchangePlan
from pear.solvers.exchanges.masked_system import factor_whole_system, solve_masked_factor

FIRST_SHARE, LAST_SHARE, SHARE_FACTOR = 1e-2, 1e-9, 0.1
"""μ of the first program, the smallest μ, and the factor between two programs.

μ is relative to the size of the decisions over that of the costs. From a far start, a program with a smaller μ needs
more steps, and the first program may not be solved at all.
"""

_DELTA = 1e-3  # δ over μ, relative to the square of the size of the costs over that of the decisions
_EXACT = 1e-11  # gradient relative to the costs at which a program is solved
_NEAR = 1e2  # a program begins at its centre if the point is larger than this, relative to the size of the decisions
_STEPS = 30  # the most Newton steps of a program
_STRAIGHT = 0.1  # a full step is taken if no more than this share of the slope is left
_LEVEL = 0.01  # the line search ends at this share of the slope
_TRIALS = 25  # the most points of a line search


@inner
def keep_as_proximal_centre(P: ExchangePlan, S: ExchangeSamples, i: int, w: ExchangeMemory) -> None:
    """Store the point of sample i, moved inside its bounds, and its multipliers as the centre of the first program."""
    for j in range(len(P.curvature)):
        w.variables[CENTRE, j] = min(max(S.x[i, j], S.lb[i, j]), S.ub[i, j])
        w.variables[CENTRE_BOUND, j] = S.bound[i, j]
    for k in range(len(P.rows)):
        w.sides[ROW_CENTRE, k] = S.v[i, k]


@inner
def proximal_sizes(P: ExchangePlan, S: ExchangeSamples, i: int, w: ExchangeMemory) -> tuple[float, float]:
    """Return the sizes of the costs and of the decisions of sample i.

    The size of the costs is their largest absolute value. The size of the decisions is the largest absolute value among
    the right-hand sides and the entries of the centre. A size is 1 if all of these numbers are zero.
    """
    cost = size = 0.0
    for j in range(len(P.curvature)):
        cost, size = max(cost, abs(S.c[i, j])), max(size, abs(w.variables[CENTRE, j]))
    for k in range(len(P.rows)):
        if abs(S.rhs[i, k]) < math.inf:
            size = max(size, abs(S.rhs[i, k]))
    return cost if cost > 0.0 else 1.0, size if size > 0.0 else 1.0


@inner
def solve_proximal_program(
    P: ExchangePlan, S: ExchangeSamples, i: int, share: float, sizes: tuple[float, float], most: int, w: ExchangeMemory
) -> int:
    """Solve one proximal program of sample i, and make its solution the point, the working set and the next centre.

    Newton's method begins at the point of the sample: the solution on the working set that was tried last, or the
    centre in the first program. In later programs the centre is a worse beginning, because constraints are only nearly
    tight there, and most would seem inactive for a smaller μ. Newton's method begins at the centre only if an entry of
    the point is far larger than the size of the decisions.

    The last point counts as the solution if ``_STEPS`` steps are done, or if rounding stops the line search.

    Args:
        P: the plan.
        S: the samples.
        i: the number of the sample.
        share: μ, relative to the size of the decisions over that of the costs.
        sizes: the sizes of the costs and of the decisions.
        most: the largest number of Newton steps.
        w: the memory, with the centre.

    Returns:
        The number of Newton steps, or −1 if a system cannot be factored, if a number is not finite, or if ``most``
        steps were not enough.
    """
    n, rows = len(P.curvature), len(P.rows)
    mu, delta = share * sizes[1] / sizes[0], _DELTA * share * sizes[0] / sizes[1]
    near = True
    for j in range(n):
        near &= abs(S.x[i, j]) <= _NEAR * sizes[1]
    for j in range(n):
        w.variables[POINT, j] = S.x[i, j] if near else w.variables[CENTRE, j]
    for k in range(rows):
        w.sides[R, k] = 0.0
    steps, full = 0, False
    while True:
        off, same = _measure_proximal_point(P, S, i, mu, delta, w)
        if off <= _EXACT * sizes[0] or (full and same) or (steps >= _STEPS and off < math.inf):
            break
        if steps >= most or not off < math.inf or not factor_whole_system(P, w):
            return -1
        steps += 1
        solve_masked_factor(P, w.variables[F], w.sides[R], w.variables[DX], w.sides[DV], w)
        length = _search_along_proximal_step(P, S, i, mu, delta, w)
        if length == 0.0:  # rounding: the point is as good as it gets
            break
        full = length == 1.0
        for j in range(n):
            w.variables[POINT, j] += length * w.variables[DX, j]
    for j in range(n):
        S.x[i, j] = w.variables[CENTRE, j] = w.variables[POINT, j]
        w.variables[CENTRE_BOUND, j] = w.variables[POINT_BOUND, j]
    for k in range(rows):
        S.v[i, k] = w.sides[ROW_CENTRE, k] = w.sides[ROW_POINT, k]
    return steps


@inner
def _measure_proximal_point(
    P: ExchangePlan, S: ExchangeSamples, i: int, mu: float, delta: float, w: ExchangeMemory
) -> tuple[float, bool]:
    """Write minus the gradient of the program at POINT to F, and set the working set of this point.

    POINT and F are rows of ``w.variables``. The diagonals of the system of the next Newton step are set, too.

    Returns:
        The largest absolute entry of the gradient, and whether the working set is the one that was set before.
    """
    p, same, off = P.equalities, True, 0.0
    x, excess, v = w.variables[POINT], w.sides[EXCESS], w.sides[ROW_POINT]
    multiply_exchange_matrix(P.J, x, excess)
    for k in range(len(P.rows)):
        present = S.rhs[i, k] < math.inf
        excess[k] = excess[k] - S.rhs[i, k] if present else 0.0
        v[k] = w.sides[ROW_CENTRE, k] + excess[k] / mu
        on = k < p or (present and v[k] > 0.0)
        v[k], w.sides[ROW_DIAGONAL, k] = (v[k], mu) if on else (0.0, HELD / P.largest)
        same &= on == S.held[i, k]
        S.held[i, k] = on
    multiply_exchange_matrix(P.H, x, w.variables[HX])
    multiply_exchange_matrix(P.JT, v, w.variables[F])
    for j in range(len(P.curvature)):
        low, high = _proximal_bound_terms(S, i, j, x[j], mu, w)
        place = LOWER if low > 0.0 else (UPPER if high > 0.0 else FREE)
        w.variables[POINT_BOUND, j] = high - low
        w.variables[DIAGONAL, j] = delta if place == FREE else delta + 1.0 / mu
        w.variables[SLOPE, j] = w.variables[HX, j] + S.c[i, j] + delta * (x[j] - w.variables[CENTRE, j])
        w.variables[F, j] = -(w.variables[SLOPE, j] + w.variables[F, j] + high - low)
        if S.lb[i, j] == S.ub[i, j]:
            w.variables[DIAGONAL, j], w.variables[F, j], place = HELD * P.largest, 0.0, LOWER
        same &= place == S.place[i, j]
        S.place[i, j] = place
        off = max(off, abs(w.variables[F, j])) if abs(w.variables[F, j]) < math.inf else math.inf
    return off, same


@inner
def _proximal_bound_terms(
    S: ExchangeSamples, i: int, j: int, x: float, mu: float, w: ExchangeMemory
) -> tuple[float, float]:
    """Return the terms ``[z₀ + (lb − x)/μ]₊`` and ``[z₀ + (x − ub)/μ]₊`` of the bounds of variable j at x.

    In each of them, z₀ ≥ 0 is the multiplier of the bound at the centre.
    """
    z = w.variables[CENTRE_BOUND, j]
    return max(max(-z, 0.0) + (S.lb[i, j] - x) / mu, 0.0), max(max(z, 0.0) + (x - S.ub[i, j]) / mu, 0.0)


@inner
def _search_along_proximal_step(
    P: ExchangePlan, S: ExchangeSamples, i: int, mu: float, delta: float, w: ExchangeMemory
) -> float:
    """Return the length of a step along DX that minimises the program; 0 if the objective does not fall along DX."""
    dx, hx, slope, curvature = w.variables[DX], w.variables[HX], 0.0, 0.0
    for j in range(len(dx)):
        if S.lb[i, j] == S.ub[i, j]:
            dx[j] = 0.0
    multiply_exchange_matrix(P.J, dx, w.sides[ALONG])
    multiply_exchange_matrix(P.H, dx, hx)
    for j in range(len(dx)):
        slope += w.variables[SLOPE, j] * dx[j]
        curvature += dx[j] * (hx[j] + delta * dx[j])
    first = _proximal_slope_at(P, S, i, 0.0, slope, curvature, mu, w)
    if not first < 0.0:
        return 0.0
    low, at_low, high = 0.0, first, 1.0
    at_high = _proximal_slope_at(P, S, i, high, slope, curvature, mu, w)
    if abs(at_high) <= -_STRAIGHT * first:
        return 1.0
    for _ in range(_TRIALS):
        if not at_high < 0.0:
            break
        low, at_low, high = high, at_high, 2.0 * high
        at_high = _proximal_slope_at(P, S, i, high, slope, curvature, mu, w)
    side, length = 0, high
    for _ in range(_TRIALS):  # the Illinois method
        length = (low * at_high - high * at_low) / (at_high - at_low)
        at = _proximal_slope_at(P, S, i, length, slope, curvature, mu, w)
        if abs(at) <= -_LEVEL * first:
            break
        if at < 0.0:
            at_high *= 0.5 if side < 0 else 1.0
            low, at_low, side = length, at, -1
        else:
            at_low *= 0.5 if side > 0 else 1.0
            high, at_high, side = length, at, 1
    return length


@inner
def _proximal_slope_at(
    P: ExchangePlan,
    S: ExchangeSamples,
    i: int,
    length: float,
    slope: float,
    curvature: float,
    mu: float,
    w: ExchangeMemory,
) -> float:
    """Return the derivative of the program's objective with respect to the length of a step along DX.

    Args:
        P, S, i, w: as in ``solve_proximal_program``.
        length: the length at which the derivative is computed.
        slope: the derivative at length zero, without the terms of rows and bounds.
        curvature: the second derivative, without the terms of rows and bounds.
        mu: the μ of the program.
    """
    total, along, dx = slope + length * curvature, w.sides[ALONG], w.variables[DX]
    for k in range(len(P.rows)):
        if along[k] != 0.0 and S.rhs[i, k] < math.inf:
            term = w.sides[ROW_CENTRE, k] + (w.sides[EXCESS, k] + length * along[k]) / mu
            total += term * along[k] if k < P.equalities or term > 0.0 else 0.0
    for j in range(len(dx)):
        if dx[j] != 0.0:
            low, high = _proximal_bound_terms(S, i, j, w.variables[POINT, j] + length * dx[j], mu, w)
            total += (high - low) * dx[j]
    return total
