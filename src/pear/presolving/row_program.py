"""``RowProgram``: the arrays of a program with two limits for every row, without the costs."""

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
    """The constraints ``low ≤ rows · z ≤ high`` and ``lb ≤ z ≤ ub``, the curvature Q, and the integer variables.

    Attributes:
        rows: (r, n) coefficients.
        low: (r,) lower limits; −∞ means no limit.
        high: (r,) upper limits; +∞ means no limit. Equal to ``low`` for an equality.
        lb: (n,) lower bounds; −∞ means no bound.
        ub: (n,) upper bounds; +∞ means no bound.
        Q: (n, n) symmetric curvature of a minimised or a maximised objective; None for a linear program.
        integer: (n,) bool, True for integer variables; None if all are continuous.
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
        """The number n of variables."""
        return int(self.rows.shape[1])

    def name_of(self, row: int) -> str:
        """Return the name of a row for messages."""
        return self.names[row] if row < len(self.names) else f"row {row}"
