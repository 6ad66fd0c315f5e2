"""Exact 0-1 selections for many values under the same rows, by the compiled method that suits the rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pear.solvers.binary.tightened_rows import EXACT, Array, TightenedRows, power_of_two

Ints = NDArray[np.int64]

PROVEN, SPENT, NOTHING, TIED = 0, 1, 2, 3
"""How a search ends.

PROVEN: the best selection is known. SPENT: the budget of nodes is used up. NOTHING: no selection is feasible. TIED: two
selections have the best value.
"""

_WORK = 300_000_000  # coefficients that a search looks at, node by node, before it gives up: a few seconds
_NODES = 500_000  # nodes that it looks at, at most


class SearchOutcomes(NamedTuple):
    """The results of the searches for B programs.

    Attributes:
        z: (B, n) selections of 0 and 1; NaN without a proof.
        most: (B,) proven upper bounds of the value; NaN without a proof.
        outcome: (B,) PROVEN, SPENT or NOTHING.
    """

    z: Array
    most: Array
    outcome: NDArray[np.int8]


def nodes_of_search(rows: TightenedRows) -> Ints:
    """Return (1,) the number of nodes that a search may visit: fewer where each node takes longer."""
    return np.array([max(1, min(_NODES, _WORK // rows.A.size))])


class SelectionSearch:
    """A search for the feasible selections of greatest value, each with a proof.

    Dynamic programming solves programs with one row of small whole weights. Branch and bound solves all others. The
    result depends on value and rows alone: ``start`` saves time, and never decides between selections of equal value.

    Args:
        value: (B, n) values v of B programs.
        rows: the rows that they share.
        start: (B, n) feasible selections to start from, good ones if possible, or None.
        budget: (1,) the number of nodes to visit for each program before it is given up; ``nodes_of_search(rows)`` by
            default. Setting it to 0 stops a search that runs in another thread.

    Example:
        >>> rows = TightenedRows.of(np.array([[3.0, 4.0, 2.0]]), np.array([6.0]))
        >>> Search(np.array([[5.0, 6.0, 3.0]]), rows).run().z
        array([[0., 1., 1.]])
    """

    def __init__(
        self, value: Array, rows: TightenedRows, start: Array | None = None, budget: Ints | None = None
    ) -> None:
        self.values, self.rows, self.start = value, rows, start
        self.budget = nodes_of_search(rows) if budget is None else budget

    def run(self) -> SearchOutcomes:
        """Search for the best selections."""
        if self.budget[0] == 0:
            nothing = np.full(self.values.shape, np.nan)
            return SearchOutcomes(nothing, nothing.sum(1), np.full(len(nothing), SPENT, np.int8))
        if self.rows.weights is None:
            return self._branch()
        from pear.solvers.binary import dynamic_programming  # numba, which takes a moment to import

        weights, capacity = self.rows.weights[None], np.array([self.rows.capacity])
        found = dynamic_programming.solve_by_dynamic_programming(
            self.values, weights, capacity, np.zeros(len(self.values), np.int64)
        )
        return SearchOutcomes(found.chosen.astype(np.float64), found.best, np.zeros(len(found.best), np.int8))

    def _branch(self) -> SearchOutcomes:
        """Search by branch and bound; a start saves time, and does not change which selection is returned."""
        scale = power_of_two(np.abs(self.values).max(1, initial=0.0))
        values = np.ascontiguousarray(self.values / scale[:, None])
        units, close = self._units(scale), _rounding_of_sums(values)
        units[units < 1e3 * close] = 0.0
        close = np.where(units > 0, 1e-3 * units, close)
        has_start = np.full(len(values), self.start is not None) & (units == 0)
        chosen = np.zeros(values.shape, np.int8) if self.start is None else self.start.astype(np.int8, order="C")
        outcome, most = self._search(values, units, close, chosen, has_start)
        again = np.flatnonzero(outcome == TIED)
        if len(again):
            # Of several best selections take the one that a search without a start finds: a start must not decide.
            part, no_start = chosen[again], np.zeros(len(again), bool)
            outcome[again], most[again] = self._search(values[again], units[again], close[again], part, no_start)
            chosen[again] = part
        proven = outcome == PROVEN
        return SearchOutcomes(
            np.where(proven[:, None], chosen, np.nan), np.where(proven, most * scale, np.nan), outcome
        )

    def _search(
        self, values: Array, units: Array, close: Array, best: NDArray[np.int8], has_start: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int8], Array]:
        """Return (B,) outcomes and bounds for the scaled ``values``; ``best`` is overwritten."""
        from pear.solvers.binary import branch_and_bound, simplex_dictionary  # numba again

        A, most, outcome = self.rows.A, np.empty(len(values)), np.empty(len(values), np.int8)
        samples = branch_and_bound.SearchBatch(values, units, close, has_start, best, most, outcome)
        limits = branch_and_bound.SharedRows(A, self.rows.b, self.rows.width, self.budget)
        branch_and_bound.search_all(
            samples, limits, simplex_dictionary.new_tree(*A.shape), simplex_dictionary.new_work(*A.shape)
        )
        return outcome, most

    def _units(self, scale: Array) -> Array:
        """Return (B,) a number of which all values of a program, divided by ``scale``, are multiples.

        It is 0 where the values are not whole numbers.
        """
        whole = (self.values == np.round(self.values)).all(1) & (np.abs(self.values).max(1, initial=0.0) < EXACT)
        units = np.zeros(len(self.values))
        units[whole] = np.gcd.reduce(self.values[whole].astype(np.int64), axis=1) / scale[whole]
        return units


def _rounding_of_sums(values: Array) -> Array:
    """Return (B,) an upper bound of the rounding errors in the sums of a search."""
    size = np.maximum(1.0, np.abs(values).sum(1))
    return np.asarray(2.0 * np.finfo(np.float64).eps * values.shape[1] * size)
