"""The plan of the compiled exchanges. It holds what all samples of a problem share.

The matrices of a plan are in equilibrated units; see ``equilibrated_program``. Decisions are divided by ``columns``,
and multipliers of rows by ``rows``. These factors are powers of two, so that nothing is rounded.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pear.optimality.natural_sizes import positive_size
from pear.problem.matrix import matrix_row_squares
from pear.problem.quadratic_program import QuadraticProgram
from pear.solvers.exchanges.exchange_matrix import ExchangeMatrix
from pear.solvers.linalg import Array
from pear.solvers.linalg.equilibrated_program import equilibrated_program
from pear.solvers.linalg.supernodes import SupernodeBlocks

MOST_UNKNOWNS = 10_000
"""The largest number of variables and rows of a program whose systems are factored whole.

The systems of larger programs are factored for the free variables alone, which are fewer.
"""

SHIFT = 1e-10
"""Shift of the rows, times the largest curvature. Systems whose rows are nearly dependent need such a shift."""

LIFT = 1e-7
"""Shift of a curvature that may be singular, and then also of the rows. It is so large that rounding does not hide it.

The shift of the curvature is relative to the largest curvature.
"""

HELD = 1e18
"""Diagonal entry that takes a variable or a row out of a system.

It is relative to the largest curvature for a variable, and to one over the largest curvature for a row.
"""


class ExchangePlan(NamedTuple):
    """What the compiled exchanges compute once for all samples of a problem.

    The *whole system* is the matrix ``[H + D, Jᵀ; J, −E]`` with J = [A; G] and diagonal matrices D and E, which depend
    on the working set. The variables in ``alone`` are eliminated first. The matrix that is left is factored.

    Attributes:
        blocks: the storage plan of the factor.
        data: (entries,) the entries of the matrix that is left, before the elimination and with a diagonal of zeros.
        diagonal: the positions of its diagonal in ``data``.
        taken: (entries, alone) the elimination adds ``taken @ inverse`` to ``data``, where ``inverse`` has the inverse
            diagonal entries of the variables ``alone``.
        alone: the variables that are eliminated first.
        alone_rows: the columns of J that belong to the variables ``alone``, as the rows of a matrix.
        left: the unknowns that are left, in ascending order: j stands for variable j, n + i for row i.
        H, J, JT: the matrices H, J and Jᵀ.
        curvature: (n,) the diagonal of H.
        columns, rows: (n,) and (p + m,) the units of decisions and of multipliers of rows.
        norms: (p + m,) lengths of the rows in the units of the data, 1 if a row is empty.
        equalities: p, the number of equalities.
        lift: the entries of D at free variables.
        shift: the entry of E at a held row whose part at the free variables has length one.
        largest: the largest curvature, or 1 if there is no curvature.
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
    """Make the plan of sparse programs.

    Args:
        qp: the programs; only their matrices matter.
        definite: whether H is positive definite.

    Returns:
        The plan; None if factoring the whole systems of the programs needs too much memory or time.
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
