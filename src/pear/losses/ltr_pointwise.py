"""``PointwiseLTRLoss``: learning to rank a pool of solutions by what each of them costs."""

from __future__ import annotations

from torch import Tensor

from pear.losses.pool_loss import PoolLoss
from pear.losses.solution_pool import PooledSolutions


class PointwiseLTRLoss(PoolLoss):
    """``ℓ = mean_v (ĉᵀv − cᵀv)² / u`` over the solutions v of a pool, mean over the batch; u is the unit of the costs.

    The forecast should tell what each solution of the pool costs (pointwise learning to rank, Mandi et al., 2022). An
    error of the forecast that no solution pays for does not count.

    Args:
        problem: the decision problem, with a linear objective.
        decide: maps costs (B, n) to best decisions (B, n); ``pear.solve`` on ``problem`` if omitted.
        solve_ratio: the share of the steps in which solutions for the forecasts join the pool.
        pool_size: the largest number of solutions in a pool, see ``PoolLoss``.
        seed: the seed of the random choice of these steps.
        mse_weight: weight of ``½ ‖ĉ − c‖² / u``, mean over the samples, added to the loss.
        cost_unit: u, the unit of the costs; "auto" is their typical deviation, see ``DecisionLoss``.

    Example:
        >>> import torch, pear
        >>> from pear.losses import PointwiseLTRLoss
        >>> problem = pear.Problem(A=[[1.0, 1.0, 1.0]], b=[1.0], lb=0.0)
        >>> loss = PointwiseLTRLoss(problem, solve_ratio=0.0, cost_unit=1.0)
        >>> unit = loss.calibrate([[1.0, 3.0, 3.0], [3.0, 1.0, 3.0]])  # two best decisions are in the pool
        >>> predicted = torch.tensor([[2.0, 1.0, 5.0]], requires_grad=True)
        >>> value = loss(predicted, torch.tensor([[1.0, 3.0, 3.0]]))
        >>> value.backward()
        >>> value.item(), predicted.grad  # the third entry belongs to no solution of the pool
        (2.5, tensor([[ 1., -2.,  0.]]))
    """

    def compare(self, cost: Tensor, true: Tensor, best: Tensor, pooled: PooledSolutions) -> Tensor:
        """Compute the mean squared error of the solutions' costs."""
        squares = pooled.products(cost - true) ** 2
        return squares.sum(1) / (pooled.count() * self.settle_unit(true))
