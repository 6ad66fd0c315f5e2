"""``PGLoss``: the true cost of the decision, as a finite difference of optimal values that has a gradient."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Literal, Unpack, get_args

import torch
from torch import Tensor

from pear.errors import ProblemError
from pear.losses.decision_loss import CostSettings, Decide, DecisionLoss
from pear.problem import Model, Problem
from pear.setting_checks import check_positive_setting

Difference = Literal["forward", "backward", "central"]
"""The kind of a finite difference in the predicted costs ĉ along the true costs."""


class PGLoss(DecisionLoss):
    """``ℓ = mean (V(ĉ + hc) − V(ĉ − hc)) / 2h``, V(t) = min_z tᵀz; gradient ``(z*(ĉ + hc) − z*(ĉ − hc)) / 2h``.

    This is the perturbation gradient loss (Huang and Gupta, 2024). ĉ and c are the predicted and the true costs, and z*
    is the best decision. The true cost of the decision, ``cᵀz*(ĉ)``, is the derivative of V at ĉ along c. ℓ
    approximates this derivative; the formula above is the central difference. The backward difference
    ``(V(ĉ) − V(ĉ − hc)) / h`` never underestimates the true cost, and the forward difference ``(V(ĉ + hc) − V(ĉ)) / h``
    never overestimates it. The central difference is their mean. ℓ is a cost, not a regret, so that it needs no best
    decisions under the true costs. For maximisation every cost changes its sign. Each training step solves two problems
    per sample.

    Args:
        width: h > 0, the width of the difference as a multiple of the true costs; it has no unit.
        difference: "central", "backward" or "forward".
        problem, decide, mse_weight, cost_unit: as for ``DecisionLoss``.

    Example:
        >>> import torch, pear
        >>> from pear.losses import PGLoss
        >>> loss = PGLoss(pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0), width=1.0)
        >>> predicted = torch.tensor([[2.0, 1.0]], requires_grad=True)
        >>> value = loss(predicted, torch.tensor([[1.0, 3.0]]))
        >>> value.backward()
        >>> value.item(), predicted.grad
        (2.5, tensor([[ 0.5000, -0.5000]]))
    """

    def __init__(
        self,
        problem: Problem | Model,
        decide: Decide | None = None,
        width: float = 0.1,
        difference: Difference = "central",
        **shared: Unpack[CostSettings],
    ) -> None:
        super().__init__(problem, decide, **shared)
        if difference not in get_args(Difference):
            raise ProblemError(f"difference must be 'forward', 'backward' or 'central'; got {difference!r}")
        self.width, self.difference = check_positive_setting("width", width), difference

    def values(self, predicted: Tensor, true: Tensor, ids: list[Hashable] | None) -> Tensor:
        """Compute the loss of each sample, (B,).

        The gradient treats the decisions as constants. It is exact, because each decision is best for its costs.
        """
        below, above = {"forward": (0.0, 1.0), "backward": (1.0, 0.0), "central": (1.0, 1.0)}[self.difference]
        costs = torch.stack([predicted + above * self.width * true, predicted - below * self.width * true])
        z = self.decide_each(costs, ids)
        with self.timed("gradient"):
            upper, lower = (costs * z).sum(2)
            return self.problem.sign * (upper - lower) / ((below + above) * self.width)
