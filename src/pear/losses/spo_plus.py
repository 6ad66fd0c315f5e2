"""``SPOPlusLoss``: a convex upper bound of the regret (Elmachtoub and Grigas, 2022)."""

from __future__ import annotations

from collections.abc import Hashable

from torch import Tensor

from pear.losses.decision_loss import DecisionLoss


class SPOPlusLoss(DecisionLoss):
    """``ℓ = −min_z (2ĉ − c)ᵀz + 2ĉᵀz*(c) − cᵀz*(c)``, mean over the batch; gradient ``2 (z*(c) − z*(2ĉ − c))``.

    For maximisation the sign of every cost is turned. One decision a sample and step. With an integer problem's exact
    decisions and with those of its relaxation it is two different methods, the second much faster.

    Args:
        problem: what is decided, with a linear objective.
        decide: (B, n) costs → (B, n) best decisions; left out, ``pear.solve`` on ``problem``.
        mse_weight: weight of ``½ ‖ĉ − c‖²``, mean over the samples, added to the loss.

    Example:
        >>> import torch, pear
        >>> from pear.losses import SPOPlusLoss
        >>> loss = SPOPlusLoss(pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0))
        >>> predicted = torch.tensor([[2.0, 1.0]], requires_grad=True)
        >>> value = loss(predicted, torch.tensor([[1.0, 3.0]]))
        >>> value.backward()
        >>> value.item(), predicted.grad
        (4.0, tensor([[ 2., -2.]]))
    """

    def value(self, predicted: Tensor, true: Tensor, ids: list[Hashable] | None) -> Tensor:
        """The bound, as a function that is linear in ĉ at the two decisions: its derivative is the formula above."""
        best = self.best(true, ids)
        beyond = 2 * predicted - true
        z = self.decide(beyond, ids)
        with self.timed("gradient"):
            # (2ĉ − c)ᵀ(z*(c) − z*(2ĉ − c)): no large sums that cancel.
            return self.problem.sign * (beyond * (best - z)).sum(1).mean()
