"""Losses on days of returns: the error of the forecast, or what the portfolio that follows from it loses.

All take the days together, known and forecast, as the forecaster gives them: (B, n, window + ahead).
"""

from __future__ import annotations

import time
from typing import Any, Literal, Protocol, get_args

import torch
from torch import Tensor, nn

from pear.decisions.failures import report_failures
from pear.errors import ProblemError
from pear.losses import DecisionLayer, PEARLoss
from pear.problem.keys_and_columns import as_keys
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
"""Methods by name, and how tables write them."""


class ForecastLoss(nn.Module):
    """Mean squared error of the forecast days."""

    def __init__(self, ahead: int = AHEAD) -> None:
        super().__init__()
        self.ahead = ahead

    def forward(self, predicted: Tensor, true: Tensor) -> Tensor:
        """(B, n, T) days, predicted and true → a scalar."""
        return (predicted - true)[:, :, -self.ahead :].square().mean()


class Layer(Protocol):
    """A differentiable function from costs to portfolios.

    Attributes:
        seconds: that it has spent, "solve" among them.
    """

    seconds: dict[str, float]

    def __call__(self, cost: Tensor, Q: Tensor) -> Tensor:
        """(B, n) costs and (B, n, n) curvatures → (B, n) portfolios."""


class DecisionUtilityLoss(nn.Module):
    """The decision as a layer, and the loss |U(w*(true)) − U(w*(predicted))| of the realised utility.

    U(w) = μᵀw − ½γ wᵀΣw with the true μ and Σ; gradients run through μ̂ and Σ̂. This is how qpth and
    CvxpyLayers are trained in the paper. Since w*(true) is the best there is, the loss is the regret, and its exact
    gradient is that of ``PortfolioPEARLoss`` in the mode "exact".

    Args:
        task: what is decided.
        ahead: days of the forecast.
        layer: decides the forecast portfolios instead of ``DecisionLayer``; see ``Layer``. The true ones are ours.

    Attributes:
        seconds: spent on forward solves ("solve"); the backward pass counts for the rest. Another
            ``layer`` brings its own.
    """

    def __init__(self, task: Portfolio, ahead: int = AHEAD, layer: Layer | None = None) -> None:
        super().__init__()
        self.task, self.ahead = task, ahead
        self.own, self.other = DecisionLayer(task.problem), layer
        self.seconds = {"solve": 0.0, "gradient": 0.0} if layer is None else layer.seconds

    def forward(self, predicted: Tensor, true: Tensor, keys: Tensor | None = None) -> Tensor:
        """(B, n, T) days, predicted and true → a scalar; ``keys`` are ids of the samples."""
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
        """The utilities (B,) of the best portfolios, which are kept by id while μ and Σ are unchanged."""
        ids = as_keys(keys, len(mu))
        cost, Q = self.task.cost(mu).detach(), self.task.curvature(sigma).detach()
        with self.own.decider.locked(ids):
            best, status = self.own.decider.solve_true(cost, 0.0, ids, Q=Q)
        report_failures(status, "raise", "the true portfolio")
        return self.task.utility(best.x.to(mu), mu, sigma)


class PortfolioPEARLoss(nn.Module):
    """Regret of the portfolio with PEAR's gradient.

    "exact": μ̂ and Σ̂ are both forecasts. The loss is the regret under the true μ and Σ, and
    ``g = P[(ĉ − c) + (Q̂ − Q) w*]`` flows to μ̂, ``½ (g w*ᵀ + w* gᵀ)`` to Σ̂.

    "mean": Σ̂ is taken for the truth and held fixed, as in the paper's own code. The loss is the regret that would be
    if Σ̂ were right, ``g = P(ĉ − c)``, and nothing flows to Σ̂. Its value is therefore not the regret that is reported.

    Args:
        task: what is decided.
        mode: one of the two.
        injection: β, how much of the normal component is added to the gradient of μ̂; 0 leaves it exact.
        ahead: days of the forecast.

    Attributes:
        loss: the ``PEARLoss`` inside, with its statistics.
    """

    def __init__(self, task: Portfolio, mode: Mode = "exact", injection: float = 0.0, ahead: int = AHEAD) -> None:
        super().__init__()
        if mode not in get_args(Mode):
            raise ProblemError(f"mode must be 'exact' or 'mean'; got {mode!r}")
        self.task, self.mode, self.ahead = task, mode, ahead
        self.loss = PEARLoss(task.problem, smoothing=0.0, injection=injection, guidance=0.0)

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds spent so far on solving ("solve") and on projecting ("gradient")."""
        return self.loss.seconds

    def forward(self, predicted: Tensor, true: Tensor, keys: Tensor | None = None) -> Tensor:
        """(B, n, T) days, predicted and true → a scalar; ``keys`` are ids of the samples."""
        true_mu = true[:, :, -self.ahead :].mean(2)
        # with as many names as days, or more, the shift of Σ̂ is a constant
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
        """The same loss with less work: ``½ (g w*ᵀ + w* gᵀ)`` has rank two, so that no n × n matrix is needed.

        With Σ̂ = XXᵀ + a constant it is the gradient of ``gᵀXXᵀw*``, g and w* held fixed.
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
        method: the method of ``METHODS``; "injected" is β = 0.1.
        task: what is decided.
        ahead: days of the forecast.

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
