"""The compiled exchanges of one sample.

Each round solves on the working set, finds the constraints that are wrong, and exchanges them. A constraint is wrong
if it is held and its multiplier has the wrong sign, or if it is not held and is violated. If the rounds fail, the
proximal search begins at the same start, and each of its working sets is tried.
"""

from __future__ import annotations

import math

from pear.compile.jit import entry, inner
from pear.optimality.rule import FEASIBLE, FLOOR, SHARE_OF_FORCE, SHARE_OF_SIZE, SHARP, SIGN
from pear.solvers.active_set.compiled_sizes import smaller_compiled_size
from pear.solvers.exchanges.exchange_arrays import (
    ABS,
    CENTRE,
    DV,
    DX,
    FREE,
    GRADIENT,
    HX,
    LOWER,
    ROW_SCALE,
    ROW_SIZE,
    SCALE,
    SIZE,
    SLACK,
    UPPER,
    ExchangeMemory,
    ExchangeSamples,
    F,
    R,
)
from pear.solvers.exchanges.exchange_matrix import multiply_abs_exchange_matrix, multiply_exchange_matrix
from pear.solvers.exchanges.exchange_plan import ExchangePlan
from pear.solvers.exchanges.masked_system import factor_masked_system, solve_masked_system
from pear.solvers.exchanges.proximal_search import (
    FIRST_SHARE,
    LAST_SHARE,
    SHARE_FACTOR,
    keep_as_proximal_centre,
    proximal_sizes,
    solve_proximal_program,
)

_TINY = 2.2250738585072014e-308
_FINAL_STEPS = 2  # steps on the right working set, at most, after the one that led to it
_FEW_EXCHANGES = 3  # on the working set of a proximal program; also the most constraints of it that may be wrong
_PATIENCE = 3  # exchanges in a row that may leave the number of wrong constraints as large as it was


@entry
def search_exchanges(
    P: ExchangePlan, S: ExchangeSamples, first: int, last: int, most: int, proximal: int, w: ExchangeMemory
) -> None:
    """Exchange constraints of the samples ``first`` to ``last − 1``.

    Args:
        P: the plan.
        S: the samples.
        first, last: the first sample, and the end of the samples.
        most: the largest number of exchanges of a sample.
        proximal: the largest number of factorisations of a proximal search, which follows if the exchanges fail.
        w: the memory of the thread.
    """
    for i in range(first, last):
        keep_as_proximal_centre(P, S, i, w)
        S.done[i], S.exchanges[i] = _search_exchanges_of_sample(P, S, i, most, len(w.wrong), w)
        if not S.done[i] and proximal > 0:
            done, changes = _search_by_proximal_programs(P, S, i, proximal, w)
            S.done[i] = done
            S.exchanges[i] += changes


@inner
def _search_by_proximal_programs(
    P: ExchangePlan, S: ExchangeSamples, i: int, most: int, w: ExchangeMemory
) -> tuple[bool, int]:
    """Solve proximal programs of sample i until their working set is right.

    Returns:
        False if no such set is found within ``most`` factorisations; and how often the working set was changed. Every
        working set is factored once.
    """
    sizes, share, changes = proximal_sizes(P, S, i, w), FIRST_SHARE, 0
    for j in range(len(P.curvature)):
        S.x[i, j] = w.variables[CENTRE, j]
    while changes < most:
        steps = solve_proximal_program(P, S, i, share, sizes, most - changes, w)
        if steps < 0:
            return False, changes
        done, exchanges = _search_exchanges_of_sample(P, S, i, _FEW_EXCHANGES, _FEW_EXCHANGES, w)
        changes += steps + 1 + exchanges
        if done:
            return True, changes
        share = max(share * SHARE_FACTOR, LAST_SHARE)
    return False, changes


