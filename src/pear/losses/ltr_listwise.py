"""``ListwiseLTRLoss``: learning to rank a pool of solutions as a whole."""

from __future__ import annotations

import math
from typing import Literal

from torch import Tensor

from pear.losses.decision_loss import Decide
from pear.losses.pool_loss import PoolLoss
from pear.losses.solution_pool import PooledSolutions
from pear.problem import Model, Problem
from pear.setting_checks import check_positive_setting


class ListwiseLTRLoss(PoolLoss):
    """``ℓ = −u Σ_v p(v; c) log p(v; ĉ)`` over the solutions v of a pool, where p(v; c) ∝ exp(−cᵀv / τu).

    The forecast should give each solution of the pool the probability that it has under the true costs (listwise
    learning to rank, Mandi et al., 2022): the cheaper a solution, the likelier. u is the unit of the costs. The least
    value is not zero: it is u times the entropy of p(·; c). For maximisation every cost changes its sign.

    Args:
        problem: the decision problem, with a linear objective.
        decide: maps costs (B, n) to best decisions (B, n); ``pear.solve`` on ``problem`` if omitted.
        temperature: τ > 0, in units of the costs: a solution that costs τ more is e times less likely.
        solve_ratio: the share of the steps in which solutions for the forecasts join the pool.
        pool_size: the largest number of solutions in a pool, see ``PoolLoss``.
        seed: the seed of the random choice of these steps.
        mse_weight: weight of ``½ ‖ĉ − c‖² / u``, mean over the samples, added to the loss.
        cost_unit: u, the unit of the costs; "auto" is their typical deviation, see ``DecisionLoss``.

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
        solve_ratio: float = 0.05,
        pool_size: int = 1000,
        seed: int = 135,
        mse_weight: float = 0.0,
        cost_unit: float | Literal["auto"] = "auto",
    ) -> None:
        super().__init__(problem, decide, solve_ratio, pool_size, seed, mse_weight, cost_unit)
        self.temperature = check_positive_setting("temperature", temperature)

    def compare(self, cost: Tensor, true: Tensor, best: Tensor, pooled: PooledSolutions) -> Tensor:
        """Compute the cross-entropy of the probabilities under the true and under the predicted costs."""
        unit = self.settle_unit(true)
        scale = -self.problem.sign / (self.temperature * unit)
        wanted, got = (
            pooled.where_filled(pooled.products(scale * each), -math.inf).log_softmax(1) for each in (true, cost)
        )
        return -unit * (wanted.exp() * pooled.where_filled(got, 0.0)).sum(1)
