"""Losses of predicted returns: their squared error, or the regret of the portfolio that is optimal for them.

All losses take days (B, n, T) as ``Forecaster`` returns them: first the known days, then ``ahead`` predicted ones.
"""

from __future__ import annotations

import time
from typing import Any, Literal, Protocol, get_args

import torch
from torch import Tensor, nn

from pear.decisions.failures import report_failures
from pear.errors import ProblemError
from pear.losses import DecisionLayer, PEARLoss
from pear.problem.sample_keys import as_keys
from pear.tasks.portfolio import Portfolio
from pear_lab.tasks.market.moments import moments, moments_factor
from pear_lab.tasks.market.windows import AHEAD

Mode = Literal["exact", "mean"]

METHODS: dict[str, str] = {
    "mse": "MSE",
    "layer": "Layer (ours)",
    "pear-mean": "PEAR, mean",
    "pear-exact": "PEAR, exact",
    "pear-mean-injected": "PEAR, mean, β = 0.1",
    "pear-exact-injected": "PEAR, exact, β = 0.1",
}
"""The methods, each with its name in tables."""


class ForecastLoss(nn.Module):
    """The mean squared error of the predicted days.

    Args:
        ahead: the number of predicted days, which are the last of all days.
    """

    def __init__(self, ahead: int = AHEAD) -> None:
        super().__init__()
        self.ahead = ahead

    def forward(self, predicted: Tensor, true: Tensor) -> Tensor:
        """Return the mean squared error (a scalar) over the last ``ahead`` of T days; both arguments are (B, n, T)."""
        return (predicted - true)[:, :, -self.ahead :].square().mean()


class PortfolioLayer(Protocol):
    """A differentiable function from costs and curvatures to optimal portfolios.

    Attributes:
        seconds: the seconds spent so far, by kind of work; "solve" is one of the kinds.
    """

    seconds: dict[str, float]

    def __call__(self, cost: Tensor, Q: Tensor) -> Tensor:
        """Return the portfolios (B, n) for costs (B, n) and curvatures (B, n, n)."""


class DecisionUtilityLoss(nn.Module):
    """The utility lost by the predicted portfolio, ``|U(w*) − U(ŵ)|``, differentiated through a decision layer.

    The utility ``U(w) = μᵀw − ½γ wᵀΣw`` has the true mean μ, the true covariance Σ and the risk aversion γ. The
    portfolio w* is optimal for μ and Σ, and ŵ for their predictions μ̂ and Σ̂. Gradients flow to μ̂ and Σ̂. PEAR's
    paper uses this loss with the layers of qpth and CvxpyLayers. As w* is optimal, the loss is the regret, and its
    gradient equals that of ``PortfolioPEARLoss`` in the mode "exact" without injection.

    Args:
        task: the portfolio problem.
        ahead: the number of predicted days.
        layer: the layer that computes ŵ; ``DecisionLayer`` if omitted. ``DecisionLayer`` always computes w*.

    Attributes:
        seconds: the seconds spent on solving ("solve"). If ``layer`` is given, this is the dictionary
            ``layer.seconds``, to which the time for w* is added.
    """

    def __init__(self, task: Portfolio, ahead: int = AHEAD, layer: PortfolioLayer | None = None) -> None:
        super().__init__()
        self.task, self.ahead = task, ahead
        self.own, self.other = DecisionLayer(task.problem), layer
        self.seconds = {"solve": 0.0, "gradient": 0.0} if layer is None else layer.seconds

    def forward(self, predicted: Tensor, true: Tensor, keys: Tensor | None = None) -> Tensor:
        """Return the mean loss (a scalar) of predicted and true days (B, n, T); ``keys`` (B,) identify the samples."""
        mu, sigma = moments(predicted, self.ahead)
        true_mu, true_sigma = moments(true, self.ahead)
        cost, Q = self.task.cost(mu), self.task.curvature(sigma)
        other = None if self.other is None else self.other(cost, Q)
        began = time.perf_counter()
        weights = self.own(cost, Q=Q, keys=keys) if other is None else other
        best = self._best_utility(true_mu, true_sigma, keys)
        self.seconds["solve"] += time.perf_counter() - began
        return (best - self.task.utility(weights, true_mu, true_sigma)).abs().mean()

    def _best_utility(self, mu: Tensor, sigma: Tensor, keys: Tensor | None) -> Tensor:
        """Return the utilities (B,) of the best portfolios. They are cached by key while μ and Σ are unchanged."""
        ids = as_keys(keys, len(mu))
        cost, Q = self.task.cost(mu).detach(), self.task.curvature(sigma).detach()
        with self.own.decider.locked(ids):
            best, status = self.own.decider.solve_true(cost, 0.0, ids, Q=Q)
        report_failures(status, "raise", "the true portfolio")
        return self.task.utility(best.x.to(mu), mu, sigma)


