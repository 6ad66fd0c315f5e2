"""Round trips through a few cities, in a list of all of them: decisions that no small program describes."""

from __future__ import annotations

import numpy as np

from pear_lab.tasks.public.routes import ListedRoutes, all_tour_routes, route_edges, tour_route_oracle


class Tours:
    """The shortest round trip through ``count`` cities, found by comparing all of them.

    Attributes:
        edges: the n pairs of cities.
        listed: (tours, n) 0 or 1: the edges of each round trip.
        degrees: a relaxation, in which each city has two edges.
        asked: the number of samples that were decided.
    """

    def __init__(self, count: int = 5) -> None:
        self.edges = route_edges(count)
        self.listed = all_tour_routes(count)
        self.cheapest = ListedRoutes(self.listed)
        self.degrees = tour_route_oracle(count).relaxation
        self.asked = 0

    def decide(self, cost: np.ndarray) -> np.ndarray:
        """Return the best round trip (n,) for one sample."""
        self.asked += 1
        return self.cheapest(cost[None])[0]

    def decide_all(self, costs: np.ndarray) -> np.ndarray:
        """Return the best round trips (B, n) for a batch."""
        self.asked += len(costs)
        return self.cheapest(costs)

    def regret(self, predicted: np.ndarray, true: np.ndarray) -> np.ndarray:
        """Return the regret (B,), computed without the library."""
        return (true * (self.cheapest(predicted) - self.cheapest(true))).sum(1)

    def samples(self, count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Return features (count, 3), and costs (count, n) that are no linear function of them."""
        draw = np.random.default_rng(seed)
        features, weights = draw.normal(size=(count, 3)), draw.normal(size=(3, len(self.edges)))
        return features, 2.0 + (1 + features @ weights / 3) ** 2 + 0.1 * draw.normal(size=(count, len(self.edges)))
