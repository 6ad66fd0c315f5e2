"""The records of arrays that the compiled method works on, and functions that allocate them.

Python passes them as named tuples. Compiled functions pass on their addresses. The other modules import this one as
``ix``, for its constants.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

LOWER, UPPER, BASIC, SUPER, FREE = range(5)
"""Place of a variable: at its lower or upper bound, basic, superbasic, or nonbasic without bounds (FREE, at zero)."""

SOLVED, GIVEN_UP, AGAIN, OUTSIDE, CLOSE = range(5)
"""Status of a sample.

SOLVED and GIVEN_UP are final. CLOSE is final, too: only a residual is too large, because float64 has too few digits.
AGAIN and OUTSIDE occur during the search. AGAIN: some multipliers do not have the right sign yet. OUTSIDE: rounding has
moved the point outside of a constraint.
"""

SUPERS, FACTORED, AGE, CHANGES, WORKING, METHOD, PATIENT, GRAM_ROWS = range(8)
"""Positions in ``Workspace.tally``.

They count the superbasic variables, the rows of L that are up to date, the pivots since the last inversion, the changes
of the working set, and the constraints that the dual method holds. METHOD is the method, PRIMAL or DUAL, that solved
the sample. PATIENT is 1 in the last attempt of the primal method; see ``working_set.set_basic_variables``. GRAM_ROWS
counts the rows in ``Workspace.gram``.
"""

PRIMAL, DUAL = range(2)
"""The methods that solve a sample."""

NO_START, BASIS_START, DUAL_START = range(3)
"""What a row of ``States`` holds: nothing, a basis with its inverse, or the working set of the dual method."""

LEAST_SIZE, MAX_CURVATURE, KKT, PIVOT, DRIFT = range(5)
"""Places in ``Workspace.number``: least size of a decision, largest curvature, KKT residual, least pivot, and the
rounding error of the values in the dual search."""

START, SOLVE, PROJECT, REGRET, DECIDE = range(5)
"""Tasks of the compiled code; see ``batch_kernel.run_batch``."""

SAMPLE, WORKER = range(2)
"""Positions in ``ThreadTeam.turn``: the next sample, the next worker."""

_VECTORS, _INTEGERS = 23, 5  # of Workspace
MOST_CONSTRAINTS = 1_000
"""Largest number of variables and inequalities of the dual method, the size of its Gram matrix."""
_APART = 16  # numbers of two cache lines: what two workers write to is never in the same one


class DualPlan(NamedTuple):
    """What the dual method computes once for programs that share H and A; see ``dual_plan.make_dual_plan``.

    P is the inverse of H on the null space of the equalities A, C = [I; G], and N = n + m.

    Attributes:
        response: (n, n) P. Where the cost changes by dc, the minimum without inequalities moves by −P dc.
        origin: (n, p) Y. Where b changes by db, this minimum moves by Y db.
        gram: (N, N) C P Cᵀ. A unit of constraint i's multiplier lowers the value of constraint j by entry (j, i). Empty
            where samples have rows G of their own, and each computes the entries that it needs.
        weight: (N,) one over the square root of each diagonal entry, 0 where the equalities fix the value of a
            constraint; (n,) for the bounds alone where samples have rows of their own.
        freedom: n less the rank of A.
    """

    response: Array
    origin: Array
    gram: Array
    weight: Array
    freedom: int


class Programs(NamedTuple):
    """A batch of ``min ½xᵀ(σQ + λI)x + σcᵀx, Ax = b, Gx ≤ h, lb ≤ x ≤ ub``; fields with one row are shared.

    Attributes:
        Q: (1 or K, n, n), or (0, 0, 0) where there is none.
        sign: σ.
        smoothing: λ.
        J: (1 or K, R, n) rows [A; G].
        norm: (1 or K, R) squared lengths of the rows.
        start, row, value: J by columns, ``value`` of shape (1 or K, nonzeros); empty where J is used directly.
        rhs: (1 or K, R) right-hand sides [b; h].
        equalities: p, the number of rows that are equalities.
        lb, ub: (1 or K, n) bounds.
        dual: what the dual method needs; empty where the primal method solves all samples.
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
    dual: DualPlan


class ProgramData(NamedTuple):
    """The data of one sample: fields of ``Programs`` and ``DualPlan`` without the leading dimension."""

    Q: Array
    sign: float
    smoothing: float
    J: Array
    start: Array
    row: Array
    value: Array
    equalities: int
    n: int
    response: Array
    origin: Array
    gram: Array
    weight: Array
    freedom: int


