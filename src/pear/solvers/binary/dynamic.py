"""One row of small whole weights: dynamic programming over what is left of the capacity, compiled."""

from __future__ import annotations

import numpy as np
from numba import njit

from pear.solvers.active_set.compile import guarded
from pear.solvers.binary.dictionary import Array, Bytes, Ints


@guarded
@njit(nogil=True)
def fill_all(values: Array, weights: Ints, capacity: int, chosen: Bytes, best: Array) -> None:
    """Write the selection of greatest value for each row of ``values`` to ``chosen``, and that value to ``best``.

    ``most[j, c]`` is the best that the first j items earn in room c. Where an item gains nothing it is left out.

    Args:
        values: (B, n) of any sign.
        weights: (n,) at least 0.
        capacity: at least 0.
        chosen: (B, n) overwritten.
        best: (B,) overwritten.
    """
    n = weights.shape[0]
    most = np.zeros((n + 1, capacity + 1))
    for s in range(values.shape[0]):
        for j in range(n):
            w, v = weights[j], values[s, j]
            for c in range(min(w, capacity + 1)):
                most[j + 1, c] = most[j, c]
            for c in range(w, capacity + 1):
                most[j + 1, c] = max(most[j, c], most[j, c - w] + v)
        c = capacity
        best[s] = most[n, c]
        for j in range(n - 1, -1, -1):
            chosen[s, j] = most[j + 1, c] > most[j, c]
            if chosen[s, j]:
                c -= weights[j]


@guarded
@njit(nogil=True)
def fill_each(values: Array, weights: Ints, capacities: Ints, rows: Ints, chosen: Bytes) -> None:
    """As ``fill_all``, where every row of ``values`` (B, n) has weights and a capacity of its own.

    Args:
        values: (B, n) of any sign.
        weights: (N, n) at least 0.
        capacities: (N,) at least 0.
        rows: (B,) which of those N belong to each row of ``values``.
        chosen: (B, n) overwritten.
    """
    best = np.empty(1)
    for s in range(values.shape[0]):
        fill_all(values[s : s + 1], weights[rows[s]], capacities[rows[s]], chosen[s : s + 1], best)
