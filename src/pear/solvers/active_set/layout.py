"""The arrays that the compiled method works on, and how to make them.

Python hands them over as named tuples, which compiled functions pass on by their address (see ``compact``). The other
modules import this one as ``ix``, for its constants.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

LOWER, UPPER, BASIC, SUPER, FREE = range(5)
"""Where a variable is: at a bound, basic, superbasic, or nonbasic and free of bounds (at zero)."""

SOLVED, GIVEN_UP, AGAIN, OUTSIDE, CLOSE = range(5)
"""Status of a sample. CLOSE: nothing is wrong but the size of a residual, for want of digits. Verdicts on
the way: AGAIN, where multipliers do not have the right signs yet; OUTSIDE, where rounding has led out of a constraint.
"""

SUPERS, FACTORED, AGE, CHANGES = range(4)
"""Places in Work.tally: superbasics, rows of L up to date, pivots since the last inversion, changes of the set."""

LEAST_SIZE, MAX_CURVATURE, KKT, PIVOT = range(4)
"""Places in Work.number: the least size of a decision, the largest curvature, the KKT residual, the least pivot."""


START, SOLVE, PROJECT, REGRET = range(4)
"""What the compiled code is asked for; see ``kernels``."""

SAMPLE, WORKER = range(2)
"""Places in Team.turn: the next sample, the next worker."""

_VECTORS, _INTEGERS = 19, 4  # of Work
_APART = 16  # numbers of two cache lines: what two workers write to is never in the same one


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
    """The data of one sample: fields of ``Programs`` without the leading dimension."""

    Q: Array
    sign: float
    smoothing: float
    J: Array
    start: Array
    row: Array
    value: Array
    equalities: int
    n: int


class States(NamedTuple):
    """Warm starts, one row a sample: the working set and the point of its last solution.

    Attributes:
        has_start: (K,) 1 where the row holds one.
        place: (K, N) int8, LOWER … FREE; basis: (K, R) the basic variables; inverse: (K, R, R) of their columns.
        x: (K, N); age: (K,) pivots since the inverse was computed afresh.
    """

    has_start: Array
    place: Array
    basis: Array
    inverse: Array
    x: Array
    age: Array


class Memory(NamedTuple):
    """The memory of all workers, one along the first dimension; ``Work`` has names for its rows.

    Attributes:
        v: vectors, k: integers, one row each; tally: single integers.
        inverse, scratch, W, L: see ``Work``.
    """

    v: Array
    k: Array
    tally: Array
    inverse: Array
    scratch: Array
    W: Array
    L: Array


class Team(NamedTuple):
    """The threads that share a batch.

    Attributes:
        openmp: the address of ``GOMP_parallel``; threads: how many it is asked for, 1 for the calling thread alone.
        step: the number of samples that a thread takes at a time.
        turn: (2,) the next SAMPLE and the next WORKER.
        memory: memory for as many workers as there are threads.
    """

    openmp: int
    threads: int
    step: int
    turn: Array
    memory: Memory


class Work(NamedTuple):
    """The memory for one sample: its working set, the current point, and all that is computed from them.

    Attributes:
        x, lo, up: by variable (n variables, then R slacks), the point and its bounds.
        reduced: the reduced gradient (grad − Jᵀy, and −y for slacks); step: a direction.
        dual_scale, size: natural sizes of multipliers and of the point.
        c, grad, error, bound: by variable, without slacks: cost to minimise, slope Hx + c, error that is to be
            projected, multiplier of the bound.
        rhs, y, left, terms, norm: by row: right-hand side, multiplier, what is left of r − Jx − s, size of its terms,
            squared length of the row; column: by position in the basis, a column of B⁻¹J.
        along: by superbasic variable, right-hand side and solution of the reduced system; number: single numbers.
        place, held: by variable, LOWER … FREE, and tight at which bound (0, 1 lower, 2 upper).
        basis, sup: the basic and the superbasic variables; tally: single integers.
        inverse: (R, R) B⁻¹; scratch: (R, R).
        W: (most, R), row t is B⁻¹ times the column of superbasic t; L: (most, most) Cholesky factor of ZᵀHZ.
    """

    x: Array
    lo: Array
    up: Array
    reduced: Array
    dual_scale: Array
    size: Array
    step: Array
    c: Array
    grad: Array
    error: Array
    bound: Array
    rhs: Array
    y: Array
    left: Array
    terms: Array
    norm: Array
    column: Array
    along: Array
    number: Array
    place: Array
    held: Array
    basis: Array
    sup: Array
    tally: Array
    inverse: Array
    scratch: Array
    W: Array
    L: Array


class Outcome(NamedTuple):
    """What a solve writes, one row a sample; see ``pear.optimality.duals_and_active_sets`` for the meaning.

    Attributes:
        code: SOLVED, CLOSE or GIVEN_UP; changes: of the working set.
        x, equality, inequality, bound, kkt_residual: the solution.
        rows, lower, upper: active set; weak_rows, weak_lower, weak_upper: its weakly active part.
        weak: whether there is such a part.
    """

    code: Array
    changes: Array
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
    weak: Array


class Pair(NamedTuple):
    """The two problems of a regret: Programs of the decision and the true ones; curved: whether their Q differ."""

    decision: Programs
    true: Programs
    curved: bool | np.bool_


class Samples(NamedTuple):
    """The samples of a call.

    Attributes:
        predicted, true: (B, n) costs in the user's sense.
        at: (B,) row of each sample in fields that are not shared; slots: (B,) its row in the ``Table``, or (0,) where
            nothing is kept.
    """

    predicted: Array
    true: Array
    at: Array
    slots: Array


class Table(NamedTuple):
    """What is kept of K samples from one call to the next.

    Attributes:
        predicted, true: States of the two problems.
        best: Outcome of the true ones.
        fingerprints: (K, n) costs under which ``best`` was solved; NaN where it must be solved again, and without rows
            where it always must.
    """

    predicted: States
    true: States
    best: Outcome
    fingerprints: Array


class Results(NamedTuple):
    """What a regret writes, one row a sample.

    Attributes:
        outcome: of the predicted problems; value: (B,) regrets.
        exact: (B, n) gradients; injected: (B, n) with the normal component, or the error where that is asked for.
    """

    outcome: Outcome
    value: Array
    exact: Array
    injected: Array


def new_memory(n: int, R: int, most: int, workers: int) -> Memory:
    """Room for programs of n variables and R rows with up to ``most`` superbasics, for each worker."""
    width = n + R + 3 + _APART
    return Memory(
        v=np.zeros((workers, _VECTORS, width)),
        k=np.zeros((workers, _INTEGERS, width), np.int64),
        tally=np.zeros((workers, 4 + _APART), np.int64),
        inverse=np.zeros((workers, R, R)),
        scratch=np.zeros((workers, R, R)),
        W=np.zeros((workers, most + 1, R)),
        L=np.zeros((workers, most + 1, most + 1)),
    )


def new_states(size: int, n: int, R: int) -> States:
    """States without a start; every array is written before it is read."""
    return States(
        has_start=np.zeros(size, np.int8),
        place=np.empty((size, n + R), np.int8),
        basis=np.empty((size, R), np.int32),
        inverse=np.empty((size, R, R)),
        x=np.empty((size, n + R)),
        age=np.zeros(size, np.int32),
    )


def new_results(size: int, n: int, p: int, m: int) -> Results:
    """Room for ``size`` regrets of programs with p equalities and m inequalities."""
    return Results(new_outcome(size, n, p, m), np.empty(size), np.empty((size, n)), np.empty((size, n)))


def new_outcome(size: int, n: int, p: int, m: int) -> Outcome:
    """Room for ``size`` solutions of programs with p equalities and m inequalities; compiled code fills all of it."""
    code = np.full(size, GIVEN_UP, np.int8)
    changes = np.zeros(size, np.int32)
    x, equality, inequality, bound = (np.empty((size, k)) for k in (n, p, m, n))
    sets = (np.empty((size, *k), np.bool_) for k in ((m,), (n,), (n,), (m,), (n,), (n,), ()))
    return Outcome(code, changes, x, equality, inequality, bound, np.empty(size), *sets)
