"""A budget of its own for every instance: tables prepared once, filled for all values in one compiled pass."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pear.solvers.binary.tightened_rows import Array, TightenedRows

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Budgets:
    """N budgets and what their items weigh, as whole numbers. A plan of many programs at once is what makes it fast.

    Attributes:
        units: (N, n) whole weights.
        capacities: (N,) in the same units; −1 where the weights are not whole or the table would be large.
    """

    units: Ints
    capacities: Ints

    @classmethod
    def of(cls, weights: Array, budget: Array) -> Budgets:
        """From weights (N, n) and budgets (N,)."""
        units, capacities = np.zeros(weights.shape, np.int64), np.full(len(weights), -1)
        for i, (own, most) in enumerate(zip(weights, budget, strict=True)):
            rows = TightenedRows.of(own[None], most[None])
            if rows.weights is not None:
                units[i], capacities[i] = rows.weights, rows.capacity
        return cls(units, capacities)

    def fill(self, values: Array, rows: Ints) -> Array:
        """(B, n) 0 or 1, proven best, for values (B, n) under the budgets ``rows`` (B,); NaN without a table."""
        from pear.solvers.binary import dynamic  # numba, which takes a moment to import

        tabled = np.flatnonzero(self.capacities[rows] >= 0)
        z = np.full(values.shape, np.nan)
        z[tabled] = dynamic.fill(values[tabled], self.units, self.capacities, rows[tabled]).chosen
        return z
