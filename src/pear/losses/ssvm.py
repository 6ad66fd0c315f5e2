"""``SSVMLoss``: the margin-rescaled hinge loss of a structured support vector machine."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Literal

import torch
from torch import Tensor

from pear.losses.decision_loss import Decide, DecisionLoss
from pear.optimality.rule import TIGHT
from pear.problem import Model, Problem
from pear.problem.sample_keys import select_by_keys
from pear.setting_checks import check_positive_setting


class SSVMLoss(DecisionLoss):
    """``ℓ = max_z ĉᵀ(z*(c) − z) + μu Δ(z, z*(c))``; gradient ``z*(c) − z'`` with z' the decision of the maximum.

    This is the structured hinge loss with a rescaled margin (Taskar et al., 2005), one of the methods that Elmachtoub
    and Grigas (2022) compare with. Under the forecast, every other decision must cost more than z*(c), by a margin that
    grows with its distance. ``Δ(z, z*) = Σ_j (z_j − z*_j)`` over variables where z* is at its lower bound, less that
    sum over the others. For decisions of zeros and ones that is their Hamming distance; elsewhere it is at most the
    distance in the 1-norm. It is linear in z, so that z' is the best decision under changed costs. For maximisation
    every cost changes its sign. The true costs enter only through z*(c).

    Args:
        problem: the decision problem, with a linear objective. The lower bounds of an ``Oracle`` are taken for 0.
        decide: maps costs (B, n) to best decisions (B, n); ``pear.solve`` on ``problem`` if omitted.
        margin: μ > 0, in units of the costs.
        mse_weight: weight of ``½ ‖ĉ − c‖² / u``, mean over the samples, added to the loss.
        cost_unit: u, the unit of the costs; "auto" is their typical deviation, see ``DecisionLoss``.

    Example:
        >>> import torch, pear
        >>> from pear.losses import SSVMLoss
        >>> loss = SSVMLoss(pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0), cost_unit=1.0)
        >>> predicted = torch.tensor([[1.5, 2.0]], requires_grad=True)
        >>> value = loss(predicted, torch.tensor([[1.0, 3.0]]))  # right, by less than the margin of 2
        >>> value.backward()
        >>> value.item(), predicted.grad
        (1.5, tensor([[ 1., -1.]]))
    """

    def __init__(
        self,
        problem: Problem | Model,
        decide: Decide | None = None,
        margin: float = 1.0,
        mse_weight: float = 0.0,
        cost_unit: float | Literal["auto"] = "auto",
    ) -> None:
        super().__init__(problem, decide, mse_weight, cost_unit)
        self.margin = check_positive_setting("margin", margin)

    def values(self, predicted: Tensor, true: Tensor, ids: list[Hashable] | None) -> Tensor:
        """Compute the hinge with both decisions held fixed, so that its derivative is the gradient of the class."""
        best = self.best(true.double(), ids)
        away = torch.where(self._at_lower_bound(best, ids), 1.0, -1.0).to(predicted)
        closer = predicted - self.problem.sign * self.margin * self.settle_unit(true) * away
        z = self.decide(closer, ids)
        with self.timed("gradient"):
            return self.problem.sign * (closer * (best.to(closer) - z)).sum(1)

    def _at_lower_bound(self, best: Tensor, ids: list[Hashable] | None) -> Tensor:
        """Which variables of decisions (B, n) are at their lower bounds."""
        scale = best.abs().amax(1, keepdim=True).clamp_min(1.0)
        bound = select_by_keys(self.problem, ids).lb if self.problem.has_program else torch.zeros(())
        if bound is None:
            return torch.zeros_like(best, dtype=torch.bool)
        return best - bound.to(best) <= TIGHT * scale
