"""The regret of the portfolios that follow from forecasts, window by window."""

from __future__ import annotations

import torch
from torch import Tensor

from pear.losses.regret_outcome import RegretOutcome
from pear.tasks.portfolio import Portfolio
from pear_lab.tasks.market.moments import moments
from pear_lab.tasks.market.windows import AHEAD
from pear_lab.tasks.metrics import published_regret_metric

_CHUNK = 128  # portfolios decided at once; bounds the memory


class Evaluation:
    """Scores forecasts of a fixed set of windows; the best portfolios are computed once.

    Args:
        task: what is decided.
        days: (N, n, T) the true returns, those known at the decision included.
        ahead: how many of them are forecast.

    Attributes:
        best: (N,) utility of the best portfolios under the true returns.
    """

    def __init__(self, task: Portfolio, days: Tensor, ahead: int = AHEAD) -> None:
        self.task, self.days, self.ahead = task, days.double(), ahead
        self.best = self._utility(self.weights(self.days))

    def weights(self, predicted: Tensor) -> Tensor:
        """Return the portfolios (N, n) that are optimal for predicted days (N, n, T)."""
        found = [self.task.weights(*moments(part, self.ahead)) for part in predicted.detach().double().split(_CHUNK)]
        return torch.cat(found)

    def outcome(self, predicted: Tensor) -> RegretOutcome:
        """Return the regret of the portfolios that are optimal for predicted days, in utility a day."""
        return self.outcome_of(self.weights(predicted))

    def outcome_of(self, weights: Tensor) -> RegretOutcome:
        """Return the regret of given portfolios (N, n)."""
        return RegretOutcome(self.best - self._utility(weights), self.best)

    def normalized_regret(self, predicted: Tensor, true: Tensor | None = None) -> float:
        """``Σ regret / (Σ |best utility| + 1e-7)``. ``true`` is ignored: the object already has the true days."""
        return published_regret_metric(self.outcome(predicted))

    def normalized_error(self, predicted: Tensor) -> float:
        """Return the squared error of the forecast days relative to that of forecasting zero."""
        true, guess = (days[:, :, -self.ahead :] for days in (self.days, predicted.detach().double()))
        return float((guess - true).square().sum() / true.square().sum())

    def _utility(self, weights: Tensor) -> Tensor:
        """Return the realised utility (N,) of portfolios (N, n), one for each window."""
        parts = zip(weights.split(_CHUNK), self.days.split(_CHUNK), strict=True)
        return torch.cat([self.task.utility(w, *moments(days, self.ahead)) for w, days in parts])
