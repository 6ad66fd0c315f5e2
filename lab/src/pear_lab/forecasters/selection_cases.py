"""Cases of the study in which a decision selects items: half-hours to sell in, properties to build, stocks to hold."""

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
from pear_lab.forecasters.irish_features import find_irish_feature_days, wide_irish_features
from pear_lab.forecasters.study_case import (
    QUICK_ROWS,
    Array,
    Rows,
    StudyCase,
    StudySplit,
    expanding_study_splits,
    last_part_study_split,
)
from pear_lab.tasks.building_task import FOLDS, building

CAPACITY = 120.0
"""The capacity of the knapsack of half-hours, as in ``pear_lab.tasks.energy_split``."""

INSTANCE, BUDGET = 10, 0.4
"""The number of properties of an instance, and the share of their cost that may be spent."""

HELD, MONTH, QUARTER, YEAR = 5, 21, 63, 252
"""Numbers of trading days: for which a portfolio is held, and in a month, a quarter and a year of past returns."""

RISK_AVERSION = 5.0
DIAGONAL = 0.2
"""The weight of the diagonal in the covariance, which shrinks the other entries."""

WEEK_FOLDS, FOLD_WEEKS = 6, 60


def knapsack_selection_case(seed: int, quick: bool) -> StudyCase:
    """Return the case with the knapsack of Irish half-hours and ``wide_irish_features``.

    Args:
        seed: ignored; the days are the same for all seeds.
        quick: whether to keep only the last days.
    """
    data = load_energy()
    X, C = wide_irish_features(data), data.prices.numpy()[find_irish_feature_days(data).rows]
    if quick:
        X, C = X[-QUICK_ROWS:], C[-QUICK_ROWS:]
    folds = (1, QUICK_ROWS // 4) if quick else (IRISH_FOLDS, IRISH_FOLD_DAYS)
    return StudyCase(_selection_knapsack(data), X, C, expanding_study_splits(len(X), *folds))


def energy_selection_case(seed: int, quick: bool) -> StudyCase:
    """Return the case with the knapsack of Irish half-hours and features of each half-hour.

    One model predicts the prices of all half-hours. The test days are those of ``pear_lab.tasks.energy_split``. The
    validation days of that split belong to the training days here.

    Args:
        seed: ignored; the days are the same for all seeds.
        quick: whether to keep only the last days.
    """
    data = load_energy()
    X, C = data.features.numpy(), data.prices.numpy()
    if quick:
        X, C = X[-QUICK_ROWS:], C[-QUICK_ROWS:]
    return StudyCase(_selection_knapsack(data), X, C, last_part_study_split(np.arange(len(X))))


def _selection_knapsack(data: EnergyData) -> Model:
    """Return the knapsack of half-hours. The value of a half-hour is its predicted price times its weight."""
    return Model(knapsack(data.weights[None], CAPACITY).problem, cost_map=CostMap(torch.diag(data.weights)))


def building_selection_case(seed: int, quick: bool) -> StudyCase:
    """Return the case of choosing properties within a budget, ten in each instance, with five folds of instances.

    One model predicts the prices of all properties. Instances and test folds are those of
    ``pear_lab.tasks.building_split``. The validation fold of that split belongs to the training samples here.

    Args:
        seed: the seed that assigns properties to instances.
        quick: whether to test only the first fold.
    """
    data = load_building()
    count = len(data.prices) // INSTANCE
    dealt = np.random.RandomState(seed).permutation(len(data.prices))[: count * INSTANCE].reshape(count, -1)
    splits = [StudySplit(train, test) for train, test in KFold(FOLDS).split(dealt)]
    X, C, costs = (part.numpy()[dealt] for part in (data.features, data.prices, data.costs))
    task = building(costs, BUDGET)
    return StudyCase(task.problem, X, C, tuple(splits[:1] if quick else splits))


def portfolio_selection_case(shape: str, seed: int, quick: bool) -> StudyCase:
    """Return the case of long-only portfolios of the stocks in ``sp100``, whose weekly returns are predicted.

    The problem is ``max 100·(r·w − ½ γ wᵀΣw)`` subject to ``Σᵢ wᵢ = 1`` and w ≥ 0, in percent of the wealth. The
    decision w is the weights of the stocks, r is their returns over the next five trading days, and γ is the risk
    aversion. Σ is the covariance of such returns, estimated from the year before and with its off-diagonal entries
    reduced by a fifth.

    Args:
        shape: "wide" if each week has a row of features and each stock has a model; "long" if each stock has a row of
            features and all stocks share one model.
        seed: ignored; the weeks are the same for all seeds.
        quick: whether to keep only the last weeks and the first ten stocks.
    """
    returns = load_prices("sp100").returns().numpy()
    if quick:
        returns = returns[-(YEAR + HELD * QUICK_ROWS) :, :10]
    starts = np.arange(YEAR, len(returns) - HELD + 1, HELD)
    C = -100 * np.stack([returns[t : t + HELD].sum(0) for t in starts])
    risk = np.stack([_selection_covariance(returns[t - YEAR : t]) for t in starts])
    n = returns.shape[1]
    problem = Problem(Q=torch.from_numpy(100 * RISK_AVERSION * risk), A=torch.ones(1, n), b=[1.0], lb=0.0)
    X = _selection_stock_features(returns, starts)
    if shape == "wide":
        X = np.hstack([*(X[..., i] for i in range(_OWN)), X[:, 0, _OWN:]])
    folds = (1, QUICK_ROWS // 4) if quick else (WEEK_FOLDS, FOLD_WEEKS)
    return StudyCase(problem, X, C, expanding_study_splits(len(X), *folds))


def _selection_covariance(days: Array) -> Array:
    """Return the covariance (n, n) of returns over ``HELD`` days, estimated from the daily returns (T, n) of T days.

    Its off-diagonal entries are reduced by the share ``DIAGONAL``.
    """
    daily = np.cov(days.T)
    return HELD * ((1 - DIAGONAL) * daily + DIAGONAL * np.diag(np.diag(daily)))


_OWN = 3
"""The number of features of a single stock, which come before the features of the market."""


def _selection_stock_features(returns: Array, starts: Rows) -> Array:
    """Return the features (N, n, 7) of n stocks at the start of N weeks, in percent.

    The first three are the stock's returns over the last week, over the last month, and over the eleven months before
    it. The next three are the mean returns of all stocks over the last week, month and year. The last one is the
    standard deviation of the daily mean return of all stocks, over the days of the last quarter.

    Args:
        returns: (T, n) daily returns.
        starts: (N,) the first day of each week.
    """
    sums = np.vstack([np.zeros(returns.shape[1]), np.cumsum(returns, axis=0)])
    past = [sums[starts] - sums[starts - back] for back in (HELD, MONTH, YEAR)]
    own = np.stack([past[0], past[1], past[2] - past[1]], axis=2)
    mean = returns.mean(1)
    market = [part.mean(1) for part in past] + [np.array([mean[t - QUARTER : t].std() for t in starts])]
    shared = np.broadcast_to(np.stack(market, axis=1)[:, None], (*own.shape[:2], len(market)))
    return 100 * np.concatenate([own, shared], axis=2)
