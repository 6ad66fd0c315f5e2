"""``CosineLoss``: the angle between predicted and true costs, which does not depend on the size of either."""

from __future__ import annotations

from collections.abc import Hashable

from torch import Tensor

from pear.losses.decision_loss import DecisionLoss


class CosineLoss(DecisionLoss):
    """``ℓ = u (1 − cos(ĉ, c))``, mean over the batch: how far the predicted costs point away from the true ones.

    ĉ and c are the predicted and the true costs, and u is their unit. The decisions of a linear objective depend only
    on the direction of the costs, and so does this loss. It solves nothing; only the default metric of ``fit`` uses the
    problem. ``CaVELoss`` measures the same distance, ``1 − cos``, to all costs that have the same best decision as c
    (Tang and Khalil, 2024).

    Args:
        problem, cost_unit: as for ``DecisionLoss``.
        decide: maps costs (B, n) to best decisions (B, n) in the default metric of ``fit``; ``pear.solve`` on
            ``problem`` if omitted.
        mse_weight: as for ``DecisionLoss``. Without it, nothing determines the size of the forecasts.

    Example:
        >>> import torch, pear
        >>> from pear.losses import CosineLoss
        >>> loss = CosineLoss(pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0), cost_unit=1.0)
        >>> round(loss(torch.tensor([[2.0, 0.0]]), torch.tensor([[3.0, 4.0]])).item(), 6)
        0.4
    """

    def values(self, predicted: Tensor, true: Tensor, ids: list[Hashable] | None) -> Tensor:
        """Compute ``u (1 − cos(ĉ, c))`` of each sample, (B,); it is u if all its predicted or true costs are zero."""
        with self.timed("gradient"):
            return self.settle_unit(true) * cosine_distance(predicted, true)


def cosine_distance(first: Tensor, second: Tensor) -> Tensor:
    """Compute 1 − cos of the angle between each pair of vectors (B, n); 1 if one of the two is zero. Shape (B,).

    Example:
        >>> import torch
        >>> cosine_distance(torch.tensor([[1e-30, 0.0]]).double(), torch.tensor([[-2.0, 0.0]]).double())
        tensor([2.], dtype=torch.float64)
    """

    def unit_vectors(rows: Tensor) -> Tensor:
        """Divide rows (B, n) by their norms; a row of zeros stays zero and gets a gradient of zero."""
        largest = rows.detach().abs().amax(1, keepdim=True)
        scaled = rows / largest.where(largest > 0, largest.new_ones(()))  # squares neither overflow nor vanish
        norms = scaled.norm(dim=1, keepdim=True)
        return scaled / norms.where(largest > 0, norms.new_ones(()).detach())

    return 1.0 - (unit_vectors(first) * unit_vectors(second)).sum(1)
