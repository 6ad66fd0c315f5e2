"""``PairwiseLTRLoss``: learning to rank the best of the earlier solutions before every other one."""

from __future__ import annotations

from typing import Unpack

from torch import Tensor

from pear.losses.decision_loss import Decide
from pear.losses.pool_loss import PoolLoss, PoolSettings
from pear.losses.solution_pool import PooledSolutions
from pear.problem import Model, Problem
from pear.setting_checks import check_number_setting


class PairwiseLTRLoss(PoolLoss):
    """``ℓ = mean_v max(0, νu + ĉᵀb − ĉᵀv)`` over the solutions v ≠ b of a pool, mean over the batch.

    ĉ are the predicted costs, and u is the unit of the costs. The pool holds earlier solutions (see ``PoolLoss``). b is
    the best decision under the true costs, which the pool also holds. The loss is zero if the forecast makes b cheaper
    than every other solution by at least the margin νu (pairwise learning to rank, best against rest, Mandi et al.,
    2022). Without a margin, it is zero also for a forecast of zeros. For maximisation every cost changes its sign.

    Args:
        margin: ν ≥ 0, in units u of the costs.
        problem, decide, solve_ratio, pool_size, seed, mse_weight, cost_unit: as for ``PoolLoss``.

    Example:
        >>> import torch, pear
        >>> from pear.losses import PairwiseLTRLoss
        >>> problem = pear.Problem(A=[[1.0, 1.0, 1.0]], b=[1.0], lb=0.0)
        >>> loss = PairwiseLTRLoss(problem, margin=0.5, solve_ratio=0.0, cost_unit=1.0)
        >>> unit = loss.calibrate([[1.0, 3.0, 3.0], [3.0, 1.0, 3.0], [3.0, 3.0, 1.0]])
        >>> predicted = torch.tensor([[2.0, 1.0, 5.0]], requires_grad=True)
        >>> value = loss(predicted, torch.tensor([[1.0, 3.0, 3.0]]))
        >>> value.backward()
        >>> value.item(), predicted.grad
        (0.75, tensor([[ 0.5000, -0.5000,  0.0000]]))
    """

    def __init__(
        self,
        problem: Problem | Model,
        decide: Decide | None = None,
        margin: float = 1.0,
        **shared: Unpack[PoolSettings],
    ) -> None:
        super().__init__(problem, decide, **shared)
        self.margin = check_number_setting("margin", margin, least=0.0)

    def compare(self, cost: Tensor, true: Tensor, best: Tensor, pooled: PooledSolutions) -> Tensor:
        """Compute the mean loss over all pairs of the pool's best solution and another solution, (B,)."""
        sign, margin = self.problem.sign, self.margin * self.settle_unit(true)
        first = pooled.lowest(pooled.products(sign * true))[:, None]
        costs = pooled.products(sign * cost)
        short = pooled.where_filled((margin + costs.gather(1, first) - costs).clamp(min=0), 0.0)
        return short.scatter(1, first, 0.0).sum(1) / (pooled.count() - 1).clamp(min=1)
