"""``DPOLoss`` and ``DPOMultiplicativeLoss``: the regret of the mean decision under randomly perturbed costs."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Unpack

import torch
from torch import Tensor

from pear.losses.decision_loss import Decide
from pear.losses.random_draws import DrawingLoss, DrawSettings
from pear.losses.surrogate_gradient import estimate_gradient_by_score, with_surrogate_gradient
from pear.problem import Model, Problem
from pear.setting_checks import check_count_setting, check_positive_setting


class DPOLoss(DrawingLoss):
    """``ℓ = mean |cᵀz̄ − cᵀz*(c)|`` with ``z̄ = mean_m z*(ĉ + σuε_m)``; gradient ``mean_m (wᵀz_m − b_m) ε_m / σu``.

    This is the differentiable perturbed optimiser with additive noise (Berthet et al., 2020). ĉ and c are the predicted
    and the true costs, z* is the best decision, and z_m is the decision under perturbation m. w is ∂ℓ/∂z̄, u is the unit
    of the costs, and ε is standard normal and drawn anew in every step. b_m is the mean of wᵀz over the other
    perturbations, which reduces the variance. For maximisation every cost changes its sign.

    Args:
        samples: the number of perturbations per sample and step.
        sigma: σ, the size of the perturbations in units u of the costs.
        problem, decide, seed, mse_weight, cost_unit: as for ``DrawingLoss``.

    Example:
        >>> import torch, pear
        >>> from pear.losses import DPOLoss
        >>> loss = DPOLoss(pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0), samples=100, cost_unit=1.0)
        >>> predicted = torch.tensor([[2.0, 1.0]], requires_grad=True)
        >>> loss(predicted, torch.tensor([[1.0, 3.0]])).backward()
        >>> bool(predicted.grad[0, 0] > 0 > predicted.grad[0, 1])  # a step lowers the first cost and raises the second
        True
    """

    def __init__(
        self,
        problem: Problem | Model,
        decide: Decide | None = None,
        samples: int = 10,
        sigma: float = 1.0,
        **shared: Unpack[DrawSettings],
    ) -> None:
        super().__init__(problem, decide, **shared)
        self.samples, self.sigma = check_count_setting("samples", samples), check_positive_setting("sigma", sigma)

    def values(self, predicted: Tensor, true: Tensor, ids: list[Hashable] | None) -> Tensor:
        """Compute the regret of each sample's mean decision, (B,), with the gradient that the class documents."""
        cost = predicted.detach().double()
        noise = self.draws.normal(self.samples, *cost.shape).to(cost)
        perturbed, per_noise = self.perturb(cost, noise, self.sigma, self.settle_unit(true))
        z = self.decide_each(perturbed, ids)

        def pull_back(up: Tensor) -> Tensor:
            with self.timed("gradient"):
                return estimate_gradient_by_score((z * up).sum(2), noise) / per_noise

        return self.regret_of(with_surrogate_gradient(predicted, z.mean(0), pull_back), true, ids)

    def perturb(self, cost: Tensor, noise: Tensor, sigma: float, unit: float) -> tuple[Tensor, Tensor]:
        """Perturb costs (B, n) by standard normal noise (m, B, n).

        Returns:
            The perturbed costs (m, B, n), and the divisor of the gradient, (B, n) or a scalar: their derivative with
            respect to the noise, divided by their derivative with respect to the costs.
        """
        size = cost.new_tensor(self.problem.sign * sigma * unit)
        return cost + size * noise, size


class DPOMultiplicativeLoss(DPOLoss):
    """``DPOLoss`` with multiplied noise: ``z̄ = mean_m z*(ĉ ⊙ exp(σε_m − σ²/2))``, with σĉ for σu in the gradient.

    The symbols are those of ``DPOLoss``, and ⊙ multiplies entry by entry. Every cost keeps its sign (Dalle et al.,
    2022). Solvers that accept only costs of one sign, such as Dijkstra's, need this. A predicted cost of exactly zero
    stays zero and gets no gradient; small costs get large gradients.

    Args:
        sigma: σ, the standard deviation of a perturbed cost's logarithm; it has no unit.
        problem, decide, samples, seed, mse_weight, cost_unit: as for ``DPOLoss``.

    Example:
        >>> import torch, pear
        >>> from pear.losses import DPOMultiplicativeLoss
        >>> loss = DPOMultiplicativeLoss(pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0), samples=100)
        >>> predicted = torch.tensor([[2.0, 1.0]], requires_grad=True)
        >>> loss(predicted, torch.tensor([[1.0, 3.0]])).backward()
        >>> bool(predicted.grad[0, 0] > 0 > predicted.grad[0, 1])
        True
    """

    def perturb(self, cost: Tensor, noise: Tensor, sigma: float, unit: float) -> tuple[Tensor, Tensor]:
        """Multiply costs (B, n) by log-normal noise of mean 1.

        Returns:
            The perturbed costs (m, B, n), and σĉ (B, n), the divisor of the gradient. For a cost ĉ of 0 the divisor is
            infinite, so that the gradient is zero.
        """
        return cost * (sigma * noise - 0.5 * sigma**2).exp(), torch.where(cost == 0, torch.inf, sigma * cost)
