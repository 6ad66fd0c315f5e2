"""``NCELoss``: noise-contrastive estimation against a pool of solutions."""

from __future__ import annotations

from torch import Tensor

from pear.losses.pool_loss import PoolLoss
from pear.losses.solution_pool import PooledSolutions


class NCELoss(PoolLoss):
    """``ℓ = mean_v ĉᵀ(z*(c) − v)`` over the solutions v of a pool, mean over the batch; gradient ``z*(c) − mean_v v``.

    The best decision should look cheaper than the solutions of the pool (noise-contrastive estimation, Mulamba et al.,
    2021). The loss is linear in ĉ and has no least value, so that only changes of it are meaningful; ``mse_weight``
    keeps forecasts from growing without end. The paper's variant with ĉ − c instead of ĉ differs by a constant,
    and has the same gradient. For maximisation every cost changes its sign.

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
        """Compare the best decision with the mean of the pool, which costs what its solutions cost on average."""
        return self.problem.sign * (cost * (best - pooled.mean())).sum(1)
