"""Portfolios: one unit of money, divided among assets by mean return and risk."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from pear.errors import ProblemError
from pear.problem import Problem
from pear.problem.tensor_conversion import ArrayLike, to_tensor
from pear.tasks.task import Task


@dataclass(frozen=True)
class Portfolio(Task):
    """A portfolio of n assets: weights w that minimise ``½ γ wᵀΣw − μᵀw`` with ``w₁ + … + wₙ = 1`` and ``w ≥ lower``.

    The returns μ and their covariance Σ may both be forecast. The problem therefore contains only the constraints.
    Every call passes the cost −μ (see ``cost``) and the curvature ``Q = γΣ`` (see ``curvature``).

    Attributes:
        risk_aversion: the risk aversion γ.
    """

    risk_aversion: float

    def cost(self, returns: ArrayLike) -> Tensor:
        """Return the cost −μ of returns μ (n,) or (B, n), for ``pear.solve`` and ``PEARLoss``; differentiable."""
        return -to_tensor("returns", returns)

    def curvature(self, covariance: ArrayLike) -> Tensor:
        """Return the curvature γΣ of a covariance Σ (n, n) or (B, n, n), for arguments named ``Q``; differentiable."""
        return self.risk_aversion * to_tensor("covariance", covariance)

    def decide(self, cost: Any, Q: Any = None) -> Tensor:
        """Return the optimal weights (B, n).

        Args:
            cost: (B, n) or (n,) costs −μ; see ``cost``.
            Q: (n, n) or (B, n, n) curvature γΣ; see ``curvature``.

        Raises:
            ProblemError: Q is missing.
        """
        if Q is None:
            raise ProblemError(
                "a portfolio is decided by returns and risk, and Q is missing; pass Q=task.curvature(covariance), or "
                "call task.weights(returns, covariance)"
            )
        return super().decide(cost, Q)

    def decide_relaxed(self, cost: Any) -> Tensor:
        """Raise a ``ProblemError``, because a portfolio needs a curvature, which is no argument of this method."""
        return self.decide(cost)

    def weights(self, returns: ArrayLike, covariance: ArrayLike) -> Tensor:
        """Return the optimal weights (B, n) for returns μ (n,) or (B, n) and covariance Σ (n, n) or (B, n, n).

        The result is not differentiable.
        """
        return self.decide(self.cost(returns), self.curvature(covariance).detach())

    def utility(self, weights: Tensor, returns: Tensor, covariance: Tensor) -> Tensor:
        """Return the utility ``μᵀw − ½γ wᵀΣw``, (B,), for w and μ (B, n) and Σ (B, n, n); differentiable."""
        return -self.problem.objective(weights, self.cost(returns), Q=self.curvature(covariance))


def portfolio(n: int, risk_aversion: float = 1.0, lower: float | None = 0.0) -> Portfolio:
    """Return a portfolio of n assets whose weights sum to 1.

    Args:
        n: the number of assets.
        risk_aversion: the risk aversion γ, above 0.
        lower: the smallest weight of every asset, at most 1/n. 0 forbids short positions; None or −inf allows them all.

    Example:
        >>> import pear
        >>> task = pear.tasks.portfolio(2, risk_aversion=2.0)
        >>> cost, Q = task.cost([[0.3, 0.1]]), task.curvature([[0.2, 0.0], [0.0, 0.2]])
        >>> pear.solve(task.problem, cost, Q=Q).x
        tensor([[0.7500, 0.2500]], dtype=torch.float64)
    """
    if n != int(n) or n < 1:
        raise ProblemError(f"a portfolio needs a whole number of assets, at least 1; got {n!r}")
    if not 0 < risk_aversion < math.inf:
        raise ProblemError(f"risk_aversion must be a positive number; got {risk_aversion!r}")
    least = -math.inf if lower is None else float(lower)
    if not least * n <= 1:
        raise ProblemError(f"lower must be at most 1/n = {1 / n:g}, or the weights cannot sum to 1; got {lower!r}")
    problem = Problem(A=[[1.0] * n], b=[1.0], lb=least, sense="min")
    return Portfolio(f"portfolio_{n}_assets", problem, float(risk_aversion))
