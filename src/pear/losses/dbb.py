"""``DBBLoss``: the regret, with the derivative of an interpolated solver."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Literal

from torch import Tensor

from pear.losses.decision_loss import Decide, DecisionLoss
from pear.losses.surrogate_gradient import with_gradient
from pear.problem import Model, Problem
from pear.setting_checks import check_positive_setting


class DBBLoss(DecisionLoss):
    """``ℓ = mean |cᵀz*(ĉ) − cᵀz*(c)|``, with the gradient ``(z*(ĉ + λw) − z*(ĉ)) / λ``, where w = ∂ℓ/∂z*(ĉ).

    The loss differentiates a black-box solver by interpolation (Vlastelica et al., 2020). w contains the factor 1/B of
    the mean, so that the step λw depends on the size of the batch, and on the sample's weight where it has one. For
    maximisation every cost changes its sign. Each training step solves two problems per sample.

    Args:
        problem: the decision problem, with a linear objective.
        decide: maps costs (B, n) to best decisions (B, n); ``pear.solve`` on ``problem`` if omitted.
        interpolation: λ > 0, how far the costs are moved in the backward pass. w is in the unit of the costs, so that λ
            has none.
        mse_weight: weight of ``½ ‖ĉ − c‖² / u``, mean over the samples, added to the loss.
        cost_unit: u, the unit of the costs; "auto" is their typical deviation, see ``DecisionLoss``.

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
        mse_weight: float = 0.0,
        cost_unit: float | Literal["auto"] = "auto",
    ) -> None:
        super().__init__(problem, decide, mse_weight, cost_unit)
        self.interpolation = check_positive_setting("interpolation", interpolation)

    def values(self, predicted: Tensor, true: Tensor, ids: list[Hashable] | None) -> Tensor:
        """Compute the regret of each sample; its gradient comes from the interpolation."""
        step = self.problem.sign * self.interpolation
        cost, z = predicted.detach(), self.decide(predicted, ids)

        def pull_back(up: Tensor) -> Tensor:
            return (self.decide(cost + step * up, ids) - z) / step

        return self.regret_of(with_gradient(predicted, z, pull_back), true, ids)
