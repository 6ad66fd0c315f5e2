"""The named tuples of arrays that the compiled method reads and writes, and functions that allocate them.

Python passes the tuples to the kernel, and compiled functions pass on their addresses. Other modules import this one as
``ix``, for its constants. R is the number of rows, and N = n + R the number of variables with slacks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pear.solvers.active_set.settings import MOST_CONSTRAINTS, MOST_SUPERBASICS

Array = NDArray[Any]
Index = NDArray[np.int64]

LOWER, UPPER, BASIC, SUPER, FREE = range(5)
"""The place of a variable: at its lower or upper bound, basic, superbasic, or FREE, which is nonbasic at no bound."""

SOLVED, GIVEN_UP, AGAIN, OUTSIDE, CLOSE = range(5)
"""The status of a sample.

CLOSE means that only a residual is too large, because float64 has too few digits. AGAIN and OUTSIDE occur during the
search only. AGAIN means that some multipliers do not have the right sign yet, OUTSIDE that rounding has moved the point
outside of a constraint.
"""

SUPERS, FACTORED, AGE, CHANGES, WORKING, METHOD, PATIENT, GRAM_ROWS = range(8)
"""Positions of the integers in ``Workspace.tally``.

SUPERS counts the superbasic variables, FACTORED the rows of L that are up to date, AGE the pivots since the basis was
inverted, CHANGES the changes of the working set, and WORKING the constraints that the dual method holds. METHOD is the
method, PRIMAL or DUAL, that solved the sample. PATIENT is 1 in the last attempt of the primal method; see
``solve_for_basics``. GRAM_ROWS counts the rows that ``Workspace.gram`` holds.
"""

PRIMAL, DUAL = range(2)  # the methods that solve a sample
NO_START, BASIS_START, DUAL_START = range(3)
"""What a row of ``States`` holds: nothing, a basis with its inverse, or the working set of the dual method."""

LEAST_SIZE, MAX_CURVATURE, KKT, PIVOT, DRIFT = range(5)
"""Positions in ``Workspace.number``: the least size of a decision, the largest diagonal entry of the Hessian, the KKT
residual, the smallest pivot that is accepted, and the rounding error of the values in the dual search."""

START, SOLVE, PROJECT, REGRET, DECIDE = range(5)  # tasks of the kernel; see batch_kernel.run_batch_kernel
SAMPLE, WORKER = range(2)  # positions in ThreadTeam.turn: the next sample, and the next worker
_VECTORS, _INTEGERS = 23, 5  # of Workspace
_APART = 16  # numbers of two cache lines: what two workers write to is never in the same one


class DualPlan(NamedTuple):
    """What the dual method computes once for programs that share the Hessian H and the p equality rows A.

    P is the inverse of H on the null space of A. C = [I; G] has n rows for the bounds, then the m inequality rows G.

    Attributes:
        response: (n, n) P. If the cost changes by dc, the minimum without inequalities moves by −P dc.
        origin: (n, p) Y. If the right-hand sides of A change by db, this minimum moves by Y db.
        gram: (n + m, n + m) the Gram matrix K = C P Cᵀ. A unit of constraint i's multiplier lowers the value of
            constraint j by K_ij. Empty if samples have rows G of their own; each sample then computes the rows of K
            that it needs.
        weight: (n + m,) 1/√K_ii, or 0 if the equalities fix the value of constraint i. Only the n entries of the bounds
            if samples have rows of their own.
        freedom: n minus the rank of A.
    """

    response: Array
    origin: Array
    gram: Array
    weight: Array
    freedom: int


class Programs(NamedTuple):
    """K programs ``min ½xᵀ(σQ + λI)x + σcᵀx, Ax = b, Gx ≤ h, lb ≤ x ≤ ub``. They share fields that have one row.

    Attributes:
        Q: (1 or K, n, n), or (0, 0, 0) if the objective has no Q.
        band: (n, 2) for each row of Q the first column with a non-zero entry in any program, and the column after the
            last such column; (0, 2) without Q.
        sign: σ, 1 to minimise and −1 to maximise.
        smoothing: λ.
        J: (1 or K, R, n) the R rows [A; G].
        norm: (1 or K, R) squared lengths of the rows.
        start, row, value: the non-zeros of J by columns: where each column starts, the rows (nonzeros,), and the values
            (1 or K, nonzeros). Empty if J itself is used.
        rhs: (1 or K, R) right-hand sides [b; h].
        equalities: p, the number of equality rows.
        lb, ub: (1 or K, n) bounds.
        dual: the plan of the dual method; empty if the primal method solves all samples.
    """

    Q: Array
    band: Array
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
    band: Array
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
    """Warm starts, one row for each of K samples: the working set and the point of the last solution.

    Attributes:
        has_start: (K,) NO_START, BASIS_START or DUAL_START. A start of the dual method has no basis and no inverse.
        place: (K, N) int8 places of the N variables and slacks, LOWER to FREE.
        basis: (K, R) the basic variables, one for each of the R rows.
        inverse: (K, R, R) inverses of the basic columns.
        x: (K, N) points.
        age: (K,) the number of pivots since the basis was inverted.
    """

    has_start: Array
    place: Array
    basis: Array
    inverse: Array
    x: Array
    age: Array


class WorkMemory(NamedTuple):
    """The memory of all workers. The first dimension is the worker; ``Workspace`` has names for the rows of v and k.

    Attributes:
        v: vectors, one in each row.
        k: vectors of integers, one in each row.
        tally, inverse, scratch, W, L, gram: as in ``Workspace``.
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
        turn: (2,) counters, at the positions SAMPLE and WORKER: the next sample to solve, and the next free worker.
        memory: the memory of as many workers as there are threads.
    """

    openmp: int
    threads: int
    step: int
    turn: Array
    memory: WorkMemory


class Workspace(NamedTuple):
    """The memory for one sample: its data, its working set, the current point, and everything computed from them.

    A vector "by variable" has n entries for the variables, then R for the slacks. "By constraint" means the n bounds,
    then the inequalities.

    Attributes:
        x: the point, by variable.
        lo, up: bounds, by variable.
        reduced: the reduced gradient, by variable: grad − Jᵀy with the rows J, and −y for slacks.
        dual_scale: natural sizes of the multipliers, by variable.
        size: natural sizes of the point, by variable.
        step: a direction, by variable.
        c: (n,) cost to minimise.
        grad: (n,) the gradient Hx + c.
        error: (n,) the error to be projected.
        bound: (n,) multipliers of the bounds.
        rhs: (R,) right-hand sides.
        y: (R,) multipliers of the rows.
        left: (R,) residuals rhs − Jx − s of the rows, with the slacks s.
        terms: (R,) sums of the sizes of the terms in these residuals.
        norm: (R,) squared lengths of the rows.
        column: (R,) a column of B⁻¹J, by position in the basis.
        along: right-hand side, then solution, of the reduced system, by superbasic variable.
        value: values of the constraints in the dual search, by constraint.
        force: multipliers of the constraints that the dual method holds, by position in ``sup``.
        pull: right-hand side, then solution, of a system with the factor of these constraints.
        weight: factors by which the dual search multiplies violations, by constraint; see ``DualPlan``.
        number: single numbers, at the positions LEAST_SIZE to DRIFT.
        place: places of the variables, LOWER to FREE.
        held: 1 if a variable is tight at its lower bound, 2 if at its upper bound, else 0.
        basis: (R,) the basic variables.
        sup: the superbasic variables; in the dual method, the constraints of the working set.
        gram_at: the row of ``gram`` that holds the row of the Gram matrix, −1 for none, by constraint.
        tally: single integers, at the positions SUPERS to GRAM_ROWS.
        inverse: (R, R) B⁻¹, where B is the matrix of the basic columns.
        scratch: (R, R) memory for the inversion.
        W: row t, of R numbers, is B⁻¹ times the column of superbasic variable t.
        L: Cholesky factor of the reduced Hessian; in the dual method, of the working set's part of the Gram matrix.
        gram: rows of the Gram matrix of a sample with rows of its own, in the order in which they are first needed.
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
    """The solutions that the kernel writes, one row for each sample, in the conventions of ``duals_and_active_sets``.

    Attributes:
        code: (B,) SOLVED, CLOSE or GIVEN_UP.
        changes: (B,) the number of changes of the working set.
        x: (B, n) points.
        equality, inequality, bound: (B, p), (B, m) and (B, n) multipliers.
        kkt_residual: (B,) KKT residuals.
        rows, lower, upper: (B, m), (B, n) and (B, n) bool, the active set.
        weak_rows, weak_lower, weak_upper: the weakly active part of the active set, of the same shapes.
        weak: (B,) bool, whether the sample has a weakly active constraint.
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
    """The two programs of a regret, which differ in Q alone.

    Attributes:
        decision: the programs with the predicted objective.
        true_Q: Q of the true objective, in the form of ``Programs.Q``.
        curved: whether the two Q differ.
        factor: (1 or B, n, n) lower Cholesky factors of the Hessians; (0, 0, 0) if they are λI or not needed.
    """

    decision: Programs
    true_Q: Array
    curved: bool | np.bool_
    factor: Array


class SampleCosts(NamedTuple):
    """The costs of the samples of a call, and the rows that belong to each sample in other arrays.

    Attributes:
        predicted, true: (B, n) costs, with the sign that the user gave them.
        at: (B,) the row of each sample in the fields of ``Programs`` that differ by sample.
        slots: (B,) the row of each sample in the ``SolutionTable``; (0,) if nothing is kept.
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
        fingerprints: (K, f) what ``best`` was computed from, see ``SolutionStore``; NaN if the true problem must be
            solved again. Without rows, true problems are solved in every call.
    """

    predicted: States
    true: States
    best: CompiledSolutions
    fingerprints: Array


class CompiledRegrets(NamedTuple):
    """The regrets that the kernel writes, one row for each sample.

    Attributes:
        outcome: solutions of the problems with predicted costs.
        value: (B,) regrets.
        exact: (B, n) gradients.
        injected: (B, n) gradients with the normal component. If its strength is negative, errors before projection.
    """

    outcome: CompiledSolutions
    value: Array
    exact: Array
    injected: Array


def new_kernel_memory(n: int, R: int, workers: int) -> WorkMemory:
    """Allocate the memory of each worker for programs of n variables and R rows."""
    most, width = min(n, MOST_SUPERBASICS), n + R + 3 + _APART
    constraints = n + R if n + R <= MOST_CONSTRAINTS else 0
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


def new_kernel_states(size: int, n: int, R: int) -> States:
    """Allocate ``size`` states without a start. The other arrays are not initialised."""
    return States(
        has_start=np.zeros(size, np.int8),
        place=np.empty((size, n + R), np.int8),
        basis=np.empty((size, R), np.int32),
        inverse=np.empty((size, R, R)),
        x=np.empty((size, n + R)),
        age=np.zeros(size, np.int32),
    )


def new_kernel_regrets(size: int, n: int, p: int, m: int) -> CompiledRegrets:
    """Allocate results for ``size`` samples with p equalities and m inequalities. The arrays are not initialised."""
    outcome = new_kernel_solutions(size, n, p, m)
    return CompiledRegrets(outcome, np.empty(size), np.empty((size, n)), np.empty((size, n)))


def new_kernel_solutions(size: int, n: int, p: int, m: int) -> CompiledSolutions:
    """Allocate ``size`` solutions of programs with p equalities and m inequalities, not initialised."""
    code, changes = np.empty(size, np.int8), np.empty(size, np.int32)
    x, equality, inequality, bound = np.empty((size, n)), np.empty((size, p)), np.empty((size, m)), np.empty((size, n))
    rows, lower, upper = np.empty((size, m), bool), np.empty((size, n), bool), np.empty((size, n), bool)
    weak = np.empty((size, m), bool), np.empty((size, n), bool), np.empty((size, n), bool), np.empty(size, bool)
    return CompiledSolutions(code, changes, x, equality, inequality, bound, np.empty(size), rows, lower, upper, *weak)
