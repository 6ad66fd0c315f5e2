"""``CMAPLoss``: the best decision against the solution of a pool that the forecast prefers."""

from __future__ import annotations

from torch import Tensor

from pear.losses.pool_loss import PoolLoss
from pear.losses.solution_pool import PooledSolutions


class CMAPLoss(PoolLoss):
    """``ℓ = ĉᵀz*(c) − min_v ĉᵀv`` over the solutions v of a pool, mean over the batch; gradient ``z*(c) − v``.

    This is the contrastive MAP loss (Mulamba et al., 2021): ``NCELoss`` with the one solution of the pool that the
    forecast prefers. It is zero where that is the best decision. The paper's variant with ĉ − c instead of ĉ has
    the same gradient. For maximisation every cost changes its sign.

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
        """Compare the best decision with the cheapest solution of the pool under the forecast."""
        sign = self.problem.sign
        preferred = pooled.at(pooled.lowest(pooled.products(sign * cost.detach())))
        return sign * (cost * (best - preferred)).sum(1)
