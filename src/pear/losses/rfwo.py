"""``RFWOLoss``: the regret of a decision that is regularised, found by Frank-Wolfe from a linear oracle."""

from __future__ import annotations

from collections.abc import Hashable

from torch import Tensor

from pear.losses.frank_wolfe import FrankWolfeLoss


class RFWOLoss(FrankWolfeLoss):
    """``ℓ = cᵀz_λ(ĉ) − cᵀz*(c)`` with ``z_λ(ĉ) = argmin_z ĉᵀz + ½λu‖z‖²`` over the hull of all decisions.

    The regularised decision (Dalle et al., 2022) changes continuously with the costs, and so the loss has a gradient:
    ``−P c / (λu)``, where P projects on the span of the decisions that z_λ combines. It is exact where each of them has
    a positive weight. For maximisation every cost changes its sign. A training step asks for as many decisions in turn
    as the hardest sample needs.

    Args:
        problem: the decision problem, with a linear objective.
        decide: maps costs (B, n) to best decisions (B, n); ``pear.solve`` on ``problem`` if omitted.
        strength: λ > 0, in units of the costs.
        max_iter: the largest number of decisions of a sample in a step; ``last.gap`` says what is missing then.
        mse_weight: weight of ``½ ‖ĉ − c‖² / u``, mean over the samples, added to the loss.
        cost_unit: u, the unit of the costs; "auto" is their typical deviation, see ``DecisionLoss``.

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
        """Compute the regret of each sample's regularised decision, (B,)."""
        best = self.best(true, ids)
        z = self.regularised(predicted, true, ids)
        with self.timed("gradient"):
            return self.problem.sign * (true * (z - best)).sum(1)
