"""The reduced system of a working set, solved as the whole system with some huge entries on its diagonal.

The reduced system ``[H Jᵀ; J 0]`` has only the free variables and the held rows of J = [A; G]. The whole system
``[H + D, Jᵀ; J, −E]`` has all variables and rows, and diagonal matrices D and E. D is huge for the variables at a
bound, and E is huge for the rows that are not held, so that the solution vanishes there. The other entries of D and E
are small shifts, whose effect iterative refinement removes.

The structure of the whole system is analysed once for a problem. A new working set needs a new factorisation but no new
analysis, which would take several times as long as the factorisation.
"""

from __future__ import annotations

import math

from pear.compile.jit import entry, inner
from pear.optimality.rule import PROJECTED, SHARP
from pear.solvers.exchanges.exchange_arrays import (
    DIAGONAL,
    FREE,
    LEFT,
    LENGTH,
    ROW_DIAGONAL,
    ROW_LEFT,
    ROW_STEP,
    STEP,
    STEP_H,
    STEP_J,
    STEP_JT,
    ExchangeMemory,
    F,
    MaskedSystems,
    R,
)
from pear.solvers.exchanges.exchange_matrix import multiply_exchange_matrix
from pear.solvers.exchanges.exchange_plan import HELD, ExchangePlan
from pear.solvers.linalg import Array
from pear.solvers.linalg.supernode_factors import factorise_supernodes_into
from pear.solvers.linalg.triangular import solve_triangular_into

REFINEMENTS = 40
STALLED = 0.7
"""Refinement stops if more than this share of the residual remains after a step."""


@entry
def solve_masked_systems(P: ExchangePlan, S: MaskedSystems, first: int, last: int, w: ExchangeMemory) -> None:
    """Solve the reduced systems of the samples ``first`` to ``last − 1``, each for all of its right-hand sides.

    The solutions, and whether they are good, are written to ``S``.
    """
    for i in range(first, last):
        factored = factor_masked_system(P, S.place[i], S.held[i], w)
        for k in range(len(S.f)):
            S.good[k, i] = False
            if not factored:
                continue
            f, r = w.variables[F], w.sides[R]
            for j in range(len(f)):
                f[j] = S.f[k, i, j] if S.place[i, j] == FREE else 0.0
            for j in range(len(r)):
                r[j] = S.r[k, i, j] if w.inside[j] else 0.0
            rest = solve_masked_system(P, S.place[i], f, r, S.x[k, i], S.v[k, i], w)
            S.good[k, i] = rest <= PROJECTED


@inner
def factor_masked_system(P: ExchangePlan, place: Array, held: Array, w: ExchangeMemory) -> bool:
    """Factor the whole system for a working set. A held row without a free variable counts as not held.

    The entry of E at a held row is a small shift, in proportion to the squared length of the row over the free
    variables. This length may be much shorter than that of the whole row.

    Args:
        P: the plan.
        place: (n,) the places of the variables: FREE, LOWER or UPPER.
        held: (p + m,) bool, the rows that are held.
        w: the memory. ``w.inside`` gets the held rows that have a free variable.

    Returns:
        False if a pivot is zero or not finite.
    """
    rows, apart = len(P.rows), HELD * P.largest
    for k in range(rows):
        squares = 0.0
        if held[k]:
            for e in range(P.J.start[k], P.J.start[k + 1]):
                if place[P.J.at[e]] == FREE:
                    squares += P.J.value[e] ** 2
        w.inside[k], w.sides[LENGTH, k] = squares > 0.0, math.sqrt(squares)
        w.sides[ROW_DIAGONAL, k] = P.shift * squares if squares > 0.0 else HELD / P.largest
    for j in range(len(P.curvature)):
        w.variables[DIAGONAL, j] = P.lift if place[j] == FREE else apart
    return factor_whole_system(P, w)


@inner
def factor_whole_system(P: ExchangePlan, w: ExchangeMemory) -> bool:
    """Factor the whole system with D in row DIAGONAL of ``w.variables`` and E in row ROW_DIAGONAL of ``w.sides``.

    Returns:
        False if a pivot is zero or not finite.
    """
    n, D, E = len(P.curvature), w.variables[DIAGONAL], w.sides[ROW_DIAGONAL]
    for e in range(len(P.data)):
        w.data[e] = P.data[e]
    for a in range(len(P.alone)):
        j = P.alone[a]
        w.inverse[a] = 1.0 / (P.curvature[j] + D[j])
        if not abs(w.inverse[a]) < 1e300:
            return False
    for a in range(len(P.left)):
        j = P.left[a]
        w.data[P.diagonal[a]] = P.curvature[j] + D[j] if j < n else -E[j - n]
    for e in range(len(P.data)):
        for k in range(P.taken.start[e], P.taken.start[e + 1]):
            w.data[e] += P.taken.value[k] * w.inverse[P.taken.at[k]]
    return factorise_supernodes_into(P.blocks, w.data, w.L, w.pivots, w.stack, w.tiles, w.positions) == len(w.pivots)


