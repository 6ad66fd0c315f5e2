"""The arrays that the compiled method works on, and how to make them.

A function that numba compiles gets every array of its arguments as seven or more machine words, again at every call
and in every caller. That is why the many vectors of a sample are the rows of one array, named by the constants below:
``w.v[GRAD, j]`` is the slope along variable j.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

LOWER, UPPER, BASIC, SUPER, LOOSE = range(5)
"""Where a variable is: at a bound, basic, superbasic, or nonbasic without any bound (at zero)."""

SOLVED, GIVEN_UP, AGAIN = range(3)
"""What became of a sample; AGAIN is the verdict on a minimum whose multipliers do not have the right signs yet."""

# Rows of Work.v, by variable (n variables, then R slacks): the point and its bounds, multipliers of the bounds (grad =
# Jᵀy + pull, and −y for slacks), natural sizes of multipliers and of the point, a direction;
X, LO, UP, PULL, FORCE, SIZE, STEP = range(7)
# by variable, without slacks: cost to minimise, slope Hx + c, error that is to be projected;
C, GRAD, ERROR = range(7, 10)
# by row: right-hand side, multiplier, what is left of r − Jx − s, size of its terms, squared length of the row; by
# position in the basis: a column of B⁻¹J;
RHS, Y, LEFT, TERMS, NORM, COLUMN = range(10, 16)
# by superbasic variable: right-hand side and solution of the reduced system; and single numbers.
ALONG, NUMBER = range(16, 18)
_VECTORS = 18

PLACE, HELD, BASIS, SUP = range(4)
"""Rows of Work.k: LOWER … LOOSE and tight at which bound (0, 1 lower, 2 upper) by variable; the two lists."""

SUPERS, FACTORED, AGE, CHANGES = range(4)
"""Places in Work.tally: superbasics, rows of L up to date, pivots since the last inversion, changes of the set."""

REACH, STIFFNESS = range(2)
"""Places in the row NUMBER: how large a decision might be, and the largest curvature."""


class Programs(NamedTuple):
    """A batch of ``min ½xᵀ(σQ + λI)x + σcᵀx, Ax = b, Gx ≤ h, lb ≤ x ≤ ub``; fields with one row are shared.

    Attributes:
        Q: (1 or K, n, n), or (0, 0, 0) where there is none; sign: σ; smoothing: λ.
        J: (1 or K, R, n) for [A; G]; norm: (1 or K, R) length of its rows, squared.
        start, row, value: the same by columns where most of it is zero, ``value`` being (1 or K, nonzeros); empty
            where J is to be used as it is.
        rhs: (1 or K, R) for [b; h]; equalities: p, how many of the rows are equalities.
        lb, ub: (1 or K, n).
    """

    Q: Array
    sign: float
    smoothing: float
    J: Array
    norm: Array
    start: Array
    row: Array
    value: Array
    rhs: Array
    equalities: int
    lb: Array
    ub: Array


class Data(NamedTuple):
    """The part of ``Programs`` that one sample is computed with, without the leading dimension."""

    Q: Array
    sign: float
    smoothing: float
    J: Array
    start: Array
    row: Array
    value: Array
    equalities: int


class States(NamedTuple):
    """Where samples were left, one row each: the table a working set is remembered in.

    Attributes:
        known: (K,) 1 where there is anything.
        place: (K, N) int8, LOWER … LOOSE; basis: (K, R) the basic variables; inverse: (K, R, R) of their columns.
        x: (K, N); age: (K,) pivots since the inverse was computed afresh.
    """

    known: Array
    place: Array
    basis: Array
    inverse: Array
    x: Array
    age: Array


class Work(NamedTuple):
    """Room for one sample: its working set, the current point, and whatever is computed from them.

    Attributes:
        v: vectors, k: integers, one row each; tally: single integers.
        inverse: (R, R) B⁻¹; scratch: (R, R).
        W: (most, R), row t is B⁻¹ times the column of superbasic t; L: (most, most) Cholesky factor of ZᵀHZ.
    """

    v: Array
    k: Array
    tally: Array
    inverse: Array
    scratch: Array
    W: Array
    L: Array


class Outcome(NamedTuple):
    """What a solve writes, one row a sample; see ``pear.optimality.point`` for the meaning.

    Attributes:
        code: SOLVED or GIVEN_UP; changes: of the working set; tangent: dimension of the tangent space.
        x, equality, inequality, bound, kkt_residual: the solution.
        rows, lower, upper: active set; weak_rows, weak_lower, weak_upper: its weakly active part.
    """

    code: Array
    changes: Array
    tangent: Array
    x: Array
    equality: Array
    inequality: Array
    bound: Array
    kkt_residual: Array
    rows: Array
    lower: Array
    upper: Array
    weak_rows: Array
    weak_lower: Array
    weak_upper: Array


class Memory(NamedTuple):
    """Warm starts of the samples, as for ``regret_batch``, and how accurate a solution must be."""

    states: States
    ideals: States
    home: States
    ideal: Outcome
    stamps: Array
    optimal: float


def new_work(n: int, R: int, most: int) -> Work:
    """Room for programs of n variables and R rows with up to ``most`` superbasics."""
    width = n + R + 2
    return Work(
        v=np.zeros((_VECTORS, width)),
        k=np.zeros((4, width), np.int64),
        tally=np.zeros(4, np.int64),
        inverse=np.zeros((R, R)),
        scratch=np.zeros((R, R)),
        W=np.zeros((most + 1, R)),
        L=np.zeros((most + 1, most + 1)),
    )


def new_states(size: int, n: int, R: int) -> States:
    """An empty table."""
    return States(
        known=np.zeros(size, np.int8),
        place=np.zeros((size, n + R), np.int8),
        basis=np.zeros((size, R), np.int32),
        inverse=np.zeros((size, R, R)),
        x=np.zeros((size, n + R)),
        age=np.zeros(size, np.int32),
    )


def new_outcome(size: int, n: int, p: int, m: int) -> Outcome:
    """Room for ``size`` solutions of programs with p equalities and m inequalities."""
    code = np.full(size, GIVEN_UP, np.int8)
    changes, tangent = np.zeros(size, np.int32), np.zeros(size, np.int32)
    x, equality, inequality, bound = (np.zeros((size, k)) for k in (n, p, m, n))
    sets = (np.zeros((size, k), np.bool_) for k in (m, n, n, m, n, n))
    return Outcome(code, changes, tangent, x, equality, inequality, bound, np.zeros(size), *sets)
