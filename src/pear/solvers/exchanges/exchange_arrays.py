"""The arrays of the compiled exchanges: what a problem prepares once, what samples bring, and the memory of a thread.

Everything is in the equilibrated units of ``interior_point.sparse_interior_point``: decisions are divided by
``columns``, multipliers of rows by ``rows``. These factors are powers of two, so that nothing is rounded.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from pear.optimality.natural_sizes import positive_size
from pear.problem.matrix import matrix_row_squares
from pear.problem.quadratic_program import QuadraticProgram
from pear.solvers.linalg import Array
from pear.solvers.linalg.equilibrated_program import equilibrated_program
from pear.solvers.linalg.supernodes import SupernodeBlocks, supernode_memory

# The rows of the memory of a thread: steps, right-hand sides, products and sizes, of variables and of rows.
DX, F, HX, GRADIENT, SIZE, SCALE, ABS = 0, 1, 2, 3, 4, 5, 6
DV, R, SLACK, ROW_SIZE, ROW_SCALE, LENGTH = 0, 1, 2, 3, 4, 8

FREE, LOWER, UPPER = 0, 1, 2
"""Places of a variable: between its bounds, or held at one of them."""

MOST_UNKNOWNS = 10_000
"""Variables and rows up to which whole systems are factored. In larger programs the free variables alone are fewer."""

SHIFT = 1e-10
"""Shift of the rows relative to the curvature, for rows that are nearly dependent."""

LIFT = 1e-7
"""Shift of a curvature that may be singular, and of its rows; so large that rounding does not hide it."""

HELD = 1e18
"""Diagonal entry, relative to the curvature, that takes a variable or a row out of a system."""


class ExchangeMatrix(NamedTuple):
    """A sparse matrix by rows: the entries of row i are those at ``start[i] : start[i + 1]``."""

    start: Array
    at: Array
    value: Array

    @classmethod
    def of(cls, matrix: Any) -> ExchangeMatrix:
        """The arrays of a SciPy matrix."""
        csr = sparse.csr_array(matrix)
        return cls(csr.indptr.astype(np.int64), csr.indices.astype(np.int64), csr.data.astype(float))


class ExchangePlan(NamedTuple):
    """What all samples of a problem share.

    Attributes:
        blocks: the storage plan of the factor of ``[H + D, Jᵀ; J, −E]``.
        data: the numbers of this matrix without its diagonal.
        diagonal: the positions of its diagonal in ``data``.
        taken: how the inverse diagonals of the variables ``alone``, which are eliminated first, change ``data``.
        alone: these variables, and ``alone_rows`` their columns of J.
        left: the variables and rows, counted on from n, that are factored.
        H, J, JT: the matrices, J = [A; G].
        curvature: (n,) the diagonal of H.
        columns, rows: the units.
        norms: (p + m,) lengths of the rows in the units of the data, 1 where a row is empty.
        equalities: p.
        lift, shift: what is added to the curvature, and to rows of length one, of a system.
        largest: the largest curvature, or 1.
    """

    blocks: SupernodeBlocks
    data: Array
    diagonal: Array
    taken: ExchangeMatrix
    alone: Array
    alone_rows: ExchangeMatrix
    left: Array
    H: ExchangeMatrix
    J: ExchangeMatrix
    JT: ExchangeMatrix
    curvature: Array
    columns: Array
    rows: Array
    norms: Array
    equalities: int
    lift: float
    shift: float
    largest: float


def make_exchange_plan(qp: QuadraticProgram, definite: bool) -> ExchangePlan | None:
    """Make the plan of sparse programs; None where their systems cannot be factored whole, or are so large.

    Args:
        qp: the programs; only their matrices matter.
        definite: whether H is positive definite.
    """
    if qp.n + qp.p + qp.m > MOST_UNKNOWNS:
        return None
    whole = equilibrated_program(qp)
    pattern = whole.pattern
    if not (pattern.direct and pattern.affordable):
        return None
    largest = float(pattern.curvature.max(initial=0.0)) or 1.0
    lift, shift = (0.0, SHIFT) if definite else (LIFT, LIFT)
    norms = [positive_size(matrix_row_squares(rows).sqrt())[0].numpy() for rows in (qp.A, qp.G)]
    everything = np.arange(pattern.n + pattern.rows)
    blocks, data, diagonal, taken = pattern.numbers
    return ExchangePlan(
        blocks=blocks,
        data=data,
        diagonal=diagonal,
        taken=ExchangeMatrix.of(taken),
        alone=everything[pattern.alone],
        alone_rows=ExchangeMatrix.of(pattern.alone_JT),
        left=everything[pattern.left],
        H=ExchangeMatrix.of(pattern.H),
        J=ExchangeMatrix.of(pattern.J),
        JT=ExchangeMatrix.of(pattern.JT),
        curvature=pattern.curvature,
        columns=whole.columns,
        rows=whole.rows,
        norms=np.concatenate(norms),
        equalities=qp.p,
        lift=lift * largest,
        shift=shift / largest,
        largest=largest,
    )


class ExchangeSamples(NamedTuple):
    """The data of B samples and the points that they start from; the points become the results.

    Attributes:
        c: (B, n) costs.
        rhs: (B, p + m) right-hand sides; infinite where a row is absent.
        lb, ub: (B, n) bounds.
        x: (B, n) decisions.
        v: (B, p + m) multipliers of the rows.
        bound: (B, n) multipliers of the bounds.
        place: (B, n) int8, the places of the variables.
        held: (B, p + m) bool, the rows that are held; all equalities are.
        exchanges: (B,) how often constraints were exchanged.
        done: (B,) bool, whether no constraint is wrong in the end.
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


class SetSystems(NamedTuple):
    """Reduced systems ``[H Jᵀ; J 0][x; v] = [f; r]`` of B working sets, with K right-hand sides each.

    Attributes:
        place: (B, n) int8, the places of the variables.
        held: (B, p + m) bool, the rows that are held; all equalities are.
        f: (K, B, n) right-hand sides.
        r: (K, B, p + m) right-hand sides.
        x: (K, B, n) solutions, zero at bounds.
        v: (K, B, p + m) solutions, zero on rows that are not held.
        good: (K, B) bool, whether the residual vanished up to rounding.
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
        data, L, pivots, stack, tiles, positions, pair: of the factorisation and of its solves.
        inverse: (alone,) inverse diagonals of the variables that are eliminated first.
        variables: (12, n) vectors, with the names of their rows above; those from 8 on are of the refinement.
        sides: (9, p + m) vectors, with the names of their rows above; those from 5 to 7 are of the refinement.
        inside: (p + m,) bool, the rows of the system: held, and with a free variable.
        wrong: (2n + m,) bool, the constraints to exchange: rows, lower and upper bounds.
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
        np.zeros((12, n)),
        np.zeros((9, rows)),
        np.zeros(rows, bool),
        np.zeros(rows - plan.equalities + 2 * n, bool),
    )
