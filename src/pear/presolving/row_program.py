"""``RowProgram``: the arrays of a program without its costs, with two limits for every row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Index = NDArray[np.int_]


@dataclass(frozen=True)
class RowProgram:
    """The curvature Q, ``low ≤ rows · z ≤ high``, ``lb ≤ z ≤ ub``, and which variables are integers.

    Attributes:
        rows: (r, n) coefficients.
        low: (r,) lower limits, infinite where there are none.
        high: (r,) upper limits, infinite where there are none; equal to ``low`` for an equality.
        lb: (n,) lower bounds, infinite where there are none.
        ub: (n,) upper bounds, infinite where there are none.
        Q: (n, n) symmetric curvature in either sense, or None.
        integer: (n,) bool, or None where no variable is an integer.
        names: the names of the r rows for messages; by default row 0, row 1, ….
    """

    rows: sparse.csr_array
    low: Array
    high: Array
    lb: Array
    ub: Array
    Q: sparse.csr_array | None = None
    integer: Mask | None = None
    names: tuple[str, ...] = ()

    @property
    def n(self) -> int:
        """The number of variables."""
        return int(self.rows.shape[1])

    def name_of(self, row: int) -> str:
        """The name of a row in messages."""
        return self.names[row] if row < len(self.names) else f"row {row}"
