"""``SelectionSearch``: the best selections of 0-1 programs that share their rows and differ in their values."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pear.solvers.binary.tightened_rows import EXACT, Array, TightenedRows

Ints = NDArray[np.int64]

PROVEN, SPENT, NOTHING, TIED = 0, 1, 2, 3
"""The outcomes of a search.

PROVEN: the best selection is known. SPENT: the search has visited as many nodes as it may. NOTHING: no selection is
feasible. TIED: two selections have the best value.
"""

_WORK = 300_000_000  # the largest number of nodes times coefficients of a search, which takes a few seconds
_NODES = 500_000  # the largest number of nodes of a search


class SearchOutcomes(NamedTuple):
    """The results of the searches for B programs.

    Attributes:
        z: (B, n) the best selections; NaN without a proof.
        most: (B,) proven upper bounds of the values; NaN without a proof.
        outcome: (B,) PROVEN: the best selection is known. SPENT: the search has visited as many nodes as it may.
            NOTHING: no selection is feasible.
    """

    z: Array
    most: Array
    outcome: NDArray[np.int8]


def selection_search_nodes(rows: TightenedRows) -> Ints:
    """Return an array (1,) with the number of nodes that a search may visit: fewer for more coefficients."""
    return np.array([max(1, min(_NODES, _WORK // rows.A.size))])


class SelectionSearch:
    """A search for the feasible selections of greatest value, with proofs.

    Dynamic programming solves programs with one row of small whole weights. Branch and bound solves all other programs.
    A proven result depends on ``value`` and ``rows`` only: ``start`` saves time, and never decides between selections
    of equal value.

    Args:
        value: (B, n) the item values of B programs.
        rows: the rows of all programs.
        start: (B, n) feasible selections to start from, good ones if possible; None for no start. Programs with whole
            values do not use it.
        budget: (1,) the number of nodes to visit for each program before the program is given up; None for
            ``selection_search_nodes(rows)``. Another thread stops the search by setting this number to 0.

    Example:
        >>> rows = TightenedRows.of(np.array([[3.0, 4.0, 2.0]]), np.array([6.0]))
        >>> SelectionSearch(np.array([[5.0, 6.0, 3.0]]), rows).run().z
        array([[0., 1., 1.]])
    """

    def __init__(
        self, value: Array, rows: TightenedRows, start: Array | None = None, budget: Ints | None = None
    ) -> None:
        self.values, self.rows, self.start = value, rows, start
        self.budget = selection_search_nodes(rows) if budget is None else budget

    def run(self) -> SearchOutcomes:
        """Search for the best selection of every program."""
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
        """Find the best selections by branch and bound."""
        scale = TightenedRows.unit_of(np.abs(self.values).max(1, initial=0.0))
        values = np.ascontiguousarray(self.values / scale[:, None])
        units, close = self._units(scale), _selection_rounding(values)
        units[units < 1e3 * close] = 0.0
        close = np.where(units > 0, 1e-3 * units, close)
        has_start = np.full(len(values), self.start is not None) & (units == 0)
        chosen = np.zeros(values.shape, np.int8) if self.start is None else self.start.astype(np.int8, order="C")
        outcome, most = self._search(values, units, close, chosen, has_start)
        again = np.flatnonzero(outcome == TIED)
        if len(again):
            # Among several best selections, return the one that a search without a start finds.
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
        """Run branch and bound on scaled values. The arguments are those of ``SearchBatch``.

        Returns:
            (B,) the outcomes, and (B,) upper bounds of the scaled values. ``best`` is overwritten by the selections.
        """
        from pear.solvers.binary import branch_and_bound, simplex_dictionary  # numba again

        A, most, outcome = self.rows.A, np.empty(len(values)), np.empty(len(values), np.int8)
        samples = branch_and_bound.SearchBatch(values, units, close, has_start, best, most, outcome)
        limits = branch_and_bound.SearchLimits(A, self.rows.b, self.rows.width, self.budget)
        branch_and_bound.branch_and_bound_all(
            samples,
            limits,
            simplex_dictionary.new_dictionary_tree(*A.shape),
            simplex_dictionary.new_simplex_workspace(*A.shape),
        )
        return outcome, most

    def _units(self, scale: Array) -> Array:
        """Return for each program a number of which all values, divided by ``scale`` (B,), are multiples.

        The result (B,) is 0 for a program whose values are not whole numbers.
        """
        whole = (self.values == np.round(self.values)).all(1) & (np.abs(self.values).max(1, initial=0.0) < EXACT)
        units = np.zeros(len(self.values))
        units[whole] = np.gcd.reduce(self.values[whole].astype(np.int64), axis=1) / scale[whole]
        return units


def _selection_rounding(values: Array) -> Array:
    """Return upper bounds (B,) of the rounding errors in the sums of ``values`` (B, n) during a search."""
    size = np.maximum(1.0, np.abs(values).sum(1))
    return np.asarray(2.0 * np.finfo(np.float64).eps * values.shape[1] * size)
