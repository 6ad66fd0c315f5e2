"""Units for MILP solvers, which have absolute tolerances and drop small coefficients.

All scale factors are powers of two, so that scaling rounds nothing. Integer variables are not scaled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Array = NDArray[np.float64]

_FINE = (2.0**-4, 2.0**16)  # coefficients in this range stay as they are
_RANGE = 2.0**30  # the largest scaled cost, relative to the smallest
_PASSES = 3


@dataclass(frozen=True)
class MilpUnits:
    """The scale factors of r rows and n variables.

    Row i is multiplied by ``rows[i]``. Variable j is ``columns[j]`` times the scaled variable j.

    Attributes:
        rows: (r,) factors of the rows.
        columns: (n,) units of the variables, 1 for integer variables.
    """

    rows: Array
    columns: Array

    @classmethod
    def of(cls, matrix: Any, integer: NDArray[np.bool_]) -> MilpUnits:
        """Choose units in which the coefficients of every row and of every continuous variable lie around 1.

        All factors are 1 if no coefficient is very small or very large.

        Args:
            matrix: (r, n) coefficients, a SciPy matrix.
            integer: (n,) bool, True for integer variables.
        """
        entries = sparse.coo_array(matrix)
        used = entries.data != 0
        log = np.log2(np.abs(entries.data[used]))
        i, j = entries.coords[0][used], entries.coords[1][used]
        rows, columns = np.zeros(matrix.shape[0]), np.zeros(matrix.shape[1])
        if len(log) and (log.min() < np.log2(_FINE[0]) or log.max() > np.log2(_FINE[1])):
            for _ in range(_PASSES):
                columns = np.where(integer, 0.0, -_milp_exponents(log + rows[i], j, len(columns)))
                rows = -_milp_exponents(log + columns[j], i, len(rows))
        return cls(2.0**rows, 2.0**columns)

    def scaled(self, matrix: Any) -> sparse.csc_matrix:
        """Return the coefficients (r, n) in these units."""
        return sparse.csc_matrix(sparse.diags(self.rows) @ sparse.csc_matrix(matrix) @ sparse.diags(self.columns))


def milp_cost_unit(cost: Array, least: float) -> float:
    """Return a power of two that scales the smallest non-zero cost to about ``least``.

    The power is smaller if it would make the largest cost exceed about ``least`` times 2³⁰. It is 1 if all costs are
    zero.
    """
    size = np.abs(cost[cost != 0])
    if not len(size):
        return 1.0
    return float(2.0 ** np.ceil(np.log2(min(least / size.min(), least * _RANGE / size.max()))))


def _milp_exponents(log: Array, at: NDArray[np.intp], size: int) -> Array:
    """Return, for each row or column, the rounded mean of the smallest and the largest logarithm of its entries.

    Args:
        log: (k,) binary logarithms of the sizes of all entries.
        at: (k,) the row or column of each entry.
        size: the number of rows or columns.

    Returns:
        (size,), 0 for a row or column without entries.
    """
    least, most = np.full(size, np.inf), np.full(size, -np.inf)
    np.minimum.at(least, at, log)
    np.maximum.at(most, at, log)
    used = most >= least
    middle = np.zeros(size)
    middle[used] = np.round(0.5 * (least[used] + most[used]))
    return middle
