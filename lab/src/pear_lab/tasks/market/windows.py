"""Windows over a history of returns, split in time so that no two parts have a day to predict in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from pear.errors import ProblemError

WINDOW, AHEAD = 63, 21
"""The default numbers of known and of predicted trading days: a quarter and a month."""


class Windows(NamedTuple):
    """The N windows of one part of a history of n assets. In each window the days to predict follow the known days.

    Attributes:
        known: (N, n, window) the returns up to the decision.
        days: (N, n, window + ahead) the returns of the known days and of the days to predict.
        starts: (N,) the row of the history at which each window starts.
    """

    known: Tensor
    days: Tensor
    starts: Tensor

    def every(self, stride: int) -> Windows:
        """Return every ``stride``-th window, beginning with the first."""
        return Windows(self.known[::stride], self.days[::stride], self.starts[::stride])


@dataclass(frozen=True)
class MarketSplit:
    """Training, validation and test windows, in the order of time.

    Attributes:
        train, validation, test: the windows of each part, one for each possible day of decision.
        borders: the rows of the history at which the days to predict begin, for validation and for test.
        ahead: the number of days to predict, which is also the number of days between two rebalancings.
    """

    train: Windows
    validation: Windows
    test: Windows
    borders: tuple[int, int]
    ahead: int

    @property
    def rebalancing(self) -> Windows:
        """The test windows at whose decisions the portfolio is rebalanced. They are ``ahead`` days apart."""
        return self.test.every(self.ahead)


def split_windows(
    returns: Tensor, window: int = WINDOW, ahead: int = AHEAD, shares: tuple[float, float] = (0.7, 0.1)
) -> MarketSplit:
    """Split a history in time, by default 70 : 10 : 20, into training, validation and test windows.

    A window belongs to the part that contains all its days to predict. A window whose days to predict lie in two parts
    is left out. The known days of a window may lie in an earlier part.

    Args:
        returns: (T, n) the history of T days, oldest day first.
        window: the number of known days.
        ahead: the number of days to predict.
        shares: the shares of the days for training and for validation; the rest is for the test.

    Raises:
        ProblemError: a part would be empty, a return is not finite, or an argument is invalid.

    Example:
        >>> import torch
        >>> split = split_windows(torch.zeros(1000, 2))
        >>> split.borders, len(split.train.days), len(split.validation.days), len(split.test.days)
        ((700, 800), 617, 80, 180)
        >>> len(split.rebalancing.days)
        9
    """
    if returns.dim() != 2 or not bool(returns.isfinite().all()):
        raise ProblemError(f"returns must be finite numbers of shape (days, assets); got shape {tuple(returns.shape)}")
    if window < 2 or ahead < 1:
        raise ProblemError(f"window must be at least 2 and ahead at least 1 day; got {window} and {ahead}")
    if not (min(shares) > 0 and sum(shares) < 1):
        raise ProblemError(f"shares must be two positive numbers that sum to less than 1; got {shares}")
    total = len(returns)
    first, second = round(shares[0] * total), round(sum(shares) * total)
    # A window that starts on day i has its targets on days i + window to i + window + ahead − 1.
    ranges = {
        "training": (0, first - window - ahead + 1),
        "validation": (max(0, first - window), second - window - ahead + 1),
        "test": (max(0, second - window), total - window - ahead + 1),
    }
    for name, (low, high) in ranges.items():
        if high <= low:
            raise ProblemError(
                f"{total} days of returns leave no window of {window} + {ahead} days for {name} (split {shares[0]:g} : "
                f"{shares[1]:g} : {1 - sum(shares):.3g}); use a longer history or shorter windows"
            )
    # ``unfold`` makes a view, which copies no days.
    days = returns.unfold(0, window + ahead, 1)
    train, validation, test = (
        Windows(days[low:high, :, :window], days[low:high], torch.arange(low, high)) for low, high in ranges.values()
    )
    return MarketSplit(train, validation, test, (first, second), ahead)
