"""``NIDLoss``: the regret, with the negative identity as the derivative of decisions."""

from __future__ import annotations

from collections.abc import Hashable

from torch import Tensor

from pear.losses.decision_loss import DecisionLoss
from pear.losses.surrogate_gradient import with_surrogate_gradient


class NIDLoss(DecisionLoss):
    """``ℓ = mean |cᵀz*(ĉ) − cᵀz*(c)|``, with the gradient ``−w / u``, where w = ∂ℓ/∂z*(ĉ).

    ĉ and c are the predicted and the true costs, and z*(c) is the best decision under c. The gradient replaces the
    derivative of the decision with respect to the costs by ``−I / u``, the negative identity per unit u of the costs
    (Sahoo et al., 2023). If a sample has a regret, a descent step then raises its predicted costs in proportion to its
    true costs. Only ``mse_weight`` keeps the forecast near the truth. For maximisation every cost changes its sign.
    Each training step solves one problem per sample.

    Args:
        problem, decide, mse_weight, cost_unit: as for ``DecisionLoss``.

    Example:
        >>> import torch, pear
        >>> from pear.losses import NIDLoss
        >>> loss = NIDLoss(pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0), cost_unit=1.0)
        >>> predicted = torch.tensor([[2.0, 1.0]], requires_grad=True)
        >>> value = loss(predicted, torch.tensor([[1.0, 3.0]]))
        >>> value.backward()
        >>> value.item(), predicted.grad
        (2.0, tensor([[-1., -3.]]))
    """

    def values(self, predicted: Tensor, true: Tensor, ids: list[Hashable] | None) -> Tensor:
        """Compute the regret of each sample, (B,), with the gradient that the class documents."""
        scale = -self.problem.sign / self.settle_unit(true)
        z = with_surrogate_gradient(predicted, self.decide(predicted, ids), lambda up: scale * up)
        return self.regret_of(z, true, ids)
