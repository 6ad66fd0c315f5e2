"""``IMLELoss`` and ``AIMLELoss``: the regret of a randomly perturbed decision, differenced along its own gradient."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Literal

import torch
from torch import Tensor

from pear.losses.decision_loss import Decide
from pear.losses.random_draws import DrawingLoss
from pear.losses.surrogate_gradient import with_gradient
from pear.problem import Model, Problem
from pear.setting_checks import check_count_setting, check_positive_setting

GAMMA_TERMS = 10
"""s, the number of gamma variables in a sum; as published."""

MEMORY = 0.9
"""The share of its former value in the moving average of ``AIMLELoss``; as published."""

RATE = 1e-3
"""By how much the step of ``AIMLELoss`` changes; as published."""


class IMLELoss(DrawingLoss):
    """``ℓ = mean |cᵀz̄ − cᵀz*(c)|``, ``z̄ = mean_m z*(ĉ − σuε_m)``; gradient ``mean_m (z*(ĉ + λw − σuε_m) − z_m) / λ``.

    This is implicit maximum likelihood estimation (Niepert et al., 2021). w is ∂ℓ/∂z̄, and both decisions of a
    difference have the same noise ε. It is a sum of gamma variables that makes decisions of κ chosen entries nearly
    Gibbs distributed: ``ε = (Σ_{i=1..s} γ_i − log s) / κ`` with γ_i ~ Gamma(1/κ, κ/i) and s = 10. The noise is
    subtracted, because a negative cost is a log-likelihood. w contains the factor 1/B of the mean, as in ``DBBLoss``.
    For maximisation every cost changes its sign.

    Args:
        problem: the decision problem, with a linear objective.
        decide: maps costs (B, n) to best decisions (B, n); ``pear.solve`` on ``problem`` if omitted.
        samples: the number of perturbations per sample and step.
        sigma: σ, the size of the perturbations in units of the costs.
        interpolation: λ > 0, how far the costs are moved in the backward pass; it has no unit.
        kappa: κ, about how many entries of a decision are chosen.
        two_sided: whether the difference is ``(z*(… + λw) − z*(… − λw)) / 2λ``, for one more decision.
        seed: the seed of the loss's own ``numpy.random.RandomState``, whose state is part of ``state_dict()``.
        mse_weight: weight of ``½ ‖ĉ − c‖² / u``, mean over the samples, added to the loss.
        cost_unit: u, the unit of the costs; "auto" is their typical deviation, see ``DecisionLoss``.

    Example:
        >>> import torch, pear
        >>> from pear.losses import IMLELoss
        >>> loss = IMLELoss(pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0), sigma=0.01)
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
        samples: int = 10,
        sigma: float = 1.0,
        interpolation: float = 10.0,
        kappa: float = 5.0,
        two_sided: bool = False,
        seed: int = 135,
        mse_weight: float = 0.0,
        cost_unit: float | Literal["auto"] = "auto",
    ) -> None:
        super().__init__(problem, decide, seed, mse_weight, cost_unit)
        self.samples, self.sigma = check_count_setting("samples", samples), check_positive_setting("sigma", sigma)
        self.interpolation = check_positive_setting("interpolation", interpolation)
        self.kappa = check_positive_setting("kappa", kappa)
        self.two_sided = bool(two_sided)

    def values(self, predicted: Tensor, true: Tensor, ids: list[Hashable] | None) -> Tensor:
        """Compute the regret of each sample's mean decision; its gradient is that of the class."""
        cost = predicted.detach().double()
        noise = self.draws.sum_of_gammas(self.kappa, GAMMA_TERMS, self.samples, *cost.shape).to(cost)
        perturbed = cost - self.problem.sign * self.sigma * self.settle_unit(true) * noise
        z = self.decide_each(perturbed, ids)

        def pull_back(up: Tensor) -> Tensor:
            if not bool(up.any()):  # nothing is lost, and nothing is to be learnt
                return torch.zeros_like(up)
            step = self.problem.sign * self.step_size(cost, up)
            ahead = perturbed + step * up
            if self.two_sided:
                both = self.decide_each(torch.cat([ahead, perturbed - step * up]), ids)
                difference = (both[: self.samples] - both[self.samples :]).mean(0) / 2
            else:
                difference = (self.decide_each(ahead, ids) - z).mean(0)
            self.notice(difference)
            return difference / step

        return self.regret_of(with_gradient(predicted, z.mean(0), pull_back), true, ids)

    def step_size(self, cost: Tensor, up: Tensor) -> float:
        """Return λ for predicted costs (B, n) and the gradient with respect to their decisions (B, n)."""
        return self.interpolation

    def notice(self, difference: Tensor) -> None:
        """Look at the differences of decisions (B, n) after a backward pass; only ``AIMLELoss`` does."""


