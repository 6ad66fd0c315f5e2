"""A budget of its own for every instance: continuous decisions by sorting, whole ones by dynamic programming."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pear.decisions.solve import decide_worst, fail, solve
from pear.optimality.point import Status
from pear.problem import Problem
from pear.solvers.binary import budgets

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
        tables: for dynamic programming.
    """

    weights: Array
    budget: Array
    tables: budgets.Budgets

    @classmethod
    def of(cls, weights: Array, budget: Array) -> Budgets:
        """From weights (N, n) and budgets (N,)."""
        return cls(weights, budget, budgets.Budgets.of(weights, budget))

    def decide(self, values: Array, rows: Rowset) -> Array:
        """(B, n) 0 or 1, proven best, for values (B, n) under the budgets ``rows`` (B,)."""
        z = self.tables.fill(values, rows)
        left = np.flatnonzero(np.isnan(z).any(1))
        if len(left):
            z[left] = solve(self._problem(rows[left]), torch.from_numpy(values[left])).x.numpy()
        return z

    def decide_worst(self, values: Array, bills: Array, rows: Rowset) -> Array:
        """(B, n) of all decisions that are best under ``values`` the one that earns least under ``bills``."""
        pair = (torch.from_numpy(x) for x in (values, bills))
        return decide_worst(self._problem(rows), *pair).numpy()

    def _problem(self, rows: Rowset) -> Problem:
        G, h = self.weights[rows][:, None], self.budget[rows][:, None]
        return Problem(G=G, h=h, lb=0.0, ub=1.0, sense="max", integer=True)


def check_finite(values: Tensor) -> None:
    """Raise SolveError for rows with NaN or infinity."""
    unusable = ~values.isfinite().all(1)
    fail(torch.where(unusable, int(Status.NOT_FINITE), int(Status.SOLVED)), "raise", "the integer problem")
