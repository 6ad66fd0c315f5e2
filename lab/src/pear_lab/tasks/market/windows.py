"""Windows over a history of returns, split in time so that no split contains targets of another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from pear.errors import ProblemError

WINDOW, AHEAD = 63, 21
"""Trading days that are known, and days that are forecast: a quarter and a month."""


class Windows(NamedTuple):
    """The windows of one split; in each, the days to forecast follow the known days.

    Attributes:
        known: (N, n, window) returns up to the decision.
        days: (N, n, window + ahead) the same with the returns that came after it.
        starts: (N,) the row of the history that each window starts with.
    """

    known: Tensor
    days: Tensor
    starts: Tensor

    def every(self, stride: int) -> Windows:
        """Every ``stride``-th window, beginning with the first."""
        return Windows(self.known[::stride], self.days[::stride], self.starts[::stride])


@dataclass(frozen=True)
class MarketSplit:
    """Train, validation and test in the order of time.

    Attributes:
        train, validation, test: windows, one for each day on which a decision could be taken.
        borders: the rows of the history at which the targets of the validation and of the test begin.
        ahead: days between two rebalancings.
    """

    train: Windows
    validation: Windows
    test: Windows
    borders: tuple[int, int]
    ahead: int

    @property
    def rebalancing(self) -> Windows:
        """The test windows on which the portfolio is rebalanced, ``ahead`` days apart: no two share a target."""
        return self.test.every(self.ahead)


def split_windows(
    returns: Tensor, window: int = WINDOW, ahead: int = AHEAD, shares: tuple[float, float] = (0.7, 0.1)
) -> MarketSplit:
    """Cut a history 70 : 10 : 20 in time.

    A window belongs to the split in which all its ``ahead`` target days lie; windows whose targets reach over a border
    belong to none. The known days of a validation window may lie before its border: they are the past at that time.

    Args:
        returns: (T, n) the history, oldest first.
        window: days known at the decision.
        ahead: days that the forecast covers.
        shares: the shares of the days for training and for validation; the rest is for the test.

    Raises:
        ProblemError: a split would be empty, or a return is not a number.

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
    # A view: days are not copied until a batch is taken.
    days = returns.unfold(0, window + ahead, 1)
    train, validation, test = (
        Windows(days[low:high, :, :window], days[low:high], torch.arange(low, high)) for low, high in ranges.values()
    )
    return MarketSplit(train, validation, test, (first, second), ahead)
