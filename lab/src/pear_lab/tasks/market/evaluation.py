"""The evaluation of predicted returns by the regret of the portfolios that are optimal for them."""

from __future__ import annotations

import torch
from torch import Tensor

from pear.losses.regret_outcome import RegretOutcome
from pear.tasks.portfolio import Portfolio
from pear_lab.tasks.market.moments import moments
from pear_lab.tasks.market.windows import AHEAD
from pear_lab.tasks.metrics import published_regret_metric

_CHUNK = 128  # the number of portfolios that are computed at once, which bounds the memory


class Evaluation:
    """The true returns of N windows, with methods that score forecasts of them.

    Args:
        task: the portfolio problem.
        days: (N, n, T) the true returns of n assets on T days: first the days known at the decision, then the days to
            predict.
        ahead: the number of predicted days.

    Attributes:
        best: (N,) the utility of the best portfolio of each window under the true returns.
    """

    def __init__(self, task: Portfolio, days: Tensor, ahead: int = AHEAD) -> None:
        self.task, self.days, self.ahead = task, days.double(), ahead
        self.best = self._utility(self.weights(self.days))

    def weights(self, predicted: Tensor) -> Tensor:
        """Return the portfolios (N, n) that are optimal if the days ``predicted`` (N, n, T) come true.

        The days are known returns followed by predicted ones.
        """
        found = [self.task.weights(*moments(part, self.ahead)) for part in predicted.detach().double().split(_CHUNK)]
        return torch.cat(found)

    def outcome(self, predicted: Tensor) -> RegretOutcome:
        """Return regret and best utility (N,) of the portfolios that are optimal for the days ``predicted`` (N, n, T).

        Both are daily values.
        """
        return self.outcome_of(self.weights(predicted))

    def outcome_of(self, weights: Tensor) -> RegretOutcome:
        """Return regret and best utility (N,) of the portfolios ``weights`` (N, n). Both are daily values."""
        return RegretOutcome(self.best - self._utility(weights), self.best)

    def normalized_regret(self, predicted: Tensor, true: Tensor | None = None) -> float:
        """Return the normalised regret of a forecast, ``Σ regret / (Σ |best utility| + 1e-7)``.

        Args:
            predicted: (N, n, T) known returns followed by predicted ones.
            true: ignored. Trainings pass the true days, which this object has already.
        """
        return published_regret_metric(self.outcome(predicted))

    def normalized_error(self, predicted: Tensor) -> float:
        """Return the squared error of the predicted days, divided by the squared error of predicting 0 on all days."""
        true, guess = (days[:, :, -self.ahead :] for days in (self.days, predicted.detach().double()))
        return float((guess - true).square().sum() / true.square().sum())

    def _utility(self, weights: Tensor) -> Tensor:
        """Return the realised utility (N,) of portfolios (N, n), one for each window."""
        parts = zip(weights.split(_CHUNK), self.days.split(_CHUNK), strict=True)
        return torch.cat([self.task.utility(w, *moments(days, self.ahead)) for w, days in parts])
