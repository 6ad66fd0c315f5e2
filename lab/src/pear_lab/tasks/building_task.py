"""Choosing properties to build within a budget. Sales prices are predicted; construction costs are known."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pear.decisions.solve import solve
from pear.errors import ProblemError
from pear.losses.adjacent_vertices import adjacent_vertices
from pear.problem import Problem
from pear.problem.tensor_conversion import to_batch_tensor
from pear.solvers.binary.tightened_rows import Array, TightenedRows
from pear.tasks.task import Task, check_finite_costs
from pear_lab.data.building_data import BuildingData, load_building
from pear_lab.tasks.splits import TaskSplit, split_instances

Version = Literal["inequality", "equality"]
Keys = Sequence[Hashable] | Tensor | None
Ints = NDArray[np.int64]

FOLDS = 5


@dataclass(frozen=True)
class Building(Task):
    """N instances of choosing among n properties, each instance with its own construction costs and budget.

    Methods that take sales prices also take ``keys``, the instance of each row of prices. If ``keys`` are omitted,
    row i belongs to instance i.

    Attributes:
        version: "inequality" if properties are built as a whole and spending is at most the budget; "equality" if
            properties may be built in part and the whole budget is spent.
    """

    version: Version = "inequality"

    @property
    def weights(self) -> Tensor:
        """The construction costs (N, n)."""
        rows = self.problem.A if self.version == "equality" else self.problem.G
        assert rows is not None
        return rows[:, 0]

    @property
    def budget(self) -> Tensor:
        """The budget of each instance (N,)."""
        limits = self.problem.b if self.version == "equality" else self.problem.h
        assert limits is not None
        return limits[:, 0]

    @cached_property
    def _whole_units(self) -> tuple[Ints, Ints]:
        """Integer costs (N, n) and budgets (N,) for dynamic programming.

        A budget of −1 marks an instance that dynamic programming cannot solve, because its costs are not whole numbers
        or its table would be too large.
        """
        units, capacities = np.zeros(self.weights.shape, np.int64), np.full(len(self.weights), -1)
        for i, (own, most) in enumerate(zip(self.weights.numpy(), self.budget.numpy(), strict=True)):
            rows = TightenedRows.of(own[None], most[None])
            if rows.weights is not None:
                units[i], capacities[i] = rows.weights, rows.capacity
        return units, capacities

    def decide(self, cost: Any, Q: Any = None, keys: Keys = None) -> Tensor:
        """Return the optimal decisions (B, n). Each entry is the share of a property that is built.

        In the version "inequality" the shares are 0 or 1.

        Args:
            cost: (B, n) sales prices.
            Q: (n, n) or (B, n, n) curvature, which only "equality" accepts; None for a linear objective.
            keys: the instance of each of the B rows.
        """
        if Q is None and self.version == "equality":
            return self.decide_relaxed(cost, keys)
        values, rows = self._checked(cost, keys)
        if Q is not None:
            return solve(self.problem[torch.from_numpy(rows)], values, Q=Q).x
        from pear.solvers.binary import dynamic_programming  # numba, which takes a moment to import

        units, capacities = self._whole_units
        whole = torch.from_numpy(capacities[rows] >= 0)
        z = torch.empty(values.shape, dtype=torch.float64)
        found = dynamic_programming.solve_by_dynamic_programming(
            _building_float64(values[whole]), units, capacities, rows[whole.numpy()]
        )
        z[whole] = torch.from_numpy(found.chosen).double()
        if not whole.all():
            z[~whole] = solve(self.problem[torch.from_numpy(rows)[~whole]], values[~whole].double()).x
        return z.to(values)

    def decide_relaxed(self, cost: Any, keys: Keys = None) -> Tensor:
        """Return the optimal decisions (B, n) if properties may be built in part.

        ``cost`` and ``keys`` are those of ``decide``.
        """
        values, rows = self._checked(cost, keys)
        weights, budget = self.weights.numpy()[rows], self.budget.numpy()[rows]
        return torch.from_numpy(
            _fill_building_by_ratio(_building_float64(values), weights, budget, self.version == "equality")
        ).to(values)

    def adjacent(self, z: Tensor, keys: Keys = None) -> list[Tensor]:
        """Return a tensor (vertices, n) for each decision in ``z`` (B, n): the adjacent vertices of the relaxation."""
        points, rows = self._checked(z, keys)
        lb, ub = np.zeros(self.problem.n), np.ones(self.problem.n)
        result = []
        for point, row in zip(_building_float64(points), rows, strict=True):
            G, h = self.weights[row, None].numpy(), self.budget[row, None].numpy()
            if self.version == "equality":
                G, h = np.concatenate([G, -G]), np.concatenate([h, -h])
            result.append(torch.from_numpy(adjacent_vertices(point, G, h, lb, ub)).to(points))
        return result

    def _checked(self, cost: Any, keys: Keys) -> tuple[Tensor, Ints]:
        """Return checked prices (B, n) as a tensor, and the instances (B,) that ``keys`` name as integers."""
        values = to_batch_tensor(cost).detach()
        check_finite_costs(values, "the integer problem")
        count, n = self.weights.shape
        rows = np.arange(count) if keys is None else np.asarray(keys)
        if values.shape != (len(rows), n):
            whose = "instance" if keys is None else "key"
            raise ProblemError(
                f"expected one row for each of the {len(rows)} {whose}s and one column for each of the {n} properties, "
                f"({len(rows)}, {n}); got {tuple(values.shape)}"
            )
        if rows.dtype.kind not in "iu" or (len(rows) and not 0 <= rows.min() <= rows.max() < count):
            raise ProblemError(f"keys must be rows of the instances, whole numbers from 0 to {count - 1}; got {keys!r}")
        return values, rows.astype(np.int64)


def building(weights: Any, budget: float = 0.4, version: Version = "inequality") -> Building:
    """Return the task of building properties, within a budget, whose sales prices have the largest sum.

    The decision z holds the share of each property that is built. Every instance is a problem of its own: ``max
    price·z`` subject to the constraints of the version.

    Args:
        weights: (N, n) w > 0, the construction costs of the properties of each instance.
        budget: the share of an instance's total construction cost that may be spent.
        version: "inequality" for ``w·z ≤ budget · Σ w`` and z ∈ {0, 1}; "equality" for ``w·z = budget · Σ w`` and
            0 ≤ z ≤ 1.

    Example:
        >>> from pear_lab.tasks import building
        >>> task = building([[3.0, 4.0, 2.0], [1.0, 1.0, 2.0]], budget=0.7)
        >>> task.problem
        Problem(max, n=3, 1 inequality, bounds, 3 integer, batch of 2)
        >>> task.decide([[5.0, 6.0, 3.0], [1.0, 2.0, 4.0]])
        tensor([[0., 1., 1.],
                [0., 0., 1.]], dtype=torch.float64)
    """
    if version not in ("inequality", "equality"):
        raise ProblemError(f"version must be 'inequality' or 'equality'; got {version!r}")
    if not 0 < budget < 1:
        raise ProblemError(f"budget must be a share between 0 and 1 of the total cost; got {budget!r}")
    rows = torch.as_tensor(weights, dtype=torch.float64)
    if rows.ndim != 2 or not bool((rows > 0).all()):
        raise ProblemError(f"weights must be positive, of shape (instances, properties); got shape {tuple(rows.shape)}")
    limits = budget * rows.sum(1, keepdim=True)
    name = f"building_{rows.shape[1]}_properties"
    if version == "equality":
        return Building(name, Problem(A=rows[:, None], b=limits, lb=0.0, ub=1.0, sense="max"), version)
    problem = Problem(G=rows[:, None], h=limits, lb=0.0, ub=1.0, sense="max", integer=True)
    return Building(name, problem, version)


def building_split(
    data: BuildingData | None = None,
    seed: int = 0,
    fold: int = 0,
    instance_size: int = 10,
    budget: float = 0.4,
    version: Version = "inequality",
) -> TaskSplit[Building]:
    """Draw instances of properties, and split them into training, validation and test instances.

    No property is drawn twice. Properties that do not fill another instance are not used. Of five folds of instances,
    one is for the test, the next one is for validation, and the others are for training. After fold 4, fold 0 is next.

    Features are standardised, and prices are divided by their standard deviation, with statistics of the training
    properties only.

    Args:
        data: the properties; ``load_building()`` if omitted.
        seed: the seed of the ``numpy.random.RandomState`` that shuffles the properties.
        fold: the fold for the test, 0 to 4. Over the five values, every instance is tested once.
        instance_size: the number of properties of an instance.
        budget, version: as in ``building``.
    """
    data = load_building() if data is None else data
    count = len(data.prices) // instance_size if instance_size >= 1 else 0
    if count < FOLDS:
        raise ProblemError(
            f"{len(data.prices)} properties make {count} instances of {instance_size}; {FOLDS} folds need {FOLDS}"
        )
    if fold not in range(FOLDS):
        raise ProblemError(f"fold must be 0 to {FOLDS - 1}; got {fold!r}")
    dealt = np.random.RandomState(seed).permutation(len(data.prices))[: count * instance_size].reshape(count, -1)
    folds = [block.tolist() for block in np.array_split(np.arange(count), FOLDS)]
    tested, checked = folds[fold], folds[(fold + 1) % FOLDS]
    trained = [i for i in range(count) if i not in {*tested, *checked}]
    members = torch.from_numpy(dealt)
    features, prices, costs = (part[members] for part in (data.features, data.prices, data.costs))
    return split_instances(
        features, prices, (trained, checked, tested), lambda ids: building(costs[ids], budget, version)
    )


def _fill_building_by_ratio(values: Array, weights: Array, budget: Array, spend_all: bool) -> Array:
    """Return the solutions z (B, n) of ``max v·z`` subject to ``0 ≤ z ≤ 1`` and ``w·z ≤ budget`` (or an equality).

    The budget is spent on the items with the largest v/w first.

    Args:
        values: (B, n) v, of any sign.
        weights: (B, n) w > 0.
        budget: (B,) at least 0, and at most the sum of the weights if ``spend_all``.
        spend_all: whether the constraint is the equality ``w·z = budget``. Items with v ≤ 0 are then chosen if
            necessary.

    Example:
        >>> values, weights = np.array([[6.0, 5.0, -1.0]]), np.array([[2.0, 2.0, 1.0]])
        >>> _fill_building_by_ratio(values, weights, np.array([3.0]), spend_all=False)
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


def _building_float64(values: Tensor) -> Any:
    """Return a tensor as a float64 array in which −0.0 is replaced by 0.0."""
    return values.cpu().double().numpy() + 0.0