@inner
def _search_exchanges_of_sample(
    P: ExchangePlan, S: ExchangeSamples, i: int, most: int, tolerated: int, w: ExchangeMemory
) -> tuple[bool, int]:
    """Exchange constraints of sample i until no constraint is wrong.

    All wrong constraints are exchanged together, until a few exchanges in a row have not reduced the least number of
    wrong constraints so far. Then one is exchanged at a time, until this number falls again. The search fails if it
    would need more than ``most`` exchanges, if more than ``tolerated`` constraints are wrong, if a system cannot be
    factored, if a number is not finite, or if the final residual is too large.

    Returns:
        Whether the search succeeds, and the number of exchanges.
    """
    place, held, fewest, patience = S.place[i], S.held[i], 1 << 60, _PATIENCE
    exchanges = 0
    while True:
        if not factor_masked_system(P, place, held, w):
            return False, exchanges
        for k in range(len(held)):
            if not held[k]:
                S.v[i, k] = 0.0
        _step_onto_exchanged_set(P, S, i, w)
        wrong, unbalanced = _mark_constraints_to_exchange(P, S, i, w)
        for _ in range(_FINAL_STEPS):  # each step solves for what is left, relative to its own size
            if wrong != 0 or unbalanced <= SHARP:
                break
            _step_onto_exchanged_set(P, S, i, w)
            wrong, unbalanced = _mark_constraints_to_exchange(P, S, i, w)
        if wrong == 0:
            return unbalanced <= FEASIBLE, exchanges
        if wrong < 0 or wrong > tolerated or exchanges >= most:
            return False, exchanges
        fell = wrong < fewest
        together = fell or patience > 0
        patience = _PATIENCE if fell else max(patience - 1, 0)
        fewest = min(fewest, wrong)
        if not together and wrong > most - exchanges:  # exchanged one at a time, they are too many
            return False, exchanges
        _exchange_marked_constraints(P, S, i, together, w)
        exchanges += 1


@inner
def _step_onto_exchanged_set(P: ExchangePlan, S: ExchangeSamples, i: int, w: ExchangeMemory) -> None:
    """Move the point and the multipliers of sample i onto its working set, by one solution of the reduced system."""
    n, rows, place = len(P.curvature), len(P.rows), S.place[i]
    x, v = S.x[i], S.v[i]
    for j in range(n):
        if place[j] == LOWER:
            x[j] = S.lb[i, j]
        elif place[j] == UPPER:
            x[j] = S.ub[i, j]
    f, r, dx, dv = w.variables[F], w.sides[R], w.variables[DX], w.sides[DV]
    multiply_exchange_matrix(P.H, x, w.variables[HX])
    multiply_exchange_matrix(P.JT, v, f)
    multiply_exchange_matrix(P.J, x, r)
    for j in range(n):
        f[j] = -(w.variables[HX, j] + S.c[i, j] + f[j]) if place[j] == FREE else 0.0
    for k in range(rows):
        r[k] = S.rhs[i, k] - r[k] if w.inside[k] else 0.0
    solve_masked_system(P, place, f, r, dx, dv, w)
    for j in range(n):
        x[j] += dx[j]
    for k in range(rows):
        v[k] += dv[k]


@inner
def _mark_constraints_to_exchange(P: ExchangePlan, S: ExchangeSamples, i: int, w: ExchangeMemory) -> tuple[int, float]:
    """Mark the wrong constraints of sample i in ``w.wrong``.

    Returns:
        The number of wrong constraints, or −1 if a number is not finite; and the largest residual of stationarity at
        free variables and of held rows, relative to natural sizes.
    """
    n, rows, p = len(P.curvature), len(P.rows), P.equalities
    place, held, bound = S.place[i], S.held[i], S.bound[i]
    _measure_exchange_point(P, S, i, w)
    wrong, unbalanced, m = 0, 0.0, rows - p
    for j in range(n):
        slope = w.variables[GRADIENT, j]
        bound[j] = -slope if place[j] != FREE else 0.0
        if not abs(slope) < math.inf:
            return -1, math.inf
        if place[j] == FREE:
            unbalanced = max(unbalanced, abs(slope) / w.variables[SCALE, j])
        size, low, high = w.variables[SIZE, j], S.lb[i, j], S.ub[i, j]
        pinned, multiplier = low == high, bound[j] / w.variables[SCALE, j]
        below = low - S.x[i, j] > FEASIBLE * (size + abs(low)) if low > -math.inf else False
        above = S.x[i, j] - high > FEASIBLE * (size + abs(high)) if high < math.inf else False
        below = multiplier > SIGN if place[j] == LOWER else below
        above = multiplier < -SIGN if place[j] == UPPER else above
        w.wrong[m + j], w.wrong[m + n + j] = below and not pinned, above and not pinned
        wrong += int(w.wrong[m + j]) + int(w.wrong[m + n + j])
    for k in range(rows):
        slack = w.sides[SLACK, k]
        if held[k]:
            unbalanced = max(unbalanced, abs(slack) / w.sides[ROW_SIZE, k])
        if k >= p:
            off = S.v[i, k] < -SIGN * w.sides[ROW_SCALE, k] if held[k] else slack < -FEASIBLE * w.sides[ROW_SIZE, k]
            w.wrong[k - p] = off
            wrong += int(off)
    return wrong, unbalanced


