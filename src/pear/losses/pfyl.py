"""``PFYLLoss``: the Fenchel–Young loss of randomly perturbed costs."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Unpack

from torch import Tensor

from pear.losses.decision_loss import Decide
from pear.losses.random_draws import DrawingLoss, DrawSettings
from pear.problem import Model, Problem
from pear.setting_checks import check_count_setting, check_positive_setting


class PFYLLoss(DrawingLoss):
    """``ℓ = ĉᵀz*(c) − mean_m min_z (ĉ + σuε_m)ᵀz``, mean over the batch; gradient ``z*(c) − mean_m z*(ĉ + σuε_m)``.

    This is the perturbed Fenchel–Young loss (Berthet et al., 2020). ĉ and c are the predicted and the true costs, z* is
    the best decision, and ε is standard normal and drawn anew in every step. The least value of the loss is not zero
    and not known, so that only changes of the value have a meaning. For maximisation every cost changes its sign.

    Args:
        samples: the number of perturbations per sample and step.
        sigma: σ, the size of the perturbations in units u of the costs.
        problem, decide, seed, mse_weight, cost_unit: as for ``DrawingLoss``.

    Example:
        >>> import torch, pear
        >>> from pear.losses import PFYLLoss
        >>> loss = PFYLLoss(pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0), samples=4, sigma=0.1)
        >>> predicted = torch.tensor([[2.0, 1.0]], requires_grad=True)
        >>> loss(predicted, torch.tensor([[1.0, 3.0]])).backward()
        >>> predicted.grad
        tensor([[ 1., -1.]])
    """

    def __init__(
        self,
        problem: Problem | Model,
        decide: Decide | None = None,
        samples: int = 1,
        sigma: float = 1.0,
        **shared: Unpack[DrawSettings],
    ) -> None:
        super().__init__(problem, decide, **shared)
        self.samples, self.sigma = check_count_setting("samples", samples), check_positive_setting("sigma", sigma)

    def values(self, predicted: Tensor, true: Tensor, ids: list[Hashable] | None) -> Tensor:
        """Compute the loss of each sample, (B,).

        The gradient treats the decisions as constants. It is exact, because each decision is best for its costs.
        """
        best = self.best(true, ids)
        # Published numbers depend on the order of the draws: one draw of (m, B, n) per step.
        noise = self.draws.normal(self.samples, *predicted.shape).to(predicted)
        perturbed = predicted + self.problem.sign * self.sigma * self.settle_unit(true) * noise
        z = self.decide_each(perturbed, ids)
        with self.timed("gradient"):
            return self.problem.sign * ((predicted * best).sum(1) - (perturbed * z).sum(2).mean(0))
