"""Dynamic programming over the remaining capacity, for programs with one row of small whole weights. Compiled."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from pear.compile import jit
from pear.compile.jit import refer, span
from pear.solvers.binary.simplex_dictionary import Array, Bytes, Ints


class DynamicPrograms(NamedTuple):
    """B programs ``max values·z, weights·z ≤ capacity`` for 0-1 variables z, and their solutions.

    Attributes:
        values: (B, n) values of any sign.
        weights: (N, n) weights ≥ 0 of N different rows.
        capacities: (N,) capacities ≥ 0.
        rows: (B,) the row of each program in ``weights`` and ``capacities``.
        chosen: (B, n) overwritten by the selections of greatest value.
        best: (B,) overwritten by the values of these selections.
        most: (n + 1, 1 + greatest capacity) zeros. ``most[j, c]`` becomes the best value of the first j items with
            capacity c, for one program after the other.
    """

    values: Array
    weights: Ints
    capacities: Ints
    rows: Ints
    chosen: Bytes
    best: Array
    most: Array


def solve_by_dynamic_programming(values: Array, weights: Ints, capacities: Ints, rows: Ints) -> DynamicPrograms:
    """Find the selections of greatest value; see ``DynamicPrograms`` for the arguments and the result."""
    B, n = values.shape
    most = np.zeros((n + 1, 1 + max(capacities[rows].tolist(), default=0)))  # of few numbers faster than numpy's max
    chosen, best = np.empty((B, n), np.int8), np.empty(B)
    found = DynamicPrograms(np.ascontiguousarray(values), weights, capacities, rows, chosen, best, most)
    run_dynamic_programming(found)
    return found


@partial(jit.entry, any_order=False)
def run_dynamic_programming(programs: DynamicPrograms) -> None:
    """Write the selections of greatest value into ``programs``. An item that does not raise the value is left out."""
    f = refer(programs)
    items, most = len(f.most) - 1, f.most
    for s in span(len(f.values)):
        row, values, chosen = f.rows[s], f.values[s], f.chosen[s]
        weights, capacity = f.weights[row], f.capacities[row]
        for j in span(items):
            without, room = most[j], min(weights[j], capacity + 1)
            for c in span(room):
                most[j + 1, c] = without[c]
            for c in span(room, capacity + 1):
                taken = without[c - room] + values[j]
                most[j + 1, c] = taken if taken > without[c] else without[c]
        c = capacity
        f.best[s] = most[items, c]
        for k in span(items):
            j = items - 1 - k
            taken_here = most[j + 1, c] > most[j, c]
            chosen[j] = 1 if taken_here else 0
            if taken_here:
                c -= weights[j]
