"""``NIDLoss``: the regret, as if decisions fell one for one where costs rise."""

from __future__ import annotations

from collections.abc import Hashable

from torch import Tensor

from pear.losses.decision_loss import DecisionLoss
from pear.losses.surrogate_gradient import with_gradient


class NIDLoss(DecisionLoss):
    """``ℓ = mean |cᵀz*(ĉ) − cᵀz*(c)|``, with the gradient ``−w / u``, where w = ∂ℓ/∂z*(ĉ).

    The derivative of the decision is taken to be the negative identity (Sahoo et al., 2023), per unit u of the costs:
    a variable that is chosen although its true cost is high gets a higher forecast. For maximisation every cost changes
    its sign. Each training step solves one problem per sample. Nothing keeps the forecast near the truth but
    ``mse_weight``.

    Args:
        problem: the decision problem, with a linear objective.
        decide: maps costs (B, n) to best decisions (B, n); ``pear.solve`` on ``problem`` if omitted.
        mse_weight: weight of ``½ ‖ĉ − c‖² / u``, mean over the samples, added to the loss.
        cost_unit: u, the unit of the costs; "auto" is their typical deviation, see ``DecisionLoss``.

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
        """Compute the regret of each sample; its gradient is that of the class."""
        scale = -self.problem.sign / self.settle_unit(true)
        z = with_gradient(predicted, self.decide(predicted, ids), lambda up: scale * up)
        return self.regret_of(z, true, ids)
