"""``PointwiseLTRLoss``: learning to rank earlier solutions by their costs."""

from __future__ import annotations

from torch import Tensor

from pear.losses.pool_loss import PoolLoss
from pear.losses.solution_pool import PooledSolutions


class PointwiseLTRLoss(PoolLoss):
    """``ℓ = mean_v (ĉᵀv − cᵀv)² / u`` over the solutions v of a pool, mean over the batch; u is the unit of the costs.

    ĉ and c are the predicted and the true costs. The pool holds earlier solutions (see ``PoolLoss``). The loss is the
    squared error of the predicted objective values (pointwise learning to rank, Mandi et al., 2022). An error of the
    forecast that changes the cost of no solution does not count.

    Args:
        problem, decide, solve_ratio, pool_size, seed, mse_weight, cost_unit: as for ``PoolLoss``.

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
        """Compute the mean squared error of the solutions' objective values, (B,)."""
        squares = pooled.products(cost - true) ** 2
        return squares.sum(1) / (pooled.count() * self.settle_unit(true))
