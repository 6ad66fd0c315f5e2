"""``CMAPLoss``: compares the best decision with the earlier solution that is cheapest under the forecast."""

from __future__ import annotations

from torch import Tensor

from pear.losses.pool_loss import PoolLoss
from pear.losses.solution_pool import PooledSolutions


class CMAPLoss(PoolLoss):
    """``ℓ = ĉᵀz*(c) − min_v ĉᵀv`` over the solutions v of a pool, mean over the batch.

    ĉ and c are the predicted and the true costs, and z*(c) is the best decision under c. The pool holds earlier
    solutions (see ``PoolLoss``). Let v be the solution of the pool that is cheapest under ĉ. The gradient is
    ``z*(c) − v``, and the loss is zero if v is z*(c). This is the contrastive MAP loss (Mulamba et al., 2021).
    ``NCELoss`` compares z*(c) with the mean of the pool instead of v. The paper's variant with ĉ − c instead of ĉ has
    the same gradient. For maximisation every cost changes its sign.

    Args:
        problem, decide, solve_ratio, pool_size, seed, mse_weight, cost_unit: as for ``PoolLoss``.

    Example:
        >>> import torch, pear
        >>> from pear.losses import CMAPLoss
        >>> loss = CMAPLoss(pear.Problem(A=[[1.0, 1.0, 1.0]], b=[1.0], lb=0.0), solve_ratio=0.0)
        >>> unit = loss.calibrate([[1.0, 3.0, 3.0], [3.0, 1.0, 3.0]])  # two best decisions are in the pool
        >>> predicted = torch.tensor([[2.0, 1.0, 0.0]], requires_grad=True)
        >>> value = loss(predicted, torch.tensor([[1.0, 3.0, 3.0]]))
        >>> value.backward()
        >>> value.item(), predicted.grad
        (1.0, tensor([[ 1., -1.,  0.]]))
    """

    def compare(self, cost: Tensor, true: Tensor, best: Tensor, pooled: PooledSolutions) -> Tensor:
        """Compute the predicted cost of the best decision minus that of the cheapest solution of the pool, (B,)."""
        sign = self.problem.sign
        preferred = pooled.at(pooled.lowest(pooled.products(sign * cost.detach())))
        return sign * (cost * (best - preferred)).sum(1)
