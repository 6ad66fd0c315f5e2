"""The arrays of the compiled exchanges: the data of samples, right-hand sides, and the memory of a thread.

All numbers are in the equilibrated units of an ``ExchangePlan``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pear.solvers.exchanges.exchange_plan import ExchangePlan
from pear.solvers.linalg import Array
from pear.solvers.linalg.supernode_factors import supernode_memory

DX, F, HX, GRADIENT, SIZE, SCALE, ABS, STEP, STEP_H, STEP_JT, LEFT = range(11)
CENTRE, CENTRE_BOUND, POINT, POINT_BOUND, SLOPE, DIAGONAL = range(11, 17)
"""Rows of ``ExchangeMemory.variables``.

DX to ABS hold the step of the decisions x, the right-hand side of the system, the product Hx, the gradient, the natural
sizes of the decisions, those of the gradient, and the latter divided by squared units. STEP to LEFT serve the
refinement of a solution (x, v): they hold the last correction of x, the products Hx and Jᵀv with J = [A; G], and the
residual. CENTRE to DIAGONAL serve proximal steps: they hold the centre of the decisions and of the multipliers of the
bounds, the point and its multipliers of the bounds, the gradient without the terms of rows and bounds, and the diagonal
that is added to the curvature.
"""

DV, R, SLACK, ROW_SIZE, ROW_SCALE, LENGTH, ROW_STEP, STEP_J, ROW_LEFT = range(9)
ROW_CENTRE, ROW_POINT, EXCESS, ALONG, ROW_DIAGONAL = range(9, 14)
"""Rows of ``ExchangeMemory.sides``.

DV to LENGTH hold the step of the multipliers v, the right-hand side of the system, the slacks, the natural sizes of the
rows and of their multipliers, and the lengths of the rows over the free variables. ROW_STEP to ROW_LEFT serve the
refinement of a solution (x, v): they hold the last correction of v, the product Jx with J = [A; G], and the residual.
ROW_CENTRE to ROW_DIAGONAL serve proximal steps: they hold the centre of the multipliers, the multipliers, the amounts
by which rows exceed their right-hand sides, their changes along a step, and the diagonal of the rows.
"""

FREE, LOWER, UPPER = range(3)
"""The place of a variable: free between its bounds, or held at its lower or upper bound."""


class ExchangeSamples(NamedTuple):
    """The data of B samples, and the points that they start from. The search replaces the points by its results.

    Attributes:
        c: (B, n) costs.
        rhs: (B, p + m) right-hand sides; infinite if a row is absent.
        lb, ub: (B, n) bounds.
        x: (B, n) decisions.
        v: (B, p + m) multipliers of the rows.
        bound: (B, n) multipliers of the bounds.
        place: (B, n) int8, the places of the variables: FREE, LOWER or UPPER.
        held: (B, p + m) bool, the rows that are held; all equalities are.
        exchanges: (B,) how often the working set was changed, by exchanges and by proximal steps.
        done: (B,) bool, whether no constraint is wrong in the end and the residual is small.
    """

    c: Array
    rhs: Array
    lb: Array
    ub: Array
    x: Array
    v: Array
    bound: Array
    place: Array
    held: Array
    exchanges: Array
    done: Array


class MaskedSystems(NamedTuple):
    """Reduced systems ``[H Jᵀ; J 0][x; v] = [f; r]`` of B working sets, with K right-hand sides each and J = [A; G].

    Attributes:
        place: (B, n) int8, the places of the variables: FREE, LOWER or UPPER.
        held: (B, p + m) bool, the rows that are held; all equalities are.
        f: (K, B, n) right-hand sides.
        r: (K, B, p + m) right-hand sides.
        x: (K, B, n) solutions, zero at bounds.
        v: (K, B, p + m) solutions, zero on rows that are not held.
        good: (K, B) bool, whether the relative residual is at most ``PROJECTED``.
    """

    place: Array
    held: Array
    f: Array
    r: Array
    x: Array
    v: Array
    good: Array


class ExchangeMemory(NamedTuple):
    """The memory of one thread.

    Attributes:
        data, L, pivots, stack, tiles, positions, pair: for the factorisation and for solves with the factor.
        inverse: inverse diagonal entries of the variables that are eliminated first.
        variables: vectors (n,), one in each of the rows DX to DIAGONAL.
        sides: vectors (p + m,), one in each of the rows DV to ROW_DIAGONAL.
        inside: (p + m,) bool, the rows of the system: those that are held and have a free variable.
        wrong: (m + 2n,) bool, the constraints to exchange: inequalities, lower bounds, upper bounds.
    """

    data: Array
    L: Array
    pivots: Array
    stack: Array
    tiles: Array
    positions: Array
    pair: Array
    inverse: Array
    variables: Array
    sides: Array
    inside: Array
    wrong: Array


def new_exchange_memory(plan: ExchangePlan) -> ExchangeMemory:
    """Allocate the memory of a thread."""
    n, rows, size = len(plan.curvature), len(plan.rows), len(plan.left)
    return ExchangeMemory(
        np.empty(len(plan.data)),
        np.empty(plan.blocks.start[-1]),
        np.empty(size),
        *supernode_memory(plan.blocks),
        np.empty((3, size)),
        np.empty(len(plan.alone)),
        np.zeros((DIAGONAL + 1, n)),
        np.zeros((ROW_DIAGONAL + 1, rows)),
        np.zeros(rows, bool),
        np.zeros(rows - plan.equalities + 2 * n, bool),
    )
