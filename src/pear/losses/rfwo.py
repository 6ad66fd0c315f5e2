"""``RFWOLoss``: the regret of a regularised decision, found by a Frank-Wolfe method from best decisions alone."""

from __future__ import annotations

from collections.abc import Hashable

from torch import Tensor

from pear.losses.frank_wolfe import FrankWolfeLoss


class RFWOLoss(FrankWolfeLoss):
    """``ℓ = cᵀz_λ(ĉ) − cᵀz*(c)`` with ``z_λ(ĉ) = argmin_z ĉᵀz + ½λu‖z‖²`` over the hull of all decisions.

    ĉ and c are the predicted and the true costs, z*(c) is the best decision under c, λ is ``strength``, and u is the
    unit of the costs. The regularised decision z_λ (Dalle et al., 2022) changes continuously with the costs, so that
    the loss has a gradient, ``−P c / (λu)``. z_λ is a convex combination of decisions, and P projects on the directions
    between them. The gradient is exact for almost all ĉ if ``max_iter`` suffices. For maximisation every cost
    changes its sign. A training step computes decisions one after another, as many as the hardest sample needs.

    Args:
        strength, max_iter: as for ``FrankWolfeLoss``.
        problem, decide, mse_weight, cost_unit: as for ``DecisionLoss``.

    Example:
        >>> import torch, pear
        >>> from pear.losses import RFWOLoss
        >>> loss = RFWOLoss(pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0), cost_unit=1.0)
        >>> predicted = torch.tensor([[1.5, 1.0]], requires_grad=True)
        >>> value = loss(predicted, torch.tensor([[1.0, 3.0]]))  # z_λ is (0.25, 0.75)
        >>> value.backward()
        >>> value.item(), predicted.grad
        (1.5, tensor([[ 1., -1.]]))
    """

    def values(self, predicted: Tensor, true: Tensor, ids: list[Hashable] | None) -> Tensor:
        """Compute the regret of each sample's regularised decision, (B,), which is differentiable."""
        best = self.best(true, ids)
        z = self.regularised(predicted, true, ids)
        with self.timed("gradient"):
            return self.problem.sign * (true * (z - best)).sum(1)
