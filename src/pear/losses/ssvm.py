"""``SSVMLoss``: the margin-rescaled hinge loss of a structured support vector machine."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Unpack

import torch
from torch import Tensor

from pear.losses.decision_loss import CostSettings, Decide, DecisionLoss
from pear.optimality.rule import TIGHT
from pear.problem import Model, Problem
from pear.problem.sample_keys import select_by_keys
from pear.setting_checks import check_positive_setting


class SSVMLoss(DecisionLoss):
    """``ℓ = max_z [ĉᵀ(z*(c) − z) + μu Δ(z, z*(c))]``; gradient ``z*(c) − z'``, where z' attains the maximum.

    ĉ and c are the predicted and the true costs, and z*(c) is the best decision under c. This is the structured hinge
    loss with a rescaled margin (Taskar et al., 2005), one of the methods that Elmachtoub and Grigas (2022) compare
    with. The loss is zero if, under the forecast, every other decision z costs more than z*(c) by at least the margin
    μu Δ(z, z*(c)). The distance ``Δ(z, z*)`` is the sum of ``z_j − z*_j`` over the variables j for which z* is at its
    lower bound, minus the same sum over all other variables. For decisions of zeros and ones it is the Hamming
    distance; for others it is at most the distance in the 1-norm. Δ is linear in z, so that z' is the best decision
    under changed costs. The true costs enter only through z*(c). For maximisation every cost changes its sign.

    Args:
        margin: μ > 0, in units u of the costs.
        problem: as for ``DecisionLoss``; an ``Oracle`` counts as having lower bounds of 0.
        decide, mse_weight, cost_unit: as for ``DecisionLoss``.

    Example:
        >>> import torch, pear
        >>> from pear.losses import SSVMLoss
        >>> loss = SSVMLoss(pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0), cost_unit=1.0)
        >>> predicted = torch.tensor([[1.5, 2.0]], requires_grad=True)
        >>> value = loss(predicted, torch.tensor([[1.0, 3.0]]))  # the best decision, but by less than the margin of 2
        >>> value.backward()
        >>> value.item(), predicted.grad
        (1.5, tensor([[ 1., -1.]]))
    """

    def __init__(
        self,
        problem: Problem | Model,
        decide: Decide | None = None,
        margin: float = 1.0,
        **shared: Unpack[CostSettings],
    ) -> None:
        super().__init__(problem, decide, **shared)
        self.margin = check_positive_setting("margin", margin)

    def values(self, predicted: Tensor, true: Tensor, ids: list[Hashable] | None) -> Tensor:
        """Compute the loss of each sample, (B,).

        The gradient treats the decisions as constants. It is exact, because each decision is best for its costs.
        """
        best = self.best(true.double(), ids)
        away = torch.where(self._at_lower_bound(best, ids), 1.0, -1.0).to(predicted)
        closer = predicted - self.problem.sign * self.margin * self.settle_unit(true) * away
        z = self.decide(closer, ids)
        with self.timed("gradient"):
            return self.problem.sign * (closer * (best.to(closer) - z)).sum(1)

    def _at_lower_bound(self, best: Tensor, ids: list[Hashable] | None) -> Tensor:
        """Return which variables of decisions (B, n) are at their lower bounds, (B, n) bool."""
        scale = best.abs().amax(1, keepdim=True).clamp_min(1.0)
        bound = select_by_keys(self.problem, ids).lb if self.problem.has_program else torch.zeros(())
        if bound is None:
            return torch.zeros_like(best, dtype=torch.bool)
        return best - bound.to(best) <= TIGHT * scale
