"""``EquilibratedProgram``: the matrices of sparse programs, with rows and columns scaled to size one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import sparse

from pear.problem.quadratic_program import QuadraticProgram
from pear.solvers.linalg import Array
from pear.solvers.linalg.saddle import SaddlePattern

_EQUILIBRATIONS = 10


class EquilibratedProgram(NamedTuple):
    """The matrices of programs with rows and columns scaled to size one.

    Attributes:
        pattern: the scaled matrices H and J = [A; G], analysed for factorisations.
        by_columns: (p + m, n) the scaled J by columns.
        rows: (p + m,) the factors of the rows.
        columns: (n,) the units of the variables: x = columns · x', where x' are the scaled variables.
    """

    pattern: SaddlePattern
    by_columns: sparse.csc_array
    rows: Array
    columns: Array


def equilibrated_program(qp: QuadraticProgram) -> EquilibratedProgram:
    """Return the equilibrated matrices of programs, which are computed once for a problem."""
    return qp.prepare_once("interior", _equilibrate_program)


def _equilibrate_program(qp: QuadraticProgram) -> EquilibratedProgram:
    """Return the matrices with rows and columns scaled to size one."""
    J = sparse.csr_array(sparse.vstack([qp.A.csr, qp.G.csr]))
    H = sparse.csr_array(qp.H.csr)
    rows, columns = _program_equilibration(H, J)
    by_column = sparse.diags_array(columns)
    H, J = sparse.csr_array(by_column @ H @ by_column), sparse.csr_array(sparse.diags_array(rows) @ J @ by_column)
    return EquilibratedProgram(SaddlePattern(H, J), sparse.csc_array(J), rows, columns)


def _program_equilibration(H: sparse.csr_array, J: sparse.csr_array) -> tuple[Array, Array]:
    """Compute powers of two that scale the largest entries of rows and columns of [H Jᵀ; J 0] to about one.

    The method is Ruiz's iteration. In each iteration H is divided by the median of the largest entries of its columns,
    because the unit of the objective is arbitrary.

    Args:
        H: (n, n) the curvature.
        J: (r, n) the r rows.

    Returns:
        The factors of the rows of J (r,), and of its columns (n,).
    """
    H, J = sparse.coo_array(abs(H)), sparse.coo_array(abs(J))
    rows, columns = np.ones(J.shape[0]), np.ones(H.shape[0])
    for _ in range(_EQUILIBRATIONS):
        h, j = H.data * columns[H.row] * columns[H.col], J.data * rows[J.row] * columns[J.col]
        in_rows, in_columns, curved = np.zeros_like(rows), np.zeros_like(columns), np.zeros_like(columns)
        np.maximum.at(in_rows, J.row, j)
        np.maximum.at(in_columns, J.col, j)
        np.maximum.at(curved, H.row, h)
        # the unit of the objective is arbitrary: the curvature is divided by its median
        middle = np.median(curved[curved > 0]) if curved.any() else 1.0
        in_columns = np.maximum(in_columns, curved / middle)
        rows /= np.sqrt(np.where(in_rows > 0, in_rows, 1.0))
        columns /= np.sqrt(np.where(in_columns > 0, in_columns, 1.0))
    return np.exp2(np.round(np.log2(rows))), np.exp2(np.round(np.log2(columns)))
