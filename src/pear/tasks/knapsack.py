"""Knapsacks: the choice of items with the greatest total value whose weights fit the capacities.

Values are forecast.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from pear.compile import thread_pools
from pear.decisions.solve import solve
from pear.errors import ProblemError
from pear.losses.adjacent_vertices import adjacent_vertices
from pear.problem import Problem
from pear.problem.tensor_conversion import ArrayLike, to_batch_tensor, to_float64_tensor
from pear.setting_checks import check_count_setting
from pear.tasks.synthetic_task import Array, SyntheticTask

_LEAST_WEIGHT, _MOST_WEIGHT = 1, 10
_VALUE_SCALE = 5


@dataclass(frozen=True)
class Knapsack(SyntheticTask):
    """A knapsack with one or several capacities. The values of its items are forecast.

    Example:
        >>> from pear.tasks import random_knapsack
        >>> X, C = random_knapsack(items=10, dimensions=2).samples(100, degree=4)
        >>> X.shape, C.shape, bool((C == C.round()).all())
        (torch.Size([100, 5]), torch.Size([100, 10]), True)

    Attributes:
        seed: the seed of ``samples`` if the user passes no seed.
        jobs: the number of threads of ``decide``; None for one on each core, or a single one in a worker process.
    """

    columns: ClassVar[str] = "items"

    seed: int = 0
    jobs: int | None = field(default=None, compare=False)

    @property
    def weights(self) -> Tensor:
        """(dimensions, items) weights of the items."""
        assert self.problem.G is not None
        return self.problem.G

    @property
    def capacity(self) -> Tensor:
        """(dimensions,) capacities."""
        assert self.problem.h is not None
        return self.problem.h

    def _random(self, seed: int | None) -> np.random.RandomState:
        """Return a random state that is ready to draw samples.

        As in ``random_knapsack``, numbers for the weights are drawn from it first, even if the user has given weights.
        """
        random = np.random.RandomState(self.seed if seed is None else seed)
        _draw_knapsack_weights(random, *self.weights.shape)
        return random

    def _costs(self, polynomial: Array) -> Array:
        """Return values of items, the whole numbers ``⌈5 c⌉``, from polynomial costs c (N, n)."""
        return np.ceil(_VALUE_SCALE * polynomial)

    def with_capacity(self, ratio: float) -> Knapsack:
        """Return a knapsack of the same items, with capacities of ``ratio`` times the total weight in each dimension.

        Raises:
            ProblemError: the ratio is negative or not finite.

        Example:
            >>> from pear.tasks import knapsack
            >>> knapsack([[3.0, 4.0, 2.0]], capacity=6.0).with_capacity(0.5).capacity
            tensor([4.5000], dtype=torch.float64)
        """
        return _make_knapsack(self.weights, _check_capacity_ratio(ratio) * self.weights.sum(1), self.seed, self.jobs)

    def decide(self, cost: Any, Q: Any = None) -> Tensor:
        """Return the items to take, (B, n): 1 for taken items, 0 for others.

        The decisions are proven optimal. Equal samples are solved once, and different samples in parallel.

        Args:
            cost: (B, n) values of the items.
            Q: must be None; a curvature raises an error, because integer problems have a linear objective.

        Raises:
            SolveError: a value is not finite, or an optimum could not be proven; the message names the samples.
        """
        if Q is not None:
            return super().decide(cost, Q)
        values = self._checked(cost)
        with thread_pools.limit_threads(self.jobs):
            return solve(self.problem, values).x

    def adjacent(self, z: Tensor) -> list[Tensor]:
        """Return the adjacent vertices of given vertices of the relaxation.

        Args:
            z: (B, n) vertices, as ``decide_relaxed`` returns them for costs in float64.

        Returns:
            For each row of ``z`` a tensor (k, n) of its k adjacent vertices, in the dtype of ``z``.

        Example:
            >>> from pear.tasks import knapsack
            >>> task = knapsack([[3.0, 4.0, 2.0]], capacity=6.0)
            >>> task.adjacent(task.decide_relaxed([[5.0, 4.0, 1.0]]))[0].tolist()
            [[0.6666666666666667, 1.0, 0.0], [1.0, 0.25, 1.0], [1.0, 0.0, 0.0]]
        """
        rows = to_batch_tensor(z).detach()
        G, h = self.weights.numpy(), self.capacity.numpy()
        lb, ub = np.zeros(self.problem.n), np.ones(self.problem.n)

        @cache
        def neighbours(*point: float) -> Tensor:
            return torch.from_numpy(adjacent_vertices(np.array(point), G, h, lb, ub)).to(rows)

        return [neighbours(*point) for point in rows.cpu().double().tolist()]


def knapsack(weights: ArrayLike, capacity: ArrayLike) -> Knapsack:
    """Return a knapsack: the items z, 0 or 1 each, of the greatest total value with ``weights z ≤ capacity``.

    The problem maximises, and its costs are the values of the items. ``PEARLoss`` trains on the relaxation 0 ≤ z ≤ 1.
    ``normalized_regret`` is the regret of integer decisions.

    Args:
        weights: (k, n) weights of n items in k dimensions, or (n,) for one dimension; at least 0.
        capacity: (k,) capacities, or a number for all dimensions; at least 0.

    Example:
        >>> import pear
        >>> task = pear.tasks.knapsack([[3.0, 4.0, 2.0]], capacity=6.0)
        >>> task.problem
        Problem(max, n=3, 1 inequality, bounds, 3 integer)
        >>> task.decide([[5.0, 6.0, 3.0]])
        tensor([[0., 1., 1.]], dtype=torch.float64)
    """
    G = to_float64_tensor("weights", weights)
    G = G[None] if G.ndim == 1 else G
    if G.ndim != 2:
        raise ProblemError(f"weights must have shape (k, n), or (n,) for one dimension; got {tuple(G.shape)}")
    h = to_float64_tensor("capacity", capacity)
    if h.ndim > 1 or h.numel() not in (1, len(G)):
        raise ProblemError(
            f"capacity must be a number or have shape ({len(G)},), one for each row of weights; got {tuple(h.shape)}"
        )
    if not bool((G >= 0).all()) or not bool((h >= 0).all()):
        raise ProblemError("weights and capacity must be numbers of at least 0, so that leaving every item is allowed")
    return _make_knapsack(G, h.reshape(-1).expand(len(G)))


def random_knapsack(
    items: int = 100, dimensions: int = 5, capacity_ratio: float = 0.5, seed: int = 0, jobs: int | None = None
) -> Knapsack:
    """Return a random knapsack, whose weights are whole numbers from 1 to 10.

    Args:
        items: n, the number of items.
        dimensions: k, the number of capacities.
        capacity_ratio: each capacity as a share of the total weight in its dimension.
        seed: the seed of the ``numpy.random.RandomState`` that draws the weights, and then the samples.
        jobs: the number of threads of ``decide``; None for one on each core, or a single one in a worker process.

    Example:
        >>> from pear.tasks import random_knapsack
        >>> task = random_knapsack(items=4, dimensions=2, seed=1)
        >>> task.name, task.problem
        ('knapsack_4_items', Problem(max, n=4, 2 inequalities, bounds, 4 integer))
    """
    items, dimensions = check_count_setting("items", items), check_count_setting("dimensions", dimensions)
    weights = _draw_knapsack_weights(np.random.RandomState(seed), dimensions, items)
    return _make_knapsack(weights, _check_capacity_ratio(capacity_ratio) * weights.sum(1), seed, jobs)


def _draw_knapsack_weights(random: np.random.RandomState, dimensions: int, items: int) -> Tensor:
    """Return random whole-numbered weights (dimensions, items)."""
    return torch.from_numpy(random.randint(_LEAST_WEIGHT, _MOST_WEIGHT + 1, (dimensions, items)).astype(np.float64))


def _check_capacity_ratio(ratio: float) -> float:
    """Return a capacity ratio as a float. Raise ``ProblemError`` if it is negative or not finite."""
    if not 0 <= ratio < float("inf"):
        raise ProblemError(f"a capacity ratio must be a number of at least 0, the share of the total; got {ratio!r}")
    return float(ratio)


def _make_knapsack(weights: Tensor, capacity: Tensor, seed: int = 0, jobs: int | None = None) -> Knapsack:
    """Return a knapsack with weights (k, n) and capacities (k,)."""
    problem = Problem(G=weights, h=capacity, lb=0.0, ub=1.0, sense="max", integer=True)
    return Knapsack(f"knapsack_{weights.shape[1]}_items", problem, seed, jobs)
