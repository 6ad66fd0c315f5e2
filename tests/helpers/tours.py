"""Round trips through a few cities, in a list of all of them: decisions that no small program describes."""

from __future__ import annotations

import itertools

import numpy as np

import pear


class Tours:
    """The shortest round trip through ``count`` cities, found by comparing all of them.

    Attributes:
        edges: the n pairs of cities.
        listed: (tours, n) 0 or 1: the edges of each round trip.
        degrees: a relaxation, in which each city has two edges.
        asked: the number of samples that were decided.
    """

    def __init__(self, count: int = 5) -> None:
        self.edges = list(itertools.combinations(range(count), 2))
        orders = [(0, *rest) for rest in itertools.permutations(range(1, count)) if rest[0] < rest[-1]]
        number = {edge: i for i, edge in enumerate(self.edges)}
        self.listed = np.zeros((len(orders), len(self.edges)))
        for row, order in zip(self.listed, orders, strict=True):
            for one, next_one in zip(order, (*order[1:], 0), strict=True):
                row[number[min(one, next_one), max(one, next_one)]] = 1.0
        meets = np.array([[float(city in edge) for edge in self.edges] for city in range(count)])
        self.degrees = pear.Problem(A=meets, b=np.full(count, 2.0), lb=0.0, ub=1.0)
        self.asked = 0

    def decide(self, cost: np.ndarray) -> np.ndarray:
        """Return the best round trip (n,) for one sample."""
        self.asked += 1
        return self.listed[(self.listed @ cost).argmin()]

    def decide_all(self, costs: np.ndarray) -> np.ndarray:
        """Return the best round trips (B, n) for a batch."""
        self.asked += len(costs)
        return self.listed[(costs @ self.listed.T).argmin(1)]

    def regret(self, predicted: np.ndarray, true: np.ndarray) -> np.ndarray:
        """Return the regret (B,), computed without the library."""
        chosen, best = (self.listed[(c @ self.listed.T).argmin(1)] for c in (predicted, true))
        return (true * (chosen - best)).sum(1)

    def samples(self, count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Return features (count, 3), and costs (count, n) that are no linear function of them."""
        draw = np.random.default_rng(seed)
        features, weights = draw.normal(size=(count, 3)), draw.normal(size=(3, len(self.edges)))
        return features, 2.0 + (1 + features @ weights / 3) ** 2 + 0.1 * draw.normal(size=(count, len(self.edges)))
