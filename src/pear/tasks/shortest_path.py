"""The cheapest path through a grid, or any directed acyclic graph, whose costs are forecast."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pear.errors import ProblemError
from pear.geometry.solve import fail
from pear.losses.regret import check_pair
from pear.problem import Problem
from pear.problem.convert import as_batch
from pear.solvers.solution import Status
from pear.tasks.costs import polynomial_costs
from pear.tasks.paths import Graph
from pear.tasks.task import Samples, Task

_TINY = 1e-7  # as in pear.normalized_regret


@dataclass(frozen=True)
class ShortestPath(Task):
    """A path from the first node to the last: one unit of flow, z ≥ 0, the cost of every arc forecast.

    Attributes:
        graph: the arcs in the order of the variables.
    """

    graph: Graph

    def samples(
        self,
        count: int = 2000,
        degree: int = 8,
        noise: float = 0.5,
        seed: int = 0,
        features: int = 5,
        dtype: torch.dtype = torch.float32,
    ) -> Samples:
        """Synthetic features and costs, ``c = ((Bx/√p + 3)^degree + 1) / 3.5^degree · ε``.

        Args:
            count: N, number of samples.
            degree: how far the costs are from what a linear model can say; 1 is linear.
            noise: half-width of the factor ε around 1.
            seed: of a ``numpy.random.RandomState``; the same seed gives the same data everywhere.
            features: p, features per sample.
            dtype: of the tensors; drawn in float64, then rounded.

        Returns:
            Features (N, p) and costs (N, n).

        Example:
            >>> from pear.tasks import shortest_path
            >>> X, C = shortest_path((5, 5)).samples(100, degree=4)
            >>> X.shape, C.shape
            (torch.Size([100, 5]), torch.Size([100, 40]))
        """
        x, c = polynomial_costs(np.random.RandomState(seed), count, self.problem.n, degree, noise, features)
        return Samples(torch.from_numpy(x).to(dtype), torch.from_numpy(c).to(dtype))

    def decide(self, cost: Any) -> Tensor:
        """(B, n) the arcs of each sample's cheapest path, exact and without a solver.

        Args:
            cost: (B, n), of any sign.

        Returns:
            0 or 1 for every arc, in the dtype of ``cost``.
        """
        costs = as_batch(cost).detach()
        if costs.shape[1] != self.problem.n:
            raise ProblemError(f"cost must have one column for each of the {self.problem.n} arcs; got {costs.shape[1]}")
        unusable = ~costs.isfinite().all(1)
        fail(torch.where(unusable, int(Status.NOT_FINITE), int(Status.SOLVED)), "raise", "their cheapest path")
        return self.graph.cheapest(costs.double()).to(costs.dtype)

    def normalized_regret(self, predicted: Any, true: Any, Q: Any = None, true_Q: Any = None) -> float:
        """``Σ c·(z*(ĉ) − z*(c)) / (Σ |c·z*(c)| + 1e-7)``, by dynamic programming over the whole batch.

        Args:
            predicted: (B, n) predicted costs ĉ.
            true: (B, n) true costs c.
            Q: with a curvature the decision is no longer one path, and a solver is called.
            true_Q: likewise.

        Example:
            >>> from pear.tasks import shortest_path
            >>> task = shortest_path((2, 2))
            >>> round(task.normalized_regret([[2.0, 1.0, 1.0, 1.0]], [[1.0, 2.0, 1.0, 1.0]]), 6)
            0.5
        """
        if Q is not None or true_Q is not None:
            return super().normalized_regret(predicted, true, Q, true_Q)
        costs = as_batch(true).detach().double()
        forecast = as_batch(predicted)
        check_pair(forecast, costs)
        paid, ideal = ((costs * self.decide(c).double()).sum(1) for c in (forecast, costs))
        return float((paid - ideal).sum() / (ideal.abs().sum() + _TINY))


def shortest_path(grid: tuple[int, int] = (5, 5), arcs: Iterable[tuple[int, int]] | None = None) -> ShortestPath:
    """The cheapest path from corner to corner of a grid, or through any directed acyclic graph.

    The problem has one variable for each arc, flow balance for every node, z ≥ 0 and no upper bound. The arcs of a grid
    come row by row: the row's rightward arcs, then its downward arcs.

    Args:
        grid: rows and columns of nodes.
        arcs: (tail, head) pairs instead of a grid. Nodes are numbered from 0 so that every arc leads to a higher
            number; the path leads from 0 to the highest.

    Example:
        >>> from pear.tasks import shortest_path
        >>> task = shortest_path((5, 5))
        >>> task.name, task.problem
        ('shortest_path_5x5', Problem(min, n=40, 25 equalities, bounds))
        >>> shortest_path(arcs=[(0, 1), (0, 2), (1, 2)]).decide([[1.0, 5.0, 2.0]])
        tensor([[1., 0., 1.]], dtype=torch.float64)
    """
    if arcs is None:
        if len(grid) != 2:
            raise ProblemError(f"grid must be (rows, columns); got {grid!r}. Pass a list of arcs as arcs=")
        graph, name = Graph.grid(*grid), f"shortest_path_{grid[0]}x{grid[1]}"
    else:
        graph = Graph.from_arcs(arcs)
        name = f"shortest_path_{graph.nodes}_nodes"
    supply = torch.zeros(graph.nodes, dtype=torch.float64)
    supply[0], supply[-1] = 1.0, -1.0
    return ShortestPath(name, Problem(A=graph.incidence(), b=supply, lb=0.0, sense="min"), graph)
