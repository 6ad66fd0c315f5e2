"""``NCELoss``: noise-contrastive estimation, which compares the best decision with the mean of earlier solutions."""

from __future__ import annotations

from torch import Tensor

from pear.losses.pool_loss import PoolLoss
from pear.losses.solution_pool import PooledSolutions


class NCELoss(PoolLoss):
    """``ℓ = mean_v ĉᵀ(z*(c) − v)`` over the solutions v of a pool, mean over the batch; gradient ``z*(c) − mean_v v``.

    ĉ and c are the predicted and the true costs, and z*(c) is the best decision under c. The pool holds earlier
    solutions (see ``PoolLoss``). The loss falls as the forecast makes the best decision cheaper than these solutions
    (noise-contrastive estimation, Mulamba et al., 2021). It is linear in ĉ and has no least value, so that only its
    changes have a meaning; ``mse_weight`` keeps forecasts from growing without end. The paper's variant with ĉ − c
    instead of ĉ differs by a constant and has the same gradient. For maximisation every cost changes its sign.

    Args:
        problem, decide, solve_ratio, pool_size, seed, mse_weight, cost_unit: as for ``PoolLoss``.

    Example:
        >>> import torch, pear
        >>> from pear.losses import NCELoss
        >>> loss = NCELoss(pear.Problem(A=[[1.0, 1.0, 1.0]], b=[1.0], lb=0.0), solve_ratio=0.0)
        >>> unit = loss.calibrate([[1.0, 3.0, 3.0], [3.0, 1.0, 3.0]])  # two best decisions are in the pool
        >>> predicted = torch.tensor([[2.0, 1.0, 5.0]], requires_grad=True)
        >>> value = loss(predicted, torch.tensor([[1.0, 3.0, 3.0]]))
        >>> value.backward()
        >>> value.item(), predicted.grad
        (0.5, tensor([[ 0.5000, -0.5000,  0.0000]]))
    """

    def compare(self, cost: Tensor, true: Tensor, best: Tensor, pooled: PooledSolutions) -> Tensor:
        """Compute the predicted cost of the best decision minus the mean predicted cost of the pool, (B,)."""
        return self.problem.sign * (cost * (best - pooled.mean())).sum(1)
