"""A budget of its own for every instance: continuous decisions by sorting, whole ones by compiled searches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from pear.decisions import solve
from pear.problem import Problem
from pear.tasks.binary import Rows, Search
from pear.tasks.integer import IntegerOracle

Array = NDArray[np.float64]
Rowset = NDArray[np.int64]


def fill_by_ratio(values: Array, weights: Array, budget: Array, spend_all: bool) -> Array:
    """(B, n) the best fractions, ``max v·z, w·z ≤ budget, 0 ≤ z ≤ 1``: items of the greatest v/w first.

    Args:
        values: (B, n) v, of any sign.
        weights: (B, n) w > 0.
        budget: (B,) at least 0; at most the sum of the weights where all is spent.
        spend_all: whether ``w·z = budget``, so that items of no value are taken, too.

    Example:
        >>> fill_by_ratio(np.array([[6.0, 5.0, -1.0]]), np.array([[2.0, 2.0, 1.0]]), np.array([3.0]), spend_all=False)
        array([[1. , 0.5, 0. ]])
    """
    order = np.argsort(-values / weights, axis=1, kind="stable")
    sorted_weights = np.take_along_axis(weights, order, 1)
    before = np.cumsum(sorted_weights, 1) - sorted_weights
    share = np.clip((budget[:, None] - before) / sorted_weights, 0.0, 1.0)
    if not spend_all:
        share[np.take_along_axis(values, order, 1) <= 0] = 0.0
    z = np.empty_like(share)
    np.put_along_axis(z, order, share, 1)
    return z


@dataclass(frozen=True)
class Budgets:
    """N budgets and what their items weigh, ready for whole decisions.

    Attributes:
        weights: (N, n) positive.
        budget: (N,).
        units: (N, n) whole weights for dynamic programming.
        capacities: (N,) in the same units; −1 where there are none.
    """

    weights: Array
    budget: Array
    units: NDArray[np.int64]
    capacities: NDArray[np.int64]

    @classmethod
    def of(cls, weights: Array, budget: Array) -> Budgets:
        """From weights (N, n) and budgets (N,)."""
        units, capacities = np.zeros(weights.shape, np.int64), np.full(len(weights), -1)
        for i, (own, most) in enumerate(zip(weights, budget, strict=True)):
            rows = Rows.of(own[None], most[None])
            if rows.weights is not None:
                units[i], capacities[i] = rows.weights, rows.capacity
        return cls(weights, budget, units, capacities)

    def decide(self, values: Array, rows: Rowset) -> Array:
        """(B, n) 0 or 1, proven best, for values (B, n) under the budgets ``rows`` (B,)."""
        from pear.tasks.dynamic import fill_each  # numba, which takes a moment to import

        chosen = np.zeros(values.shape, np.int8)
        quick = np.flatnonzero(self.capacities[rows] >= 0)
        part = chosen[quick]
        fill_each(np.ascontiguousarray(values[quick]), self.units, self.capacities, rows[quick], part)
        chosen[quick] = part
        z = chosen.astype(np.float64)
        for i in np.flatnonzero(self.capacities[rows] < 0):
            z[i] = self._search(values[i], int(rows[i]))
        return z

    def decide_worst(self, values: Array, bills: Array, rows: Rowset) -> Array:
        """(B, n) of all decisions that are best under ``values`` the one that earns least under ``bills``."""
        z = np.empty(values.shape)
        for i, row in enumerate(rows):
            pair = (torch.from_numpy(x[i][None]) for x in (values, bills))
            z[i] = IntegerOracle(self._problem(int(row)), jobs=1).worst(*pair).numpy()[0]
        return z

    def _search(self, value: Array, row: int) -> Array:
        """Branch and bound, or a solver to a gap of zero where that gives up."""
        found = Search(value, self.weights[row][None], self.budget[row][None]).run()
        if found is not None:
            return found
        return solve(self._problem(row), torch.from_numpy(value)[None]).x[0].numpy()

    def _problem(self, row: int) -> Problem:
        own = self.weights[row][None], self.budget[row][None]
        return Problem(G=own[0], h=own[1], lb=0.0, ub=1.0, sense="max", integer=True)
