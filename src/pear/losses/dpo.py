"""``DPOLoss`` and ``DPOMultiplicativeLoss``: the regret of the mean decision under randomly perturbed costs."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Literal

import torch
from torch import Tensor

from pear.losses.decision_loss import Decide
from pear.losses.random_draws import DrawingLoss
from pear.losses.surrogate_gradient import estimate_by_score, with_gradient
from pear.problem import Model, Problem
from pear.setting_checks import check_count_setting, check_positive_setting


class DPOLoss(DrawingLoss):
    """``ℓ = mean |cᵀz̄ − cᵀz*(c)|`` with ``z̄ = mean_m z*(ĉ + σuε_m)``; gradient ``mean_m (wᵀz_m − b_m) ε_m / σu``.

    This is the differentiable perturbed optimiser with additive noise (Berthet et al., 2020). w is ∂ℓ/∂z̄, ε is
    standard normal and drawn anew in every step, and b_m, the mean of wᵀz over the other perturbations, takes variance
    away. For maximisation every cost changes its sign.

    Args:
        problem: the decision problem, with a linear objective.
        decide: maps costs (B, n) to best decisions (B, n); ``pear.solve`` on ``problem`` if omitted.
        samples: the number of perturbations per sample and step.
        sigma: σ, the size of the perturbations in units of the costs.
        seed: the seed of the loss's own ``numpy.random.RandomState``, whose state is part of ``state_dict()``.
        mse_weight: weight of ``½ ‖ĉ − c‖² / u``, mean over the samples, added to the loss.
        cost_unit: u, the unit of the costs; "auto" is their typical deviation, see ``DecisionLoss``.

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
        seed: int = 135,
        mse_weight: float = 0.0,
        cost_unit: float | Literal["auto"] = "auto",
    ) -> None:
        super().__init__(problem, decide, seed, mse_weight, cost_unit)
        self.samples, self.sigma = check_count_setting("samples", samples), check_positive_setting("sigma", sigma)

    def values(self, predicted: Tensor, true: Tensor, ids: list[Hashable] | None) -> Tensor:
        """Compute the regret of each sample's mean decision; its gradient is that of the class."""
        cost = predicted.detach().double()
        noise = self.draws.normal(self.samples, *cost.shape).to(cost)
        perturbed, per_noise = self.perturb(cost, noise, self.sigma, self.settle_unit(true))
        z = self.decide_each(perturbed, ids)

        def pull_back(up: Tensor) -> Tensor:
            with self.timed("gradient"):
                return estimate_by_score((z * up).sum(2), noise) / per_noise

        return self.regret_of(with_gradient(predicted, z.mean(0), pull_back), true, ids)

    def perturb(self, cost: Tensor, noise: Tensor, sigma: float, unit: float) -> tuple[Tensor, Tensor]:
        """Perturb costs (B, n) by standard normal noise (m, B, n).

        Returns:
            (m, B, n) perturbed costs, and, as (B, n) or a scalar, by how much a cost must rise for as large a change as
            a noise that rises by 1.
        """
        size = cost.new_tensor(self.problem.sign * sigma * unit)
        return cost + size * noise, size


class DPOMultiplicativeLoss(DPOLoss):
    """``DPOLoss`` with multiplied noise: ``z̄ = mean_m z*(ĉ ⊙ exp(σε_m − σ²/2))``; the gradient is divided by ``σĉ``.

    Every cost keeps its sign (Dalle et al., 2022), for solvers that take costs of one sign alone, such as Dijkstra's. A
    predicted cost that is exactly zero stays zero, and gets no gradient; small ones get large gradients. σ has no unit.

    Args:
        problem: the decision problem, with a linear objective.
        decide: maps costs (B, n) to best decisions (B, n); ``pear.solve`` on ``problem`` if omitted.
        samples: the number of perturbations per sample and step.
        sigma: σ, the standard deviation of a perturbed cost's logarithm.
        seed: the seed of the loss's own ``numpy.random.RandomState``, whose state is part of ``state_dict()``.
        mse_weight: weight of ``½ ‖ĉ − c‖² / u``, mean over the samples, added to the loss.
        cost_unit: u, the unit of the costs; "auto" is their typical deviation, see ``DecisionLoss``.

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
        """Multiply costs (B, n) by log-normal noise of mean 1; a cost of zero has an infinite σĉ, and no gradient."""
        return cost * (sigma * noise - 0.5 * sigma**2).exp(), torch.where(cost == 0, torch.inf, sigma * cost)
