"""Portfolios on a history of prices: windows without leakage, a forecaster, losses, regret and a backtest."""

from pear.tasks.market.backtest import Backtest, Drawdown, backtest, deepest_drawdowns
from pear.tasks.market.evaluation import Evaluation
from pear.tasks.market.forecaster import Forecaster
from pear.tasks.market.losses import METHODS, DecisionUtilityLoss, ForecastLoss, PortfolioPEARLoss, market_loss
from pear.tasks.market.moments import moments
from pear.tasks.market.windows import AHEAD, WINDOW, MarketSplit, split_windows

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