class PortfolioPEARLoss(nn.Module):
    """The regret of the predicted portfolio, with PEAR's gradient.

    Costs are c = −μ and the curvature is Q = γΣ, with the mean μ, the covariance Σ and the risk aversion γ. A hat marks
    predictions. The portfolio ŵ is optimal for μ̂ and Σ̂, and P projects onto the tangent space of the constraints that
    are active at ŵ.

    In the mode "exact" the loss is the regret under the true μ and Σ. The gradient with respect to ĉ is
    ``g = P[(ĉ − c) + (Q̂ − Q) ŵ]``, and that with respect to Q̂ is ``½ (g ŵᵀ + ŵ gᵀ)``.

    In the mode "mean" the predicted covariance replaces the true one, as in the code of PEAR's paper. The loss is the
    regret under μ and Σ̂, the gradient with respect to ĉ is ``g = P(ĉ − c)``, and Σ̂ has no gradient. The value of the
    loss differs from the reported regret, which is computed with the true Σ.

    Args:
        task: the portfolio problem.
        mode: "exact" or "mean".
        injection: β ≥ 0; 0 for the exact gradient. P removes a part of the vector that it projects. This part, scaled
            to β times the length of g, is added to g.
        ahead: the number of predicted days.

    Attributes:
        loss: the ``PEARLoss`` that computes regret and gradient.
    """

    def __init__(self, task: Portfolio, mode: Mode = "exact", injection: float = 0.0, ahead: int = AHEAD) -> None:
        super().__init__()
        if mode not in get_args(Mode):
            raise ProblemError(f"mode must be 'exact' or 'mean'; got {mode!r}")
        self.task, self.mode, self.ahead = task, mode, ahead
        self.loss = PEARLoss(task.problem, smoothing=0.0, injection=injection, guidance=0.0)

    @property
    def seconds(self) -> dict[str, float]:
        """The seconds spent so far on solving ("solve") and on projecting ("gradient")."""
        return self.loss.seconds

    def forward(self, predicted: Tensor, true: Tensor, keys: Tensor | None = None) -> Tensor:
        """Return the mean loss (a scalar) of predicted and true days (B, n, T); ``keys`` (B,) identify the samples."""
        true_mu = true[:, :, -self.ahead :].mean(2)
        # with at least as many assets as days, the shift of Σ̂ is a constant
        constant = predicted.shape[1] >= predicted.shape[2]
        if self.mode == "exact" and constant and self.loss.injection == 0 and predicted.requires_grad:
            return self._by_factor(predicted, true, true_mu, keys)
        mu, sigma = moments(predicted, self.ahead)
        Q = self.task.curvature(sigma)
        if self.mode == "mean":
            true_Q = Q = Q.detach()
        else:
            true_Q = self.task.curvature(moments(true, self.ahead)[1])
        return self.loss(self.task.cost(mu), self.task.cost(true_mu), keys=keys, Q=Q, true_Q=true_Q)

    def _by_factor(self, predicted: Tensor, true: Tensor, true_mu: Tensor, keys: Tensor | None) -> Tensor:
        """Return the loss of the mode "exact" without computing the n × n gradient with respect to Σ̂.

        There must be at least as many assets as days. Let X be the result of ``moments_factor``. Then Q̂ = γΣ̂ is γXXᵀ
        plus a constant. If g and ŵ are held constant, the scalar ``γ gᵀXXᵀŵ`` has the gradient ``½ (g ŵᵀ + ŵ gᵀ)``
        with respect to Q̂, which is that of the loss. The loss therefore gets its gradient with respect to X from this
        scalar.
        """
        with torch.no_grad():
            Q = self.task.curvature(moments(predicted, self.ahead)[1])
            true_Q = self.task.curvature(moments(true, self.ahead)[1])
        cost = self.task.cost(predicted[:, :, -self.ahead :].mean(2))
        leaf = cost.detach().requires_grad_()
        value, details = self.loss.detailed(leaf, self.task.cost(true_mu), keys=keys, Q=Q, true_Q=true_Q)
        (g,) = torch.autograd.grad(value, leaf)
        X = moments_factor(predicted)
        products = [torch.einsum("bit,bi->bt", X, v) for v in (g, details.decision.to(g.dtype))]
        slope = (g * cost).sum() + self.task.risk_aversion * (products[0] * products[1]).sum()
        return value.detach() + slope - slope.detach()


def market_loss(method: str, task: Portfolio, ahead: int = AHEAD) -> nn.Module:
    """Make the loss of a method.

    Args:
        method: a key of ``METHODS``.
        task: the portfolio problem.
        ahead: the number of predicted days.

    Example:
        >>> from pear.tasks import portfolio
        >>> market_loss("pear-mean-injected", portfolio(3)).loss.injection
        0.1
    """
    if method not in METHODS:
        raise ProblemError(f"there is no method {method!r} for portfolios; there is {', '.join(METHODS)}")
    if method == "mse":
        return ForecastLoss(ahead)
    if method == "layer":
        return DecisionUtilityLoss(task, ahead)
    options: dict[str, Any] = {"mode": method.split("-")[1], "injection": 0.1 if method.endswith("injected") else 0.0}
    return PortfolioPEARLoss(task, ahead=ahead, **options)
