"""Scaling of a program for a MILP solver, whose tolerances are absolute and which drops small coefficients.

All factors are powers of two, so that nothing is rounded. Integer variables are not scaled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Array = NDArray[np.float64]

_FINE = (2.0**-4, 2.0**16)  # coefficients in this range stay as they are
_RANGE = 2.0**30  # largest cost relative to the size that the smallest is scaled to
_PASSES = 3


@dataclass(frozen=True)
class MilpUnits:
    """Scale factors of rows and columns: row i is multiplied by ``rows[i]``, and ``x_j = columns[j] x'_j``.

    Attributes:
        rows: (r,) factors of the rows.
        columns: (n,) factors of the columns, 1 for integer variables.
    """

    rows: Array
    columns: Array

    @classmethod
    def of(cls, matrix: Any, integer: NDArray[np.bool_]) -> MilpUnits:
        """Choose units in which the coefficients of each row, and of each continuous column, lie around 1.

        Args:
            matrix: (r, n) SciPy matrix.
            integer: (n,) bool, True for integer variables.
        """
        entries = sparse.coo_array(matrix)
        used = entries.data != 0
        log = np.log2(np.abs(entries.data[used]))
        i, j = entries.coords[0][used], entries.coords[1][used]
        rows, columns = np.zeros(matrix.shape[0]), np.zeros(matrix.shape[1])
        if len(log) and (log.min() < np.log2(_FINE[0]) or log.max() > np.log2(_FINE[1])):
            for _ in range(_PASSES):
                columns = np.where(integer, 0.0, -_middle_exponent(log + rows[i], j, len(columns)))
                rows = -_middle_exponent(log + columns[j], i, len(rows))
        return cls(2.0**rows, 2.0**columns)

    def scaled(self, matrix: Any) -> sparse.csc_matrix:
        """Return the coefficients in these units."""
        return sparse.csc_matrix(sparse.diags(self.rows) @ sparse.csc_matrix(matrix) @ sparse.diags(self.columns))


def cost_unit(cost: Array, least: float) -> float:
    """Return the power of two that brings the smallest cost to ``least``, or the largest to ``least`` times 2³⁰."""
    size = np.abs(cost[cost != 0])
    if not len(size):
        return 1.0
    return float(2.0 ** np.ceil(np.log2(min(least / size.min(), least * _RANGE / size.max()))))


def _middle_exponent(log: Array, at: NDArray[np.intp], size: int) -> Array:
    """Return, for each index, the rounded middle of the smallest and the largest ``log`` that belong to it.

    ``at`` holds the index of each entry of ``log``. An index without entries gets 0.
    """
    least, most = np.full(size, np.inf), np.full(size, -np.inf)
    np.minimum.at(least, at, log)
    np.maximum.at(most, at, log)
    used = most >= least
    middle = np.zeros(size)
    middle[used] = np.round(0.5 * (least[used] + most[used]))
    return middle
