"""``PairwiseLTRLoss``: learning to rank the best solution of a pool before each of the others."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from pear.losses.decision_loss import Decide
from pear.losses.pool_loss import PoolLoss
from pear.losses.solution_pool import PooledSolutions
from pear.problem import Model, Problem
from pear.setting_checks import check_number_setting


class PairwiseLTRLoss(PoolLoss):
    """``ℓ = mean_v max(0, νu + ĉᵀb − ĉᵀv)`` over the solutions v ≠ b of a pool, mean over the batch.

    b is the solution of the pool that costs least in truth: the best decision, which is in the pool. It should look
    cheaper than every other solution by a margin ν in units u of the costs (pairwise learning to rank, best against
    rest, Mandi et al., 2022). Without a margin a forecast of zeros is perfect. For maximisation every cost changes its
    sign.

    Args:
        problem: the decision problem, with a linear objective.
        decide: maps costs (B, n) to best decisions (B, n); ``pear.solve`` on ``problem`` if omitted.
        margin: ν ≥ 0, in units of the costs.
        solve_ratio: the share of the steps in which solutions for the forecasts join the pool.
        pool_size: the largest number of solutions in a pool, see ``PoolLoss``.
        seed: the seed of the random choice of these steps.
        mse_weight: weight of ``½ ‖ĉ − c‖² / u``, mean over the samples, added to the loss.
        cost_unit: u, the unit of the costs; "auto" is their typical deviation, see ``DecisionLoss``.

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
        solve_ratio: float = 0.05,
        pool_size: int = 1000,
        seed: int = 135,
        mse_weight: float = 0.0,
        cost_unit: float | Literal["auto"] = "auto",
    ) -> None:
        super().__init__(problem, decide, solve_ratio, pool_size, seed, mse_weight, cost_unit)
        self.margin = check_number_setting("margin", margin, least=0.0)

    def compare(self, cost: Tensor, true: Tensor, best: Tensor, pooled: PooledSolutions) -> Tensor:
        """Compute the mean over the pairs of the pool's best solution and another one."""
        sign, margin = self.problem.sign, self.margin * self.settle_unit(true)
        first = pooled.lowest(pooled.products(sign * true))[:, None]
        costs = pooled.products(sign * cost)
        short = pooled.where_filled((margin + costs.gather(1, first) - costs).clamp(min=0), 0.0)
        return short.scatter(1, first, 0.0).sum(1) / (pooled.count() - 1).clamp(min=1)
