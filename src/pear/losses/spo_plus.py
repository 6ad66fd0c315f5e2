"""``SPOPlusLoss``: a convex upper bound of the regret."""

from __future__ import annotations

from collections.abc import Hashable

from torch import Tensor

from pear.losses.decision_loss import DecisionLoss


class SPOPlusLoss(DecisionLoss):
    """``ℓ = −min_z (2ĉ − c)ᵀz + 2ĉᵀz*(c) − cᵀz*(c)``, mean over the batch; gradient ``2 (z*(c) − z*(2ĉ − c))``.

    ĉ and c are the predicted and the true costs, and z*(c) is the best decision under c. The loss is a convex upper
    bound of the regret (Elmachtoub and Grigas, 2022). For maximisation every cost changes its sign. Each training step
    solves one problem per sample. For an integer problem, ``decide`` may return decisions of the relaxation, which is
    much faster; the loss then bounds the regret of these decisions.

    Args:
        problem, decide, mse_weight, cost_unit: as for ``DecisionLoss``.

    Example:
        >>> import torch, pear
        >>> from pear.losses import SPOPlusLoss
        >>> loss = SPOPlusLoss(pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0))
        >>> predicted = torch.tensor([[2.0, 1.0]], requires_grad=True)
        >>> value = loss(predicted, torch.tensor([[1.0, 3.0]]))
        >>> value.backward()
        >>> value.item(), predicted.grad
        (4.0, tensor([[ 2., -2.]]))
    """

    def values(self, predicted: Tensor, true: Tensor, ids: list[Hashable] | None) -> Tensor:
        """Compute the bound of each sample's regret, (B,).

        The gradient treats the decisions as constants. It is exact, because each decision is best for its costs.
        """
        best = self.best(true, ids)
        beyond = 2 * predicted - true
        z = self.decide(beyond, ids)
        with self.timed("gradient"):
            # (2ĉ − c)ᵀ(z*(c) − z*(2ĉ − c)), without large sums that cancel
            return self.problem.sign * (beyond * (best - z)).sum(1)
