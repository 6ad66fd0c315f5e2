"""Choices among items: half-hours to sell in, properties to build, assets to hold."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.model_selection import KFold

from pear.problem import CostMap, Model, Problem
from pear.tasks.knapsack import knapsack
from pear_lab.data.building_data import load_building
from pear_lab.data.energy_data import EnergyData, load_energy
from pear_lab.data.prices import load_prices
from pear_lab.forecasters.battery_cases import IRISH_FOLD_DAYS, IRISH_FOLDS
from pear_lab.forecasters.irish_features import days_with_lags, wide_features
from pear_lab.forecasters.study_case import QUICK_ROWS, Array, Rows, Split, StudyCase, expanding_folds, last_part
from pear_lab.tasks.building_task import FOLDS, building

CAPACITY = 120.0
"""Capacity of the knapsack of half-hours, as in ``pear_lab.tasks.energy_split``."""

INSTANCE, BUDGET = 10, 0.4
"""Properties of an instance of building, and the share of their cost that may be spent."""

HELD, MONTH, QUARTER, YEAR = 5, 21, 63, 252
"""Trading days: those that a portfolio is held, and those that its features and its risk look back."""

RISK_AVERSION = 5.0
DIAGONAL = 0.2
"""Share of the covariance's diagonal in the covariance that portfolios are chosen by."""

WEEK_FOLDS, FOLD_WEEKS = 6, 60


def irish_knapsack(seed: int, quick: bool) -> StudyCase:
    """Sell within a capacity in the best half-hours of an Irish day, by the wide features of the Irish battery.

    Args:
        seed: not used, as the days are the same for all.
        quick: keep the last days alone.
    """
    data = load_energy()
    X, C = wide_features(data), data.prices.numpy()[days_with_lags(data).rows]
    if quick:
        X, C = X[-QUICK_ROWS:], C[-QUICK_ROWS:]
    folds = (1, QUICK_ROWS // 4) if quick else (IRISH_FOLDS, IRISH_FOLD_DAYS)
    return StudyCase(_knapsack_of_prices(data), X, C, expanding_folds(len(X), *folds))


def energy(seed: int, quick: bool) -> StudyCase:
    """The same knapsack by the features of each half-hour, tested on the days of ``pear_lab.tasks.energy_split``.

    One model predicts the price of every half-hour. The days that the split sets apart for validation are trained on.

    Args:
        seed: not used, as the days are the same for all.
        quick: keep the last days alone.
    """
    data = load_energy()
    X, C = data.features.numpy(), data.prices.numpy()
    if quick:
        X, C = X[-QUICK_ROWS:], C[-QUICK_ROWS:]
    return StudyCase(_knapsack_of_prices(data), X, C, last_part(np.arange(len(X))))


def _knapsack_of_prices(data: EnergyData) -> Model:
    """Prices are predicted; the value of a half-hour is its price times what is sold in it."""
    return Model(knapsack(data.weights[None], CAPACITY).problem, cost_map=CostMap(torch.diag(data.weights)))


def building_investment(seed: int, quick: bool) -> StudyCase:
    """Choose properties to build within a budget: instances of ten, dealt out by the seed, tested in five folds.

    One model predicts the price of every property. Both are as in ``pear_lab.tasks.building_split``; the fold that it
    sets apart for validation is trained on.

    Args:
        seed: deals out the properties.
        quick: test the first fold alone.
    """
    data = load_building()
    count = len(data.prices) // INSTANCE
    dealt = np.random.RandomState(seed).permutation(len(data.prices))[: count * INSTANCE].reshape(count, -1)
    splits = [Split(train, test) for train, test in KFold(FOLDS).split(dealt)]
    X, C, costs = (part.numpy()[dealt] for part in (data.features, data.prices, data.costs))
    task = building(costs, BUDGET)
    return StudyCase(task.problem, X, C, tuple(splits[:1] if quick else splits))


def portfolio_of_stocks(shape: str, seed: int, quick: bool) -> StudyCase:
    """Hold a long-only portfolio of the stocks of ``sp100`` for a week; returns are forecast, the risk is known.

    ``max 100·(r·w − ½ γ wᵀΣw)`` with Σw = 1 and w ≥ 0, in percent of the wealth: r is the return of the next five
    trading days, Σ their covariance as measured over the year before, with a fifth of it from its diagonal.

    Args:
        shape: "wide" has a row for each week, with the features of all stocks, and a model for each stock; "long" has a
            row for each stock, and one model for all of them.
        seed: not used, as the weeks are the same for all.
        quick: keep the last weeks and ten stocks alone.
    """
    returns = load_prices("sp100").returns().numpy()
    if quick:
        returns = returns[-(YEAR + HELD * QUICK_ROWS) :, :10]
    starts = np.arange(YEAR, len(returns) - HELD + 1, HELD)
    C = -100 * np.stack([returns[t : t + HELD].sum(0) for t in starts])
    risk = np.stack([_weekly_covariance(returns[t - YEAR : t]) for t in starts])
    n = returns.shape[1]
    problem = Problem(Q=torch.from_numpy(100 * RISK_AVERSION * risk), A=torch.ones(1, n), b=[1.0], lb=0.0)
    X = _stock_features(returns, starts)
    if shape == "wide":
        X = np.hstack([*(X[..., i] for i in range(_OWN)), X[:, 0, _OWN:]])
    folds = (1, QUICK_ROWS // 4) if quick else (WEEK_FOLDS, FOLD_WEEKS)
    return StudyCase(problem, X, C, expanding_folds(len(X), *folds))


def _weekly_covariance(days: Array) -> Array:
    """The covariance (n, n) of returns over ``HELD`` days, from daily returns (T, n), shrunk towards its diagonal."""
    daily = np.cov(days.T)
    return HELD * ((1 - DIAGONAL) * daily + DIAGONAL * np.diag(np.diag(daily)))


_OWN = 3
"""The features that a stock has for itself come first, those of the market after them."""


def _stock_features(returns: Array, starts: Rows) -> Array:
    """Features (N, n, 7) at the start of each week, in percent.

    The stock's return of the last week, of the last month, and of the year before that month; the market's mean
    returns of the last week, month and year, and its deviation by day over the last quarter.
    """
    sums = np.vstack([np.zeros(returns.shape[1]), np.cumsum(returns, axis=0)])
    past = [sums[starts] - sums[starts - back] for back in (HELD, MONTH, YEAR)]
    own = np.stack([past[0], past[1], past[2] - past[1]], axis=2)
    mean = returns.mean(1)
    market = [part.mean(1) for part in past] + [np.array([mean[t - QUARTER : t].std() for t in starts])]
    shared = np.broadcast_to(np.stack(market, axis=1)[:, None], (*own.shape[:2], len(market)))
    return 100 * np.concatenate([own, shared], axis=2)
