"""``RowLimits``: rows with two limits, and their conversion to fields of a ``Problem``. Checks of imported numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from pear.errors import DataError
from pear.problem.array_conversion import NO_BOUND

Array = NDArray[np.float64]


@dataclass(frozen=True)
class RowLimits:
    """``low ≤ Mz ≤ high``: rows with two limits, as files have them.

    Attributes:
        matrix: (k, n) coefficients.
        low: (k,) lower limits, infinite where there are none.
        high: (k,) upper limits, infinite where there are none.
        names: the names of all rows of the source, including rows that have become bounds.
        numbers: (k,) the position of each row among those of the source; None where these are all rows, in order.
    """

    matrix: sparse.csr_array
    low: Array
    high: Array
    names: tuple[str, ...]
    numbers: NDArray[np.int_] | None = None

    def kinds(self) -> tuple[NDArray[np.int_], NDArray[np.int_], NDArray[np.int_]]:
        """The indices of rows with equal limits, of other rows with an upper limit, and of those with a lower limit."""
        equal = self.low == self.high
        above, below = (~equal & (np.abs(side) < NO_BOUND) for side in (self.high, self.low))
        return np.flatnonzero(equal), np.flatnonzero(above), np.flatnonzero(below)

    def labels(self) -> tuple[str, ...]:
        """Names of the rows of A and then of G, in the order of ``fields``. A row with two limits has two names."""
        equal, above, below = self.kinds()
        numbers = range(len(self.low)) if self.numbers is None else self.numbers.tolist()
        names = [self.names[i] if i < len(self.names) else f"row {i}" for i in numbers]
        both = {*above.tolist()} & {*below.tolist()}
        upper = [f"{names[i]} (upper limit)" if i in both else names[i] for i in above.tolist()]
        lower = [f"{names[i]} (lower limit)" if i in both else names[i] for i in below.tolist()]
        return (*(names[i] for i in equal.tolist()), *upper, *lower)

    def fields(self) -> dict[str, Any]:
        """The fields A, b, G and h. Equal limits become a row of A, and every other finite limit becomes a row of G.

        G has the rows with an upper limit first and then, negated, those with a lower one, each in their own order.
        """
        equal, above, below = self.kinds()
        fields: dict[str, Any] = {}
        if len(equal):
            fields |= {"A": self.matrix[equal], "b": self.high[equal]}
        if len(above) or len(below):
            fields["G"] = sparse.csr_array(sparse.vstack([self.matrix[above], -self.matrix[below]]))
            fields["h"] = np.concatenate([self.high[above], -self.low[below]])
        return fields

    def without_bounds(self, kept: NDArray[np.bool_] | None = None) -> tuple[RowLimits, Array, Array]:
        """Split off the rows with a single entry of 1 or −1 as bounds: the other rows, and bounds lb and ub (n,).

        Bounds that would exclude each other stay rows, so that a solve finds the problem infeasible.

        Args:
            kept: (k,) bool, rows that stay rows in any case.
        """
        A, n = self.matrix, self.matrix.shape[1]
        lb, ub = np.full(n, -np.inf), np.full(n, np.inf)
        alone = np.diff(A.indptr) == 1
        single = np.flatnonzero(alone if kept is None else alone & ~kept)
        signs = A.data[A.indptr[single]]
        unit = np.abs(signs) == 1
        single, signs = single[unit], signs[unit]
        column = A.indices[A.indptr[single]]
        np.maximum.at(lb, column, np.where(signs > 0, self.low[single], -self.high[single]))
        np.minimum.at(ub, column, np.where(signs > 0, self.high[single], -self.low[single]))
        crossed = lb > ub
        lb[crossed], ub[crossed] = -np.inf, np.inf
        general = np.ones(len(self.low), dtype=bool)
        general[single[~crossed[column]]] = False
        return RowLimits(A[general], self.low[general], self.high[general], self.names, np.flatnonzero(general)), lb, ub


def read_limits(where: str, name: str, values: Any, absent: float) -> Array:
    """Limits of a source as an array (k,), with infinity for NO_BOUND and more.

    Args:
        where: the name of the source in error messages.
        name: the name of the limits in error messages.
        values: the limits.
        absent: the infinity that means no limit.

    Raises:
        DataError: a limit is NaN, or infinite with the wrong sign.
    """
    array = np.array(values, dtype=float).reshape(-1) + 0.0  # -0.0 becomes 0.0
    array[np.abs(array) >= NO_BOUND] *= np.inf
    bad = np.isnan(array) | (array == -absent)
    if bad.any():
        at = int(np.flatnonzero(bad)[0])
        raise DataError(
            f"{where}: {name}[{at}] is {array[at]:g}; expected a finite number, or {absent:+g} where there is no "
            "limit: correct this entry"
        )
    return array


def read_finite(where: str, name: str, values: Any) -> Array:
    """Numbers of a source as an array (k,), checked to be finite."""
    array = np.array(values, dtype=float).reshape(-1)
    if not np.isfinite(array).all():
        at = int(np.flatnonzero(~np.isfinite(array))[0])
        raise DataError(f"{where}: {name}[{at}] is {array[at]:g}; expected a finite number: correct this entry")
    return array


def to_tensor(values: Array) -> Tensor:
    """A copy of an array as a float64 tensor."""
    return torch.from_numpy(np.array(values, dtype=np.float64))
