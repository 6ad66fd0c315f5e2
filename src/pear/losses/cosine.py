"""``CosineLoss``: the angle between predicted and true costs, which does not depend on the size of either."""

from __future__ import annotations

from collections.abc import Hashable

from torch import Tensor

from pear.losses.decision_loss import DecisionLoss


class CosineLoss(DecisionLoss):
    """``ℓ = u (1 − cos(ĉ, c))``, mean over the batch: how far the predicted costs point away from the true ones.

    Decisions of a linear objective depend on the direction of the costs alone, and so does this loss. Nothing is
    solved, and the problem counts by its metric alone. ``CaVELoss`` compares with all costs that have the same best
    decision, in the place of one; ``1 − cos`` is the distance that it is published with (Tang and Khalil, 2024).

    Args:
        problem: the decision problem, with a linear objective.
        decide: maps costs (B, n) to best decisions (B, n) in the default metric of ``fit``; ``pear.solve`` on
            ``problem`` if omitted.
        mse_weight: weight of ``½ ‖ĉ − c‖² / u``, mean over the samples, added to the loss. The cosine alone leaves the
            size of forecasts open.
        cost_unit: u, the unit of the costs; "auto" is their typical deviation, see ``DecisionLoss``.

    Example:
        >>> import torch, pear
        >>> from pear.losses import CosineLoss
        >>> loss = CosineLoss(pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0), cost_unit=1.0)
        >>> round(loss(torch.tensor([[2.0, 0.0]]), torch.tensor([[3.0, 4.0]])).item(), 6)
        0.4
    """

    def values(self, predicted: Tensor, true: Tensor, ids: list[Hashable] | None) -> Tensor:
        """Compute u (1 − cos) of each sample, (B,); u where costs are zero."""
        with self.timed("gradient"):
            return self.settle_unit(true) * cosine_distance(predicted, true)


def cosine_distance(first: Tensor, second: Tensor) -> Tensor:
    """Compute 1 − cos of the angle between vectors (B, n), in any unit; 1 where one of them is zero. Shape (B,).

    Example:
        >>> import torch
        >>> cosine_distance(torch.tensor([[1e-30, 0.0]]).double(), torch.tensor([[-2.0, 0.0]]).double())
        tensor([2.], dtype=torch.float64)
    """
    return 1.0 - (_unit_vectors(first) * _unit_vectors(second)).sum(1)


def _unit_vectors(rows: Tensor) -> Tensor:
    """Divide rows (B, n) by their norms; zeros stay zeros, with a gradient of zero."""
    largest = rows.detach().abs().amax(1, keepdim=True)
    scaled = rows / largest.where(largest > 0, largest.new_ones(()))  # squares neither overflow nor vanish
    norms = scaled.norm(dim=1, keepdim=True)
    return scaled / norms.where(largest > 0, norms.new_ones(()).detach())
