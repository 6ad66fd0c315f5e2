"""Cases of the study of forecasters with batteries: on days of PJM, on Irish days, and in a synthetic market."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pear_lab.data.energy_data import load_energy
from pear_lab.data.pjm_data import load_pjm_days
from pear_lab.forecasters.irish_features import irish_feature_prices, long_irish_features, wide_irish_features
from pear_lab.forecasters.study_case import QUICK_ROWS, Array, StudyCase, expanding_study_splits, last_part_study_split
from pear_lab.tasks.battery_task import MARKET, PJM, battery
from pear_lab.tasks.public.pjm_battery import SHUFFLE_SEED

PJM_FOLDS, PJM_FOLD_DAYS = 5, 197
IRISH_FOLDS, IRISH_FOLD_DAYS = 6, 75
SYNTHETIC_DAYS, SYNTHETIC_FOLDS, SYNTHETIC_FOLD_DAYS = 1095, 6, 120


def pjm_battery_case(order: str, seed: int, quick: bool) -> StudyCase:
    """Return the case with the battery and the PJM days of Yeh et al. 2024.

    Args:
        order: the choice of test days: "time" for the last fifth, "shuffled" for a fifth drawn with the seed of Yeh
            et al., "folds" for five consecutive folds, each after its training days.
        seed: ignored; the days are the same for all seeds.
        quick: whether to keep only the last days.
    """
    data = load_pjm_days()
    X, C = data.features.numpy(), data.prices.numpy()
    if quick:
        X, C = X[-QUICK_ROWS:], C[-QUICK_ROWS:]
    case = StudyCase(battery(PJM), X, C, last_part_study_split(np.arange(len(X))))
    if order == "shuffled":
        shuffled = np.random.default_rng(SHUFFLE_SEED).permutation(len(X))
        return replace(case, splits=last_part_study_split(shuffled))
    if order == "folds":
        folds = (1, QUICK_ROWS // 4) if quick else (PJM_FOLDS, PJM_FOLD_DAYS)
        return replace(case, splits=expanding_study_splits(len(X), *folds))
    return case


def irish_battery_case(shape: str, seed: int, quick: bool) -> StudyCase:
    """Return the case with Irish hourly prices and a battery of 4 MWh.

    Args:
        shape: "wide" if each day has a row of features and each hour has a model; "long" if each hour has a row of
            features and all hours share one model.
        seed: ignored; the days are the same for all seeds.
        quick: whether to keep only the last days.
    """
    data = load_energy()
    X = wide_irish_features(data) if shape == "wide" else long_irish_features(data)
    C = irish_feature_prices(data)
    if quick:
        X, C = X[-QUICK_ROWS:], C[-QUICK_ROWS:]
    folds = (1, QUICK_ROWS // 4) if quick else (IRISH_FOLDS, IRISH_FOLD_DAYS)
    return StudyCase(battery(MARKET), X, C, expanding_study_splits(len(X), *folds))


def synthetic_battery_case(seed: int, quick: bool) -> StudyCase:
    """Return the case with three years of a synthetic market and a battery of 4 MWh.

    Args:
        seed: the seed of the market.
        quick: whether to draw fewer days.
    """
    X, C = draw_battery_market(QUICK_ROWS if quick else SYNTHETIC_DAYS, np.random.default_rng(seed))
    folds = (1, QUICK_ROWS // 4) if quick else (SYNTHETIC_FOLDS, SYNTHETIC_FOLD_DAYS)
    return StudyCase(battery(MARKET), X, C, expanding_study_splits(len(X), *folds))


def draw_battery_market(days: int, random: np.random.Generator) -> tuple[Array, Array]:
    """Draw features (days, 106) and hourly prices (days, 24) of a synthetic market.

    Prices rise exponentially with the demand less wind and sun, as the most expensive plant in use sets the price.
    Prices are proportional to the price of fuel, whose logarithm is a random walk over the days. The features are
    forecasts of demand, wind and sun (24 each), whose errors grow through the day; the prices of yesterday (24);
    indicators of the weekday (7); sine and cosine of the season (2); and a measure of how cold the day is (1).
    """
    hour, day = np.arange(24), np.arange(days)
    season, weekday = np.cos(2 * np.pi * day / 365), day % 7
    weekend = (weekday >= 5).astype(float)
    morning, noon, evening = (np.exp(-(((hour - peak) / 3) ** 2)) for peak in (8, 13, 19))
    cold = 0.5 + 0.4 * season + random.normal(0, 0.15, days)
    demand = 45 + 12 * morning + 16 * evening
    demand = demand + np.outer(cold, 8 + 6 * evening) - np.outer(weekend, 6 + 8 * morning)
    wind = 26 * np.clip(random.beta(1.5, 2.5, days)[:, None] + 0.25 * _draw_battery_errors(days, random), 0, 1)
    sun = 42 * np.outer((0.5 - 0.35 * season) * random.uniform(0.3, 1.0, days), noon)
    fuel = np.exp(np.cumsum(random.normal(0, 0.015, days)))
    fuel /= np.exp(np.log(fuel).mean())
    left_over = demand - wind - sun
    prices = fuel[:, None] * (20 + 40 * np.exp((left_over - 55) / 14)) * random.lognormal(0, 0.12, (days, 24))
    forecasts = [
        part + size * _draw_battery_errors(days, random) for part, size in ((demand, 2.0), (wind, 4.0), (sun, 2.0))
    ]
    yesterday = np.vstack([prices[:1], prices[:-1]])
    calendar = np.column_stack([np.eye(7)[weekday], season, np.sin(2 * np.pi * day / 365), cold])
    return np.hstack([*forecasts, yesterday, calendar]), prices


def _draw_battery_errors(days: int, random: np.random.Generator) -> Array:
    """Draw errors (days, 24): a random walk for each day, with a standard deviation of 1 in the last hour."""
    return np.cumsum(random.normal(0, 1 / np.sqrt(24), (days, 24)), axis=1)