@inner
def solve_masked_factor(P: ExchangePlan, f: Array, r: Array, dx: Array, dv: Array, w: ExchangeMemory) -> None:
    """Solve the factored system for the right-hand sides f (n,) and r (p + m,), without refinement.

    The solution is written to dx (n,) and dv (p + m,).
    """
    n, rhs, B = len(P.curvature), w.pair[2], P.blocks
    for k in range(len(r)):
        dv[k] = r[k]
    for a in range(len(P.alone)):
        own = f[P.alone[a]] * w.inverse[a]
        for e in range(P.alone_rows.start[a], P.alone_rows.start[a + 1]):
            dv[P.alone_rows.at[e]] -= P.alone_rows.value[e] * own
    for a in range(len(P.left)):
        j = P.left[a]
        rhs[a] = f[j] if j < n else dv[j - n]
    solve_triangular_into(B.order, B.first, B.row_start, B.rows, w.L, w.pivots, rhs, w.pair)
    for a in range(len(P.left)):
        j = P.left[a]
        if j < n:
            dx[j] = w.pair[1, a]
        else:
            dv[j - n] = w.pair[1, a]
    for a in range(len(P.alone)):
        j = P.alone[a]
        rest = f[j]
        for e in range(P.alone_rows.start[a], P.alone_rows.start[a + 1]):
            rest -= P.alone_rows.value[e] * dv[P.alone_rows.at[e]]
        dx[j] = w.inverse[a] * rest


@inner
def solve_masked_system(
    P: ExchangePlan, place: Array, f: Array, r: Array, x: Array, v: Array, w: ExchangeMemory
) -> float:
    """Solve the reduced system by iterative refinement.

    Args:
        P: the plan.
        place: (n,) the places of the variables: FREE, LOWER or UPPER.
        f: (n,) right-hand side, zero for variables at a bound.
        r: (p + m,) right-hand side, zero for rows outside of ``w.inside``.
        x: (n,) the solution; overwritten, with zeros for variables at a bound.
        v: (p + m,) the multipliers of the solution; overwritten, with zeros for rows outside of ``w.inside``.
        w: the memory, with the factored system.

    Returns:
        The largest residual. That of a variable is relative to the largest terms in the equations of variables, that of
        a row to the length of the row and the size of x. The result is infinite if it is not a number.
    """
    rest = math.inf
    n, rows = len(f), len(r)
    dx, hx, jv, rest_f = w.variables[STEP], w.variables[STEP_H], w.variables[STEP_JT], w.variables[LEFT]
    dv, jx, rest_r = w.sides[ROW_STEP], w.sides[STEP_J], w.sides[ROW_LEFT]
    for j in range(n):
        x[j], rest_f[j] = 0.0, f[j]
    for k in range(rows):
        v[k], rest_r[k] = 0.0, r[k]
    last = 1e300
    for _ in range(REFINEMENTS):
        solve_masked_factor(P, rest_f, rest_r, dx, dv, w)
        for j in range(n):
            x[j] += dx[j] if place[j] == FREE else 0.0
        for k in range(rows):
            v[k] += dv[k] if w.inside[k] else 0.0
        multiply_exchange_matrix(P.H, x, hx)
        multiply_exchange_matrix(P.JT, v, jv)
        multiply_exchange_matrix(P.J, x, jx)
        largest = size = off = size_f = 0.0
        for j in range(n):
            rest_f[j] = f[j] - hx[j] - jv[j] if place[j] == FREE else 0.0
            if place[j] == FREE:
                largest = max(largest, abs(hx[j]) + abs(jv[j]) + abs(f[j]))
                size, size_f, off = max(size, abs(x[j])), max(size_f, abs(f[j])), max(off, abs(rest_f[j]))
        size += size_f / P.largest
        rest, most = off / largest if largest > 0.0 else 0.0, 0.0
        off = 0.0
        for k in range(rows):
            rest_r[k] = r[k] - jx[k] if w.inside[k] else 0.0
            if w.inside[k]:
                length = w.sides[LENGTH, k]
                most, off = max(most, abs(r[k]) / length), max(off, abs(rest_r[k]) / length)
        size += most
        rest = max(rest, off / size if size > 0.0 else 0.0)
        if not (rest > SHARP and rest <= STALLED * last):
            break
        last = rest
    return rest if rest < math.inf else math.inf