class AIMLELoss(IMLELoss):
    """``IMLELoss`` with an adaptive step ``λ = α ‖ĉ‖ / ‖w‖``, both norms over the batch (Minervini et al., 2023).

    α begins at 1 and changes by 0.001 after every step: it rises where a sample's gradient has fewer than
    ``target`` entries other than zero, on a moving average over steps, and falls otherwise, to 0.001 at
    least. Where no sample has a regret, w is zero, and α stays.

    Args:
        problem: the decision problem, with a linear objective.
        decide: maps costs (B, n) to best decisions (B, n); ``pear.solve`` on ``problem`` if omitted.
        samples: the number of perturbations per sample and step.
        sigma: σ, the size of the perturbations in units of the costs.
        kappa: κ, about how many entries of a decision are chosen.
        two_sided: whether the difference is taken on both sides, for one more decision.
        target: the number of entries of a sample's gradient that should be other than zero.
        seed: the seed of the loss's own ``numpy.random.RandomState``, whose state is part of ``state_dict()``.
        mse_weight: weight of ``½ ‖ĉ − c‖² / u``, mean over the samples, added to the loss.
        cost_unit: u, the unit of the costs; "auto" is their typical deviation, see ``DecisionLoss``.

    Attributes:
        alpha: α, part of ``state_dict()``.
        entries: the moving average, which begins at ``target``, part of ``state_dict()``.

    Example:
        >>> import torch, pear
        >>> from pear.losses import AIMLELoss
        >>> loss = AIMLELoss(pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0), sigma=0.01)
        >>> predicted = torch.tensor([[2.0, 1.0]], requires_grad=True)
        >>> loss(predicted, torch.tensor([[1.0, 3.0]])).backward()
        >>> bool(predicted.grad[0, 0] > 0 > predicted.grad[0, 1]), loss.alpha < 1
        (True, True)
    """

    def __init__(
        self,
        problem: Problem | Model,
        decide: Decide | None = None,
        samples: int = 10,
        sigma: float = 1.0,
        kappa: float = 5.0,
        two_sided: bool = False,
        target: float = 1.0,
        seed: int = 135,
        mse_weight: float = 0.0,
        cost_unit: float | Literal["auto"] = "auto",
    ) -> None:
        super().__init__(
            problem, decide, samples, sigma, 1.0, kappa, two_sided, seed, mse_weight, cost_unit
        )  # fmt: skip
        self.target = check_positive_setting("target", target)
        self.alpha, self.entries = 1.0, self.target

    def step_size(self, cost: Tensor, up: Tensor) -> float:
        """Return α ‖ĉ‖ / ‖w‖."""
        return self.alpha * float(cost.norm() / up.double().norm())

    def notice(self, difference: Tensor) -> None:
        """Count entries of the gradient other than zero, and adapt α."""
        found = float((difference != 0).sum() / len(difference))
        self.entries = MEMORY * self.entries + (1 - MEMORY) * found
        change = RATE if self.entries < self.target else -RATE
        self.alpha = max(self.alpha + change, RATE)  # a step of zero would have no difference to divide

    def get_extra_state(self) -> dict[str, Any]:
        """Return α and its moving average, and what ``IMLELoss`` saves."""
        return {**super().get_extra_state(), "alpha": self.alpha, "entries": self.entries}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restore α and its moving average, too."""
        super().set_extra_state(state)
        self.alpha, self.entries = state["alpha"], state["entries"]
