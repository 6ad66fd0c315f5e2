"""``RFYLLoss``: the Fenchel-Young loss of a squared norm, over the hull of all decisions."""

from __future__ import annotations

from collections.abc import Hashable

from torch import Tensor

from pear.losses.frank_wolfe import FrankWolfeLoss


class RFYLLoss(FrankWolfeLoss):
    """``ℓ = ĉᵀz*(c) + ½λu‖z*(c)‖² − min_z (ĉᵀz + ½λu‖z‖²)`` over the hull; gradient ``z*(c) − z_λ(ĉ)``.

    ĉ and c are the predicted and the true costs, and z*(c) is the best decision under c. The hull is that of all
    decisions, and z_λ(ĉ) is the regularised decision, which attains the minimum. This is the Fenchel-Young loss of the
    regulariser ½λu‖z‖², where λ is ``strength`` and u is the unit of the costs (Dalle et al., 2022). It is convex,
    never negative, and zero if z_λ(ĉ) is z*(c). For maximisation every cost changes its sign.

    Args:
        strength, max_iter: as for ``FrankWolfeLoss``.
        problem, decide, mse_weight, cost_unit: as for ``DecisionLoss``.

    Example:
        >>> import torch, pear
        >>> from pear.losses import RFYLLoss
        >>> loss = RFYLLoss(pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0), cost_unit=1.0)
        >>> predicted = torch.tensor([[1.5, 1.0]], requires_grad=True)
        >>> value = loss(predicted, torch.tensor([[1.0, 3.0]]))  # z_λ is (0.25, 0.75)
        >>> value.backward()
        >>> value.item(), predicted.grad
        (0.5625, tensor([[ 0.7500, -0.7500]]))
    """

    def values(self, predicted: Tensor, true: Tensor, ids: list[Hashable] | None) -> Tensor:
        """Compute the loss of each sample, (B,).

        The gradient treats z_λ(ĉ) as a constant. It is exact, because z_λ(ĉ) attains the minimum in the loss.
        """
        best = self.best(true, ids)
        z = self.regularised(predicted.detach(), true, ids)
        with self.timed("gradient"):
            half = 0.5 * self.strength * self.settle_unit(true)
            linear = self.problem.sign * (predicted * (best - z)).sum(1)
            # ‖z*‖² − ‖z‖² as a product: no large sums that cancel
            return linear + half * ((best - z) * (best + z)).sum(1)
