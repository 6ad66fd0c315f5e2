"""One row of small whole weights: dynamic programming over what is left of the capacity, compiled."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(cache=True, nogil=True)
def fill_all(values: NDArray[np.float64], weights: NDArray[np.int64], capacity: int, chosen: NDArray[np.int8]) -> None:
    """Write the selection of greatest value for each row of ``values`` (B, n) to ``chosen`` (B, n).

    ``most[c]`` is the best that the items seen so far earn in room c. Equal values leave an item out.

    Args:
        values: of any sign.
        weights: (n,) at least 0.
        capacity: at least 0.
        chosen: overwritten.
    """
    B, n = values.shape
    most, before = np.empty(capacity + 1), np.empty(capacity + 1)
    taken = np.zeros((n, capacity + 1), np.int8)
    for s in range(B):
        for c in range(capacity + 1):
            most[c] = 0.0
        for j in range(n):
            w, v = weights[j], values[s, j]
            for c in range(capacity + 1):
                before[c] = most[c]
            for c in range(min(w, capacity + 1)):
                taken[j, c] = 0
            for c in range(w, capacity + 1):
                value = before[c - w] + v
                taken[j, c] = value > before[c]
                most[c] = max(value, before[c])
        c = capacity
        for j in range(n - 1, -1, -1):
            chosen[s, j] = taken[j, c]
            if taken[j, c]:
                c -= weights[j]
