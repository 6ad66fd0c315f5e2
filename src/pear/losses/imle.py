"""``IMLELoss`` and ``AIMLELoss``: the regret of randomly perturbed decisions, with a finite-difference gradient."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Unpack

import torch
from torch import Tensor

from pear.losses.decision_loss import Decide
from pear.losses.random_draws import DrawingLoss, DrawSettings
from pear.losses.surrogate_gradient import with_surrogate_gradient
from pear.problem import Model, Problem
from pear.setting_checks import check_count_setting, check_positive_setting

GAMMA_TERMS = 10
"""s, the number of gamma variables whose sum is the noise of ``IMLELoss``; the published value."""

MEMORY = 0.9
"""The weight of the old value in the moving average of ``AIMLELoss``; the published value."""

RATE = 1e-3
"""The change of α, in ``AIMLELoss``, after each step; the published value."""


class IMLELoss(DrawingLoss):
    """``ℓ = mean |cᵀz̄ − cᵀz*(c)|``, ``z̄ = mean_m z*(ĉ − σuε_m)``; gradient ``mean_m (z*(ĉ + λw − σuε_m) − z_m) / λ``.

    This is implicit maximum likelihood estimation (Niepert et al., 2021). ĉ and c are the predicted and the true costs,
    z* is the best decision, z_m is z*(ĉ − σuε_m), and w is ∂ℓ/∂z̄. The noise is ``ε = (Σ_{i=1..s} γ_i − log s) / κ``,
    with gamma variables γ_i ~ Gamma(1/κ, κ/i) and s = 10. With this noise, decisions that choose κ entries are nearly
    Gibbs distributed. The noise is subtracted, because negative costs act as log-likelihoods. w contains the factor 1/B
    of the mean, as in ``DBBLoss``. For maximisation every cost changes its sign.

    Args:
        samples: the number of perturbations per sample and step.
        sigma: σ, the size of the perturbations in units u of the costs.
        interpolation: λ > 0. The backward pass moves the perturbed costs by the step λw. λ has no unit.
        kappa: κ, about how many entries of a decision are chosen.
        two_sided: whether the gradient uses the central difference ``(z*(t + λw) − z*(t − λw)) / 2λ`` at the perturbed
            costs t, which needs one more decision per perturbation.
        problem, decide, seed, mse_weight, cost_unit: as for ``DrawingLoss``.

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
        **shared: Unpack[DrawSettings],
    ) -> None:
        super().__init__(problem, decide, **shared)
        self.samples, self.sigma = check_count_setting("samples", samples), check_positive_setting("sigma", sigma)
        self.interpolation = check_positive_setting("interpolation", interpolation)
        self.kappa = check_positive_setting("kappa", kappa)
        self.two_sided = bool(two_sided)

    def values(self, predicted: Tensor, true: Tensor, ids: list[Hashable] | None) -> Tensor:
        """Compute the regret of each sample's mean decision, (B,), with the gradient that the class documents."""
        cost = predicted.detach().double()
        noise = self.draws.sum_of_gammas(self.kappa, GAMMA_TERMS, self.samples, *cost.shape).to(cost)
        perturbed = cost - self.problem.sign * self.sigma * self.settle_unit(true) * noise
        z = self.decide_each(perturbed, ids)

        def pull_back(up: Tensor) -> Tensor:
            if not bool(up.any()):  # no sample has a regret
                return torch.zeros_like(up)
            step = self.problem.sign * self.step_size(cost, up)
            ahead = perturbed + step * up
            if self.two_sided:
                both = self.decide_each(torch.cat([ahead, perturbed - step * up]), ids)
                difference = (both[: self.samples] - both[self.samples :]).mean(0) / 2
            else:
                difference = (self.decide_each(ahead, ids) - z).mean(0)
            self.adapt_step(difference)
            return difference / step

        return self.regret_of(with_surrogate_gradient(predicted, z.mean(0), pull_back), true, ids)

    def step_size(self, cost: Tensor, up: Tensor) -> float:
        """Return λ for predicted costs (B, n). ``up`` is w (B, n), the gradient with respect to the mean decisions."""
        return self.interpolation

    def adapt_step(self, difference: Tensor) -> None:
        """Do nothing. ``AIMLELoss`` overrides this method to adapt λ after a backward pass.

        ``difference`` (B, n) is λ times the gradient with respect to the predicted costs.
        """


class AIMLELoss(IMLELoss):
    """``IMLELoss`` with an adaptive step ``λ = α ‖ĉ‖ / ‖w‖``, both norms over the batch (Minervini et al., 2023).

    ĉ are the predicted costs, and w is the gradient of the loss with respect to the mean decisions. α begins at 1.
    After every step it rises by 0.001 if the samples' gradients have fewer than ``target`` non-zero entries on average,
    and falls by 0.001 otherwise, but not below 0.001. The average is a moving average over steps. If no sample of a
    batch has a regret, w is zero, and α stays the same.

    Args:
        target: the number of non-zero entries that a sample's gradient should have.
        problem, decide, samples, sigma, kappa, two_sided, seed, mse_weight, cost_unit: as for ``IMLELoss``.

    Attributes:
        alpha: α, part of ``state_dict()``.
        entries: the moving average of the number of non-zero entries, which begins at ``target``; part of
            ``state_dict()``.

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
        **shared: Unpack[DrawSettings],
    ) -> None:
        super().__init__(problem, decide, samples, sigma, 1.0, kappa, two_sided, **shared)
        self.target = check_positive_setting("target", target)
        self.alpha, self.entries = 1.0, self.target

    def step_size(self, cost: Tensor, up: Tensor) -> float:
        """Return λ = α ‖ĉ‖ / ‖w‖ for predicted costs ĉ and gradients w, as the class documents."""
        return self.alpha * float(cost.norm() / up.double().norm())

    def adapt_step(self, difference: Tensor) -> None:
        """Adapt α to the number of non-zero entries of ``difference`` (B, n), which is λ times the gradient."""
        found = float((difference != 0).sum() / len(difference))
        self.entries = MEMORY * self.entries + (1 - MEMORY) * found
        change = RATE if self.entries < self.target else -RATE
        self.alpha = max(self.alpha + change, RATE)  # a step of zero would have no difference to divide

    def get_extra_state(self) -> dict[str, Any]:
        """Return what ``IMLELoss`` saves, and α and the moving average."""
        return {**super().get_extra_state(), "alpha": self.alpha, "entries": self.entries}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restore what ``IMLELoss`` saves, and α and the moving average."""
        super().set_extra_state(state)
        self.alpha, self.entries = state["alpha"], state["entries"]
