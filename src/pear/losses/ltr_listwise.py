"""``ListwiseLTRLoss``: learning to rank earlier solutions, each with a probability that depends on its cost."""

from __future__ import annotations

import math
from typing import Unpack

from torch import Tensor

from pear.losses.decision_loss import Decide
from pear.losses.pool_loss import PoolLoss, PoolSettings
from pear.losses.solution_pool import PooledSolutions
from pear.problem import Model, Problem
from pear.setting_checks import check_positive_setting


class ListwiseLTRLoss(PoolLoss):
    """``ℓ = −u Σ_v p(v; c) log p(v; ĉ)`` over the solutions v of a pool, where p(v; c) ∝ exp(−cᵀv / τu).

    ℓ is the loss of a sample, and the loss of a batch is the mean. ĉ and c are the predicted and the true costs, u is
    the unit of the costs, and τ is ``temperature``. The pool holds earlier solutions (see ``PoolLoss``). p(v; c) is a
    probability of the solution v, larger for cheaper solutions. The loss is least if the forecast gives each solution
    the probability that it has under the true costs (listwise learning to rank, Mandi et al., 2022). The least value is
    not zero but u times the entropy of p(·; c). For maximisation every cost changes its sign.

    Args:
        temperature: τ > 0, in units u of the costs: a solution that costs τu more is e times less likely.
        problem, decide, solve_ratio, pool_size, seed, mse_weight, cost_unit: as for ``PoolLoss``.

    Example:
        >>> import torch, pear
        >>> from pear.losses import ListwiseLTRLoss
        >>> problem = pear.Problem(A=[[1.0, 1.0, 1.0]], b=[1.0], lb=0.0)
        >>> loss = ListwiseLTRLoss(problem, temperature=1.0, solve_ratio=0.0, cost_unit=1.0)
        >>> unit = loss.calibrate([[1.0, 3.0, 3.0], [3.0, 1.0, 3.0]])
        >>> predicted = torch.tensor([[2.0, 2.0, 5.0]], requires_grad=True)
        >>> value = loss(predicted, torch.tensor([[1.0, 3.0, 3.0]]))
        >>> value.backward()
        >>> round(value.item(), 4), predicted.grad[:, :2]  # log 2, and p(v; c) − 1/2
        (0.6931, tensor([[ 0.3808, -0.3808]]))
    """

    def __init__(
        self,
        problem: Problem | Model,
        decide: Decide | None = None,
        temperature: float = 1.0,
        **shared: Unpack[PoolSettings],
    ) -> None:
        super().__init__(problem, decide, **shared)
        self.temperature = check_positive_setting("temperature", temperature)

    def compare(self, cost: Tensor, true: Tensor, best: Tensor, pooled: PooledSolutions) -> Tensor:
        """Compute u times the cross-entropy between the probabilities under true and under predicted costs, (B,)."""
        unit = self.settle_unit(true)
        scale = -self.problem.sign / (self.temperature * unit)
        wanted, got = (
            pooled.where_filled(pooled.products(scale * each), -math.inf).log_softmax(1) for each in (true, cost)
        )
        return -unit * (wanted.exp() * pooled.where_filled(got, 0.0)).sum(1)