class States(NamedTuple):
    """Warm starts, one row per sample: the working set and the point of the last solution.

    Attributes:
        has_start: (K,) NO_START, BASIS_START or DUAL_START. A start of the dual method has no basis and no inverse.
        place: (K, N) int8 codes LOWER … FREE.
        basis: (K, R) the basic variables.
        inverse: (K, R, R) inverses of the basic columns.
        x: (K, N) points.
        age: (K,) number of pivots since the inverse was computed anew.
    """

    has_start: Array
    place: Array
    basis: Array
    inverse: Array
    x: Array
    age: Array


class WorkMemory(NamedTuple):
    """The memory of all workers. The first dimension is the worker; ``Workspace`` has names for the rows.

    Attributes:
        v: vectors, one per row.
        k: vectors of integers, one per row.
        tally: single integers.
        inverse, scratch, W, L, gram: as in ``Workspace``.
    """

    v: Array
    k: Array
    tally: Array
    inverse: Array
    scratch: Array
    W: Array
    L: Array
    gram: Array


class ThreadTeam(NamedTuple):
    """The threads that share a batch.

    Attributes:
        openmp: the address of ``GOMP_parallel``.
        threads: the number of threads; 1 for the calling thread alone.
        step: the number of samples that a thread takes at a time.
        turn: (2,) the next SAMPLE and the next WORKER.
        memory: memory for as many workers as there are threads.
    """

    openmp: int
    threads: int
    step: int
    turn: Array
    memory: WorkMemory


class Workspace(NamedTuple):
    """The memory for one sample: its working set, the current point, and everything that is computed from them.

    Vectors by variable have n entries for the variables, then R for the slacks.

    Attributes:
        x: the point, by variable.
        lo, up: bounds, by variable.
        reduced: the reduced gradient, by variable: grad − Jᵀy, and −y for slacks.
        step: a direction, by variable.
        dual_scale: natural sizes of the multipliers, by variable.
        size: natural sizes of the point, by variable.
        c: (n,) cost to minimise.
        grad: (n,) slope Hx + c.
        error: (n,) the error to be projected.
        bound: (n,) multipliers of the bounds.
        rhs: (R,) right-hand sides.
        y: (R,) multipliers of the rows.
        left: (R,) residuals r − Jx − s.
        terms: (R,) sizes of the terms of these residuals.
        norm: (R,) squared lengths of the rows.
        column: (R,) a column of B⁻¹J, by position in the basis.
        along: right-hand side, then solution, of the reduced system, by superbasic variable.
        value: values of the constraints in the dual search, by constraint.
        force: multipliers of the constraints that the dual method holds, by position in ``sup``.
        pull: right-hand side, then solution, of a system with the factor of these constraints.
        weight: one over the size of each constraint, by which the dual search compares violations; see ``DualPlan``.
        number: single numbers; see LEAST_SIZE.
        place: codes LOWER … FREE, by variable.
        held: 1 where a variable is tight at its lower bound, 2 at its upper bound, else 0.
        basis: (R,) the basic variables.
        sup: the superbasic variables; in the dual method, the constraints of the working set.
        gram_at: the row of ``gram`` that holds a constraint's row of the Gram matrix, −1 for none, by constraint.
        tally: single integers; see SUPERS.
        inverse: (R, R) B⁻¹.
        scratch: (R, R) memory for the inversion.
        W: (most, R), row t is B⁻¹ times the column of superbasic variable t.
        L: (most, most) Cholesky factor of ZᵀHZ; in the dual method, of the working set's part of the Gram matrix.
        gram: (N, N) rows of the Gram matrix of a sample with rows of its own, in the order in which they are needed.
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
    value: Array
    force: Array
    pull: Array
    weight: Array
    number: Array
    place: Array
    held: Array
    basis: Array
    sup: Array
    gram_at: Array
    tally: Array
    inverse: Array
    scratch: Array
    W: Array
    L: Array
    gram: Array


class CompiledSolutions(NamedTuple):
    """The solutions that a solve writes, one row per sample, as in ``pear.optimality.duals_and_active_sets``.

    Attributes:
        code: SOLVED, CLOSE or GIVEN_UP.
        changes: number of changes of the working set.
        x: points.
        equality, inequality, bound: multipliers.
        kkt_residual: KKT residuals.
        rows, lower, upper: the active set.
        weak_rows, weak_lower, weak_upper: the weakly active part of the active set.
        weak: whether there is a weakly active constraint.
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


