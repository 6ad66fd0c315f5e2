"""``PoolLoss``: the base class of losses that compare the costs of earlier solutions (a pool) and seldom solve."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from hashlib import blake2b
from typing import Any, Unpack

import torch
from torch import Tensor

from pear.losses.decision_loss import Decide
from pear.losses.random_draws import DrawingLoss, DrawSettings
from pear.losses.solution_pool import PooledSolutions, SolutionPools
from pear.problem import Model, Problem
from pear.problem.oracle import Oracle
from pear.problem.problem_fields import FIELDS, is_field_per_sample
from pear.problem.sample_keys import as_keys, takes_keys
from pear.problem.tensor_conversion import to_batch_tensor
from pear.setting_checks import check_count_setting, check_share_setting


class PoolSettings(DrawSettings, total=False):
    """The settings that all ``PoolLoss`` classes have; ``PoolLoss`` and ``DecisionLoss`` document them."""

    solve_ratio: float
    pool_size: int


class PoolLoss(DrawingLoss):
    """A loss that compares the costs of earlier solutions, which a pool holds. A subclass defines ``compare``.

    ``calibrate``, which ``pear.fit`` calls, begins the pool with the best decisions of the training samples, or of
    ``pool_size`` evenly spaced samples if the training set has more. Each call of the loss adds the best decisions of
    its samples, and with probability ``solve_ratio`` also the best decisions under their forecasts. In evaluation mode
    forecasts add nothing. If samples have constraints of their own, each distinct set of constraints has a pool.

    Args:
        solve_ratio: the probability that a training step solves for the forecasts and adds their solutions, from 0
            to 1.
        pool_size: the largest number of solutions in a pool; it should exceed the number of samples in a batch. The
            time and memory of a step grow in proportion to ``pool_size`` · n.
        seed: the seed of the random choice of the steps that solve for the forecasts.
        problem, decide, mse_weight, cost_unit: as for ``DecisionLoss``.
    """

    def __init__(
        self,
        problem: Problem | Model,
        decide: Decide | None = None,
        solve_ratio: float = 0.05,
        pool_size: int = 1000,
        **shared: Unpack[DrawSettings],
    ) -> None:
        super().__init__(problem, decide, **shared)
        self.solve_ratio = check_share_setting("solve_ratio", solve_ratio)
        self.pool_size = check_count_setting("pool_size", pool_size, 2)
        self._pools, self._pools_of = SolutionPools(self.problem.n, self.pool_size), self.problem

    @property
    def pools(self) -> SolutionPools:
        """The pools of the solutions so far. Assigning another problem to ``problem`` empties them."""
        if self._pools_of is not self.problem:
            self._pools, self._pools_of = SolutionPools(self.problem.n, self.pool_size), self.problem
        return self._pools

    def calibrate(self, costs: Any, keys: Tensor | Iterable[Hashable] | None = None) -> float:
        """Choose the unit of the costs if ``cost_unit`` is "auto", and add best decisions to the pool; return the unit.

        Args:
            costs: (N, n) true costs, preferably of the training set; with a cost map (N, k) true values.
            keys: N sample ids; the first N rows if omitted.
        """
        unit = super().calibrate(costs, keys)
        values = to_batch_tensor(costs).detach()
        ids = as_keys(keys, len(values))
        own_costs = self.cost_map is not None and self.cost_map.batch is not None
        if ids is None and (self.problem.batch is not None or own_costs):
            ids = list(range(len(values)))
        finite = values.isfinite().all(1).nonzero()[:, 0]
        count = min(len(finite), self.pool_size)
        chosen = finite[torch.arange(count, device=finite.device) * len(finite) // max(count, 1)]
        if len(chosen):
            values, ids = values[chosen], None if ids is None else [ids[i] for i in chosen.tolist()]
            true = values if self.cost_map is None else self.cost_map(values, ids)
            self._add(self.best(true.double(), ids), self._name_constraint_sets(ids, len(true)), ids)
        return unit

    def values(self, predicted: Tensor, true: Tensor, ids: list[Hashable] | None) -> Tensor:
        """Add solutions to the pool, and compute the loss of each sample, (B,).

        The gradient treats all solutions as constants.
        """
        # in float64, because products of costs and solutions are compared with each other
        cost, true_cost = predicted.double(), true.double()
        best, sets = self.best(true_cost, ids), self._name_constraint_sets(ids, len(true))
        self._add(best, sets, ids)
        if self.training and self.draws.generator.uniform() < self.solve_ratio:
            self._add(self.decide(cost, ids), sets, ids)
        with self.timed("gradient"):
            pooled = self.pools.of(sets)
            return self.compare(cost, true_cost, best, pooled).to(predicted.dtype)

    def compare(self, cost: Tensor, true: Tensor, best: Tensor, pooled: PooledSolutions) -> Tensor:
        """Compute the loss of each sample, (B,), differentiable with respect to the predicted costs.

        Args:
            cost: (B, n) predicted costs, in float64.
            true: (B, n) true costs.
            best: (B, n) best decisions under the true costs.
            pooled: the solutions of the samples' pools, at least one per sample.
        """
        raise NotImplementedError(f"{type(self).__name__} must define compare")

    def get_extra_state(self) -> dict[str, Any]:
        """Return the unit of the costs, the state of the random generator, and the pools."""
        return {**super().get_extra_state(), "pools": self.pools.state()}

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Restore the unit of the costs, the random generator and the pools from a saved state."""
        super().set_extra_state(dict(state))
        self._pools_of = self.problem
        self._pools = SolutionPools.from_state(state["pools"], self.problem.n, self.pool_size)

    def _add(self, solutions: Tensor, sets: list[Hashable], ids: list[Hashable] | None) -> None:
        """Add solutions to the pools.

        Args:
            solutions: (B, n) feasible decisions of B samples.
            sets: the names of the samples' sets of constraints.
            ids: the sample ids, or None.
        """
        with self.timed("gradient"):
            self._pools = self.pools.to(solutions.device)
            self._pools.add(solutions, sets, self._width(ids))

    def _width(self, ids: list[Hashable] | None) -> Tensor | None:
        """Return the distances between lower and upper bounds, (n,) or (B, n); None if the problem lacks lb or ub."""
        lb, ub = self.problem.lb, self.problem.ub
        if lb is None or ub is None:
            return None
        width = ub - lb
        return width if width.ndim == 1 or ids is None else width[torch.tensor(ids, device=width.device)]

    def _name_constraint_sets(self, ids: list[Hashable] | None, count: int) -> list[Hashable]:
        """Return a name for each sample's set of constraints. Samples with the same name have the same constraints.

        If the problem has fields per sample, the name is a digest of the sample's fields. If it has none, all samples
        have the same constraints, and the name is None. Where only a function knows the constraints, the name is the
        sample's id instead. This is so if ``decide``, or the function of an ``Oracle``, has an argument ``keys``, and
        for every ``Oracle`` with fields per sample.

        Args:
            ids: the sample ids, or None. None stands for 0, 1, … if the problem has fields per sample. For any other
                problem it means that there are no ids, and every name is None.
            count: the number of samples.
        """
        problem, task = self.problem, getattr(self._decide, "__self__", None)
        by_key = False
        if self._decide is not None and not getattr(task, "decides_problem", False):
            by_key = takes_keys(self._decide)
        elif isinstance(problem, Oracle):
            by_key = problem.takes_keys
        if ids is None and problem.batch is not None:
            ids = list(range(count))
        if ids is not None and (by_key or (isinstance(problem, Oracle) and problem.batch is not None)):
            return ids
        if ids is None or problem.batch is None:
            return [None] * count
        names: list[str] = problem.prepare_once("names of constraint sets", _digest_pool_constraints)
        return [names[i] for i in ids]  # type: ignore[call-overload]


def _digest_pool_constraints(problem: Problem) -> list[str]:
    """Return a digest of the constraints of each sample of a problem with fields per sample."""
    fields = [(name, getattr(problem, name)) for name in FIELDS if getattr(problem, name) is not None]
    own = [value.cpu().numpy() for name, value in fields if is_field_per_sample(name, value)]
    contents = (b"".join(one[i].tobytes() for one in own) for i in range(problem.batch or 0))
    return [blake2b(content, digest_size=16).hexdigest() for content in contents]
