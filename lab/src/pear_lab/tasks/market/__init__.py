"""Portfolios on a history of returns: windows split in time, a forecaster, losses, regret and a backtest."""

from pear_lab.tasks.market.backtest import Backtest, Drawdown, backtest, deepest_drawdowns
from pear_lab.tasks.market.evaluation import Evaluation
from pear_lab.tasks.market.forecaster import Forecaster
from pear_lab.tasks.market.moments import moments
from pear_lab.tasks.market.portfolio_losses import (
    METHODS,
    DecisionUtilityLoss,
    ForecastLoss,
    PortfolioPEARLoss,
    market_loss,
)
from pear_lab.tasks.market.windows import AHEAD, WINDOW, MarketSplit, split_windows

__all__ = [
    "AHEAD",
    "METHODS",
    "WINDOW",
    "Backtest",
    "DecisionUtilityLoss",
    "Drawdown",
    "Evaluation",
    "ForecastLoss",
    "Forecaster",
    "MarketSplit",
    "PortfolioPEARLoss",
    "backtest",
    "deepest_drawdowns",
    "market_loss",
    "moments",
    "split_windows",
]