class ProgramPair(NamedTuple):
    """The two problems of a regret, which differ in Q alone.

    Attributes:
        decision: the programs with the predicted objective.
        true_Q: Q of the true objective, in the form of ``Programs.Q``.
        curved: whether the two Q differ.
        factor: (1 or B, n, n) lower Cholesky factors of the samples' Hessians; (0, 0, 0) where the Hessian is λI.
    """

    decision: Programs
    true_Q: Array
    curved: bool | np.bool_
    factor: Array


class SampleCosts(NamedTuple):
    """The costs of the samples of a call, and the rows that belong to each sample in other arrays.

    Attributes:
        predicted, true: (B, n) costs, with the sign that the user gave them.
        at: (B,) each sample's row in the fields of ``Programs`` that differ by sample.
        slots: (B,) each sample's row in the ``SolutionTable``, or (0,) where nothing is kept.
    """

    predicted: Array
    true: Array
    at: Array
    slots: Array


class SolutionTable(NamedTuple):
    """Warm starts and best decisions of K samples, kept from one call to the next.

    Attributes:
        predicted: warm starts of the problems with predicted costs.
        true: warm starts of the problems with true costs.
        best: solutions of the problems with true costs.
        fingerprints: (K, n) costs for which ``best`` was solved; NaN where it must be solved again. Without rows, it is
            solved in every call.
    """

    predicted: States
    true: States
    best: CompiledSolutions
    fingerprints: Array


class CompiledRegrets(NamedTuple):
    """The regrets that the compiled code writes, one row per sample.

    Attributes:
        outcome: solutions of the problems with predicted costs.
        value: (B,) regrets.
        exact: (B, n) gradients.
        injected: (B, n) gradients with the normal component, or errors where the injection's strength is negative.
    """

    outcome: CompiledSolutions
    value: Array
    exact: Array
    injected: Array


def new_memory(n: int, R: int, most: int, workers: int) -> WorkMemory:
    """Allocate memory for programs of n variables and R rows with up to ``most`` superbasics, for each worker."""
    width, constraints = n + R + 3 + _APART, n + R if n + R <= MOST_CONSTRAINTS else 0
    return WorkMemory(
        v=np.zeros((workers, _VECTORS, width)),
        k=np.zeros((workers, _INTEGERS, width), np.int64),
        tally=np.zeros((workers, 8 + _APART), np.int64),
        inverse=np.zeros((workers, R, R)),
        scratch=np.zeros((workers, R, R)),
        W=np.zeros((workers, most + 1, R)),
        L=np.zeros((workers, most + 1, most + 1)),
        gram=np.zeros((workers, constraints, constraints)),  # takes memory only as far as it is used
    )


def new_states(size: int, n: int, R: int) -> States:
    """Allocate ``size`` states without a start. The other arrays are not initialised."""
    return States(
        has_start=np.zeros(size, np.int8),
        place=np.empty((size, n + R), np.int8),
        basis=np.empty((size, R), np.int32),
        inverse=np.empty((size, R, R)),
        x=np.empty((size, n + R)),
        age=np.zeros(size, np.int32),
    )


def new_regrets(size: int, n: int, p: int, m: int) -> CompiledRegrets:
    """Allocate memory for ``size`` regrets of programs with p equalities and m inequalities."""
    return CompiledRegrets(new_solutions(size, n, p, m), np.empty(size), np.empty((size, n)), np.empty((size, n)))


def new_solutions(size: int, n: int, p: int, m: int) -> CompiledSolutions:
    """Allocate memory for ``size`` solutions of programs with p equalities and m inequalities.

    The arrays are not initialised. Compiled code fills all of them.
    """
    code, changes = np.empty(size, np.int8), np.empty(size, np.int32)
    x, equality, inequality, bound = np.empty((size, n)), np.empty((size, p)), np.empty((size, m)), np.empty((size, n))
    rows, lower, upper = np.empty((size, m), bool), np.empty((size, n), bool), np.empty((size, n), bool)
    weak = np.empty((size, m), bool), np.empty((size, n), bool), np.empty((size, n), bool), np.empty(size, bool)
    return CompiledSolutions(code, changes, x, equality, inequality, bound, np.empty(size), rows, lower, upper, *weak)