@inner
def _measure_exchange_point(P: ExchangePlan, S: ExchangeSamples, i: int, w: ExchangeMemory) -> None:
    """Compute the gradient and the slacks of sample i, and the natural sizes of their terms.

    ``pear.optimality.natural_sizes`` defines these sizes. Most of them can be computed in equilibrated units, because
    the ratio of a number to its size is the same in all units. Sizes that compare different entries of a vector depend
    on the units, and are computed in those of the data.
    """
    n, rows, p = len(P.curvature), len(P.rows), P.equalities
    x, v, gradient, hx = S.x[i], S.v[i], w.variables[GRADIENT], w.variables[HX]
    size, scale, absolute = w.variables[SIZE], w.variables[SCALE], w.variables[ABS]
    multiply_exchange_matrix(P.H, x, hx)
    multiply_exchange_matrix(P.JT, v, gradient)
    for k in range(rows):
        w.sides[ROW_SIZE, k] = abs(v[k])
    multiply_abs_exchange_matrix(P.JT, w.sides[ROW_SIZE], scale)
    cost = top = root_top = curved = widest = terms = 0.0
    limit = math.inf
    for j in range(n):
        unit = P.columns[j]
        gradient[j] += hx[j] + S.c[i, j]
        scale[j] += abs(hx[j]) + abs(S.c[i, j])
        root = math.sqrt(max(P.curvature[j], 0.0)) / unit
        top, root_top = max(top, P.curvature[j] / unit**2), max(root_top, root)
        curved, cost = max(curved, root * abs(x[j]) * unit), max(cost, abs(S.c[i, j]) / unit)
        widest, terms = max(widest, abs(x[j]) * unit), max(terms, scale[j] / unit)
        limit = smaller_compiled_size(smaller_compiled_size(limit, S.lb[i, j] * unit), S.ub[i, j] * unit)
    for k in range(p, rows):
        limit = smaller_compiled_size(limit, S.rhs[i, k] / P.rows[k] / P.norms[k])
    by_curvature = cost / top if top > 0.0 and cost > 0.0 else math.inf
    least = min(by_curvature, limit)
    floor = FLOOR * (least if least < math.inf else 1.0)
    widest, largest = max(widest, floor), max(terms, floor * top, root_top * curved)
    for j in range(n):
        unit = P.columns[j]
        scale[j] = max(scale[j], SHARE_OF_FORCE * largest * unit, _TINY)
        size[j] = max(abs(x[j]), min(SHARE_OF_SIZE * widest / unit, max(S.ub[i, j] - S.lb[i, j], _TINY)))
        absolute[j] = scale[j] / unit**2
    multiply_exchange_matrix(P.J, x, w.sides[SLACK])
    multiply_abs_exchange_matrix(P.J, size, w.sides[ROW_SIZE])
    multiply_abs_exchange_matrix(P.J, absolute, w.sides[ROW_SCALE])
    for k in range(rows):
        rhs = S.rhs[i, k]
        w.sides[SLACK, k] = rhs - w.sides[SLACK, k] if rhs < math.inf else math.inf
        w.sides[ROW_SIZE, k] += abs(rhs) if rhs < math.inf else 0.0
        if not w.sides[ROW_SIZE, k] > 0.0:
            w.sides[ROW_SIZE, k] = _TINY
        by_length = w.sides[ROW_SCALE, k] / (P.rows[k] * P.norms[k]) ** 2
        w.sides[ROW_SCALE, k] = by_length if by_length > 0.0 else 1.0


@inner
def _exchange_marked_constraints(
    P: ExchangePlan, S: ExchangeSamples, i: int, together: bool, w: ExchangeMemory
) -> None:
    """Exchange the wrong constraints of sample i: all of them if ``together`` is True, otherwise only the last one.

    A constraint that is held is released, and one that is not held becomes held. If both bounds of a variable would be
    held, only the nearer one is.
    """
    n, p = len(P.curvature), P.equalities
    m, place, held = len(P.rows) - p, S.place[i], S.held[i]
    if not together:
        last = -1
        for a in range(m + 2 * n):
            if w.wrong[a]:
                last = a
        for a in range(m + 2 * n):
            w.wrong[a] = a == last
    for k in range(m):
        held[p + k] = held[p + k] != w.wrong[k]
    for j in range(n):
        low, high = w.wrong[m + j], w.wrong[m + n + j]
        lower, upper = (place[j] == LOWER) != low, (place[j] == UPPER) != high
        if lower and upper:
            lower = abs(S.x[i, j] - S.lb[i, j]) <= abs(S.x[i, j] - S.ub[i, j])
            upper = not lower
        place[j] = LOWER if lower else (UPPER if upper else FREE)
