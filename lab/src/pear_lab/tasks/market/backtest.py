"""A backtest: portfolios are rebalanced at regular intervals, and trading costs money."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from pear.errors import ProblemError

YEAR = 252
"""The number of trading days of a year."""

COST = 0.001
"""The cost of trading, as a share of the value that is bought and sold."""


class Backtest(NamedTuple):
    """The returns, value and turnover of a sequence of portfolios.

    Attributes:
        returns: (D,) the daily returns, less trading costs on days of rebalancing.
        value: (D,) the value at the end of each day, with a value of 1 at the start.
        turnover: (K,) ``Σᵢ |wᵢ − hᵢ|`` at each of the K rebalancings, from the portfolio h to the portfolio w. Before
            the first purchase h is zero.
    """

    returns: Tensor
    value: Tensor
    turnover: Tensor

    @property
    def cumulative_return(self) -> float:
        """The return over all days, ``Π (1 + r) − 1`` with the daily returns r."""
        return float(self.value[-1]) - 1.0

    @property
    def annual_return(self) -> float:
        """The annual return: 252 times the mean daily return."""
        return YEAR * float(self.returns.mean())

    @property
    def volatility(self) -> float:
        """The annual volatility: √252 times the sample standard deviation of the daily returns."""
        return math.sqrt(YEAR) * float(self.returns.std())

    @property
    def sharpe(self) -> float:
        """The Sharpe ratio: annual return over volatility, with a risk-free rate of zero.

        It is 0 if the volatility is 0.
        """
        return self.annual_return / self.volatility if self.volatility > 0 else 0.0

    @property
    def max_drawdown(self) -> float:
        """The largest fall below an earlier maximum of the value, as a negative share of that maximum."""
        return float(_backtest_drawdowns(self.value).min())

    @property
    def mean_turnover(self) -> float:
        """The mean turnover of all rebalancings after the first purchase; 0 if there are none."""
        return float(self.turnover[1:].mean()) if len(self.turnover) > 1 else 0.0

    def summary(self) -> dict[str, float]:
        """Return the six measures by name, from ``cumulative_return`` to ``mean_turnover``."""
        names = ("cumulative_return", "annual_return", "volatility", "sharpe", "max_drawdown", "mean_turnover")
        return {name: getattr(self, name) for name in names}


class Drawdown(NamedTuple):
    """A fall of the value, from its peak to its recovery. Days are counted from 0.

    Attributes:
        peak: the day of the highest value before the fall; −1 if this is the value of 1 before the first day.
        trough: the day of the lowest value during the fall.
        end: the day of the recovery; the last day if the value does not recover.
        depth: the fall as a negative share of the highest value before it.
    """

    peak: int
    trough: int
    end: int
    depth: float


def backtest(weights: Tensor, returns: Tensor, ahead: int, cost: float = COST) -> Backtest:
    """Return the result of holding each portfolio for ``ahead`` days, and then rebalancing to the next one.

    Nothing is traded between rebalancings, so that the weights drift with the returns.

    Args:
        weights: (K, n) portfolios in the order of time, each with a sum of 1.
        returns: (D, n) the returns of the days after the first decision, with K = ⌈D / ahead⌉.
        ahead: the number of days between rebalancings.
        cost: the cost of trading as a share of the turnover.

    Example:
        >>> w = torch.tensor([[0.5, 0.5], [0.5, 0.5]])
        >>> result = backtest(w, torch.tensor([[1.0, 0.0], [0.0, 0.0]]), ahead=1, cost=0.0)
        >>> result.value, result.turnover
        (tensor([1.5000, 1.5000]), tensor([1.0000, 0.3333]))
    """
    if weights.dim() != 2 or returns.dim() != 2 or weights.shape[1] != returns.shape[1]:
        raise ProblemError(
            f"weights must be (K, n) and returns (D, n); got {tuple(weights.shape)} and {tuple(returns.shape)}"
        )
    if ahead < 1 or len(weights) != math.ceil(len(returns) / ahead):
        raise ProblemError(
            f"{len(returns)} days with a rebalancing every {ahead} need {math.ceil(len(returns) / max(ahead, 1))} "
            f"portfolios; got {len(weights)}"
        )
    value, held = 1.0, torch.zeros_like(weights[0])
    values, turnover = [], []
    for target, days in zip(weights, returns.split(ahead), strict=True):
        turnover.append((target - held).abs().sum())
        value *= 1.0 - cost * float(turnover[-1])
        grown = target * (1.0 + days).cumprod(0)
        values.append(value * grown.sum(1))
        _refuse_ruined_backtest(values[-1])
        value = float(values[-1][-1])
        held = grown[-1] / grown[-1].sum()
    path = torch.cat(values)
    before = torch.cat([path.new_ones(1), path[:-1]])
    return Backtest(path / before - 1.0, path, torch.stack(turnover))


def deepest_drawdowns(value: Tensor, count: int = 2) -> list[Drawdown]:
    """Return the deepest falls that do not overlap, in the order of time.

    Args:
        value: (D,) the value at the end of each day, with a value of 1 at the start.
        count: the largest number of falls to return.

    Example:
        >>> [d.depth for d in deepest_drawdowns(torch.tensor([1.0, 0.5, 1.0, 0.75, 2.0, 1.9]))]
        [-0.5, -0.25]
    """
    below = _backtest_drawdowns(value)
    found, start = [], -1
    for day, depth in enumerate([*below.tolist(), 0.0]):
        if depth < 0 and start < 0:
            start = day
        elif depth >= 0 and start >= 0:
            trough = start + int(below[start:day].argmin())
            found.append(Drawdown(start - 1, trough, min(day, len(below) - 1), float(below[trough])))
            start = -1
    return sorted(sorted(found, key=lambda fall: fall.depth)[:count])


def _backtest_drawdowns(value: Tensor) -> Tensor:
    """Return ``value / (highest value so far) − 1`` for each of the D days (D,).

    The value before the first day is 1.
    """
    height = torch.cat([value.new_ones(1), value]).cummax(0).values[1:]
    return value / height - 1.0


def _refuse_ruined_backtest(values: Tensor) -> None:
    """Raise ``ProblemError`` if a value is zero or negative."""
    if float(values.min()) <= 0:
        raise ProblemError(
            "a portfolio with short positions lost all its money within a holding period, so that returns after it "
            "have no meaning; raise the lower bound, or rebalance more often"
        )
