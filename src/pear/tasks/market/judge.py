"""What forecasts are worth: regret of the portfolios that follow from them, window by window."""

from __future__ import annotations

import torch
from torch import Tensor

from pear.tasks.market.moments import moments
from pear.tasks.market.windows import AHEAD
from pear.tasks.portfolio import Portfolio
from pear.tasks.task import TINY

_CHUNK = 128  # portfolios decided at once; bounds the memory


class Judge:
    """Judges forecasts of the same windows, whose best portfolios are found once.

    Args:
        task: what is decided.
        days: (N, n, T) the days that came true, those known at the decision included.
        ahead: how many of them are forecast.

    Attributes:
        best: (N,) utility of the best portfolios under what came true.
    """

    def __init__(self, task: Portfolio, days: Tensor, ahead: int = AHEAD) -> None:
        self.task, self.days, self.ahead = task, days.double(), ahead
        self.best = self._utility(self.weights(self.days))

    def weights(self, predicted: Tensor) -> Tensor:
        """(N, n) the portfolios that follow from predicted days (N, n, T)."""
        found = [self.task.weights(*moments(part, self.ahead)) for part in predicted.detach().double().split(_CHUNK)]
        return torch.cat(found)

    def regrets(self, predicted: Tensor) -> Tensor:
        """(N,) what those portfolios lose against the best, in utility of a day."""
        return self.regrets_of(self.weights(predicted))

    def regrets_of(self, weights: Tensor) -> Tensor:
        """(N,) what given portfolios (N, n) lose."""
        return self.best - self._utility(weights)

    def normalized_regret(self, predicted: Tensor) -> float:
        """``Σ regret / (Σ |best utility| + 1e-7)``."""
        return float(self.regrets(predicted).sum() / (self.best.abs().sum() + TINY))

    def normalized_error(self, predicted: Tensor) -> float:
        """Squared error of the forecast days relative to that of forecasting zero."""
        true, guess = (days[:, :, -self.ahead :] for days in (self.days, predicted.detach().double()))
        return float((guess - true).square().sum() / true.square().sum())

    def _utility(self, weights: Tensor) -> Tensor:
        parts = zip(weights.split(_CHUNK), self.days.split(_CHUNK), strict=True)
        return torch.cat([self.task.utility(w, *moments(days, self.ahead)) for w, days in parts])
