"""``FrankWolfeLoss``: the base of losses whose decision minimises linear costs plus a multiple of ``‖z‖²``.

The regularised decision under costs ĉ is ``argmin_z ĉᵀz + ½λ‖z‖²`` over the convex hull of all decisions, with λ > 0.
It is the point of the hull nearest to ``−ĉ/λ``. Frank-Wolfe methods find it from best decisions under other linear
costs. This file uses Wolfe's variant (1976). After each new decision, it finds the point nearest to ``−ĉ/λ`` in the
hull of the decisions kept so far, and drops the decisions that this point does not need. It ends after finitely many
decisions, with a point as exact as the linear algebra.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pear.losses.decision_loss import CostSettings, Decide, DecisionLoss
from pear.losses.second_derivatives import refuse_second_derivatives, save_inputs
from pear.optimality.rule import RANK, ROUNDOFF, SHARP, TIGHT
from pear.problem import Model, Problem
from pear.setting_checks import check_count_setting, check_positive_setting

Array = NDArray[np.float64]


@dataclass(frozen=True)
class FrankWolfePoints:
    """Points of the hull of all decisions; each is a convex combination of a few decisions.

    Attributes:
        z: (B, n) float64, the points.
        directions: (B, r, n) an orthonormal basis of the directions between the decisions that a point combines, in
            which it can move when its costs change; rows of zeros are padding.
        gap: (B,) upper bounds of how much lower the objective of the best point is than that of ``z``. They are 0 if
            ``max_iter`` is 1, because no bound is computed then.
        calls: the number of calls that computed decisions, each for all samples that were not finished.
    """

    z: Tensor
    directions: Tensor
    gap: Tensor
    calls: int


class _FrankWolfeCorral:
    """The decisions whose weighted mean is the nearest point found so far for one sample (Wolfe calls them a corral).

    Args:
        target: (n,) the point to which the nearest point of the hull is sought.
        vertex: (n,) the first decision.
    """

    def __init__(self, target: Array, vertex: Array) -> None:
        self.target, self.vertices, self.weights = target, vertex[None], np.ones(1)

    @property
    def point(self) -> Array:
        """The weighted mean of the decisions, (n,)."""
        return np.asarray(self.weights @ self.vertices)

    def holds(self, vertex: Array) -> bool:
        """Whether the corral contains a decision (n,)."""
        scale = max(1.0, float(np.abs(vertex).max(initial=0.0)))
        return bool((np.abs(self.vertices - vertex).max(1) <= TIGHT * scale).any())

    def add(self, vertex: Array) -> None:
        """Add a decision (n,) to the corral, and make ``point`` the point of its hull that is nearest to the target.

        Decisions that are not needed to combine the new point are dropped.
        """
        self.vertices, self.weights = np.vstack([self.vertices, vertex]), np.append(self.weights, 0.0)
        while True:
            goal = self._nearest_weights_in_span()
            if (goal > ROUNDOFF).all():
                self.weights = goal
                return
            falling = goal <= ROUNDOFF
            drops = self.weights[falling] - goal[falling]
            share = min(1.0, float((self.weights[falling] / np.where(drops > 0, drops, 1.0)).min()))
            weights = (1 - share) * self.weights + share * goal
            kept = ~falling | (weights > ROUNDOFF)
            if kept.all():  # by rounding no weight is zero: drop the decision whose weight falls to zero first
                kept[np.flatnonzero(falling)[weights[falling].argmin()]] = False
            self.vertices, self.weights = self.vertices[kept], weights[kept] / weights[kept].sum()

    def _nearest_weights_in_span(self) -> Array:
        """Compute weights of the r decisions, (r,), for which their weighted sum is nearest to the target.

        The weights have the sum 1 and may be negative.
        """
        first, others = self.vertices[0], self.vertices[1:] - self.vertices[0]
        found = np.linalg.lstsq(others.T, self.target - first, rcond=RANK)[0]
        return np.concatenate([[1.0 - found.sum()], found])

    def directions(self) -> Array:
        """Return an orthonormal basis (r, n) of the directions between the decisions."""
        _, sizes, found = np.linalg.svd(self.vertices[1:] - self.vertices[0], full_matrices=False)
        return np.asarray(found[sizes > RANK * sizes.max(initial=0.0)])


def find_frank_wolfe_points(
    decide: Callable[[Tensor, Tensor], Tensor], cost: Tensor, strength: float, max_iter: int
) -> FrankWolfePoints:
    """Find ``argmin_z ĉᵀz + ½λ‖z‖²`` over the hull of all decisions, for each sample.

    Args:
        decide: a function of the costs (K, n) of K samples, to be minimised, and the positions (K,) of these samples,
            which returns best decisions (K, n).
        cost: (B, n) costs ĉ.
        strength: λ > 0.
        max_iter: the largest number of decisions per sample. If a sample needs more, its point is not the best one, and
            ``gap`` bounds how much lower the objective of the best point is.

    Example:
        >>> corners = torch.eye(3, dtype=torch.float64)
        >>> cheapest = lambda cost, rows: corners[cost.argmin(1)]
        >>> find_frank_wolfe_points(cheapest, torch.tensor([[0.0, 0.5, 9.0]]), 1.0, 100).z
        tensor([[0.7500, 0.2500, 0.0000]], dtype=torch.float64)
    """
    costs = cost.detach().double().cpu()
    rows = torch.arange(len(costs))
    first = decide(costs.to(cost.device), rows).double().cpu().numpy()
    corrals = [_FrankWolfeCorral(-one / strength, vertex) for one, vertex in zip(costs.numpy(), first, strict=True)]
    gap, calls = torch.zeros(len(costs), dtype=torch.float64), 1
    while len(rows) and calls < max_iter:
        points = torch.from_numpy(np.stack([corrals[i].point for i in rows.tolist()]))
        slopes = costs[rows] + strength * points
        found = decide(slopes.to(cost.device), rows).double().cpu()
        gap[rows] = (slopes * (points - found)).sum(1).clamp_min(0.0)
        terms = (slopes.abs() * (points.abs() + found.abs())).sum(1)
        calls, going = calls + 1, []
        for i, vertex, open_ in zip(rows.tolist(), found.numpy(), (gap[rows] > SHARP * terms).tolist(), strict=True):
            if open_ and not corrals[i].holds(vertex):
                corrals[i].add(vertex)
                going.append(i)
        rows = torch.tensor(going, dtype=torch.long)
    moves = [one.directions() for one in corrals]
    directions = torch.zeros(len(costs), max(map(len, moves)), costs.shape[1], dtype=torch.float64)
    for i, some in enumerate(moves):
        directions[i, : len(some)] = torch.from_numpy(some)
    z = torch.from_numpy(np.stack([one.point for one in corrals]))
    return FrankWolfePoints(z.to(cost.device), directions.to(cost.device), gap, calls)


class FrankWolfeLoss(DecisionLoss):
    """A loss of the regularised decision ``z_λ(ĉ) = argmin_z ĉᵀz + ½λu‖z‖²`` over the hull of all decisions.

    ĉ are the predicted costs, and u is the unit of the costs. For maximisation every cost changes its sign.

    Args:
        strength: λ > 0, in units u.
        max_iter: the largest number of decisions per sample in a step. If a sample needs more, its point is not the
            best one, and ``last.gap`` bounds how much lower the objective of the best point is.
        problem, decide, mse_weight, cost_unit: as for ``DecisionLoss``.

    Attributes:
        last: the ``FrankWolfePoints`` of the last batch; None before the first batch.
    """

    def __init__(
        self,
        problem: Problem | Model,
        decide: Decide | None = None,
        strength: float = 1.0,
        max_iter: int = 1000,
        **shared: Unpack[CostSettings],
    ) -> None:
        super().__init__(problem, decide, **shared)
        self.strength = check_positive_setting("strength", strength)
        self.max_iter = check_count_setting("max_iter", max_iter)
        self.last: FrankWolfePoints | None = None

    def regularised(self, predicted: Tensor, true: Tensor, ids: list[Hashable] | None) -> Tensor:
        """Compute z_λ (B, n) under predicted costs (B, n), differentiable with respect to them.

        Args:
            predicted: (B, n) predicted costs.
            true: (B, n) true costs, from which the unit u is chosen if it has not been chosen yet.
            ids: B sample ids, or None.
        """
        if ids is None and self.problem.batch is not None:
            ids = list(range(len(predicted)))

        def decide(cost: Tensor, rows: Tensor) -> Tensor:
            return self.decide(self.problem.sign * cost, None if ids is None else [ids[i] for i in rows.tolist()])

        strength = self.strength * self.settle_unit(true)
        self.last = find_frank_wolfe_points(decide, self.problem.sign * predicted, strength, self.max_iter)
        z: Tensor = _FrankWolfePoint.apply(predicted, self.last.z, self.last.directions, self.problem.sign / strength)
        return z


class _FrankWolfePoint(torch.autograd.Function):
    """A point of the hull as an autograd function of the costs.

    If the costs change by dc, the point moves by ``−rate · dc``, projected onto the span of ``directions``. ``rate`` is
    1/λ, with a minus for maximisation, where λ is the factor of ``½‖z‖²`` in the objective.
    """

    @staticmethod
    def forward(ctx: Any, cost: Tensor, z: Tensor, directions: Tensor, rate: float) -> Tensor:
        save_inputs(ctx, cost)
        ctx.directions, ctx.rate = directions, rate
        return z.to(cost)

    @staticmethod
    @refuse_second_derivatives
    def backward(ctx: Any, up: Tensor) -> tuple[Tensor, None, None, None]:
        along = torch.einsum("brn,bn->br", ctx.directions, up.double())
        return -ctx.rate * torch.einsum("brn,br->bn", ctx.directions, along).to(up), None, None, None
