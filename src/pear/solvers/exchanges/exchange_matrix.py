"""``ExchangeMatrix``: a sparse matrix, stored by rows, and its products in compiled code."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from pear.compile.jit import inner
from pear.solvers.linalg import Array


class ExchangeMatrix(NamedTuple):
    """A sparse matrix, stored by rows.

    Attributes:
        start: (rows + 1,) the entries of row i are those at ``start[i] : start[i + 1]``.
        at: (entries,) the column of each entry.
        value: (entries,) the entries.
    """

    start: Array
    at: Array
    value: Array

    @classmethod
    def of(cls, matrix: Any) -> ExchangeMatrix:
        """Convert a SciPy matrix."""
        csr = sparse.csr_array(matrix)
        return cls(csr.indptr.astype(np.int64), csr.indices.astype(np.int64), csr.data.astype(float))


@inner
def multiply_exchange_matrix(M: ExchangeMatrix, x: Array, out: Array) -> None:
    """Write the product M x to ``out``."""
    for i in range(len(M.start) - 1):
        total = 0.0
        for k in range(M.start[i], M.start[i + 1]):
            total += M.value[k] * x[M.at[k]]
        out[i] = total


@inner
def multiply_abs_exchange_matrix(M: ExchangeMatrix, x: Array, out: Array) -> None:
    """Write the product |M| x to ``out``, where |M| has the absolute values of the entries of M."""
    for i in range(len(M.start) - 1):
        total = 0.0
        for k in range(M.start[i], M.start[i + 1]):
            total += abs(M.value[k]) * x[M.at[k]]
        out[i] = total
