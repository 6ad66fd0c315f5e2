"""``DBBLoss``: the regret, with the derivative of an interpolated solver."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Unpack

from torch import Tensor

from pear.losses.decision_loss import CostSettings, Decide, DecisionLoss
from pear.losses.surrogate_gradient import with_surrogate_gradient
from pear.problem import Model, Problem
from pear.setting_checks import check_positive_setting


class DBBLoss(DecisionLoss):
    """``ℓ = mean |cᵀz*(ĉ) − cᵀz*(c)|``, with the gradient ``(z*(ĉ + λw) − z*(ĉ)) / λ``, where w = ∂ℓ/∂z*(ĉ).

    ĉ and c are the predicted and the true costs, and z*(c) is the best decision under c. The loss differentiates a
    black-box solver by interpolation (Vlastelica et al., 2020): the backward pass moves the costs by λw and solves
    again. For a batch of B samples, w contains the factor 1/B of the mean, or the share of the sample in the weights of
    the batch. The step λw therefore depends on the batch. For maximisation every cost changes its sign. Each training
    step solves two problems per sample.

    Args:
        interpolation: λ > 0. It has no unit, because w is in the unit of the costs.
        problem, decide, mse_weight, cost_unit: as for ``DecisionLoss``.

    Example:
        >>> import torch, pear
        >>> from pear.losses import DBBLoss
        >>> loss = DBBLoss(pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0), interpolation=10.0)
        >>> predicted = torch.tensor([[2.0, 1.0]], requires_grad=True)
        >>> value = loss(predicted, torch.tensor([[1.0, 3.0]]))
        >>> value.backward()
        >>> value.item(), predicted.grad
        (2.0, tensor([[ 0.1000, -0.1000]]))
    """

    def __init__(
        self,
        problem: Problem | Model,
        decide: Decide | None = None,
        interpolation: float = 10.0,
        **shared: Unpack[CostSettings],
    ) -> None:
        super().__init__(problem, decide, **shared)
        self.interpolation = check_positive_setting("interpolation", interpolation)

    def values(self, predicted: Tensor, true: Tensor, ids: list[Hashable] | None) -> Tensor:
        """Compute the regret of each sample, (B,), with the gradient that the class documents."""
        step = self.problem.sign * self.interpolation
        cost, z = predicted.detach(), self.decide(predicted, ids)

        def pull_back(up: Tensor) -> Tensor:
            return (self.decide(cost + step * up, ids) - z) / step

        return self.regret_of(with_surrogate_gradient(predicted, z, pull_back), true, ids)
