"""The paper's portfolio experiment: what it asks to be run, how it is trained, and what is measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from pear.data import Prices, load_prices
from pear.experiments.errors import ExperimentError, RunError
from pear.experiments.specs import QUICK_SEEDS, QUICK_TIME_CAP, SEEDS, TIME_CAP, Run, Selection
from pear.tasks import Portfolio, portfolio
from pear.tasks.market import AHEAD, METHODS, WINDOW, Forecaster, Judge, MarketSplit, backtest, split_windows
from pear.tasks.market.losses import market_loss
from pear.tasks.market.moments import moments
from pear.train import FitConfig, History, Progress, fit

TASK = "portfolio"
PAPER_METHODS = ("mse", "layer", "pear-mean", "pear-exact")
LOWER_BOUNDS = (-0.1, -0.3, -0.5, -1.0)
DEFAULT_DATA = "skfolio"

_PROTOCOL: dict[str, Any] = {"window": WINDOW, "ahead": AHEAD, "risk_aversion": 2.0, "lower": 0.0}
_FULL: dict[str, Any] = {"stride": 1, "max_epochs": 100}
_QUICK: dict[str, Any] = {"stride": 4, "max_epochs": 15, "last_days": 1600, "quick": True}


@dataclass(frozen=True)
class MarketExperiment:
    """One of the paper's portfolio tables.

    Attributes:
        name: as in ``pear reproduce NAME``.
        title: one line on what it shows.
        variant: what is measured on the trained weights; None where the trainings are the result.
    """

    name: str
    title: str
    variant: str | None = None

    @property
    def count(self) -> int:
        """Trainings in full, whatever the data."""
        return len(PAPER_METHODS) * len(SEEDS)

    def runs(self, selection: Selection) -> list[Run]:
        """Everything that it asks for, trainings first; the data is read, so that it is known to be usable."""
        if selection.tasks is not None and TASK not in selection.tasks:
            return []
        settings = _settings(selection)
        seeds = selection.seeds if selection.seeds is not None else (QUICK_SEEDS if selection.quick else SEEDS)
        trainings = [
            Run(self.name, TASK, method, seed, dict(settings))
            for method in _methods(selection.methods)
            for seed in seeds
        ]
        if self.variant is None:
            return trainings
        return trainings + [replace(run, settings={**settings, "variant": self.variant}) for run in trainings]


EXPERIMENTS: dict[str, MarketExperiment] = {
    experiment.name: experiment
    for experiment in (
        MarketExperiment("mvo", "mean–variance portfolios on prices (--data), judged by regret and by a backtest"),
        MarketExperiment(
            "lower-bound-shift", "portfolios trained long only, tested with short positions", "lower-bound-shift"
        ),
    )
}


def _methods(wanted: Sequence[str] | None) -> list[str]:
    """Of the methods for portfolios those that are wanted; "pear" stands for its two modes."""
    if wanted is None:
        return list(PAPER_METHODS)
    asked = {mode for name in wanted for mode in (("pear-mean", "pear-exact") if name == "pear" else (name,))}
    return [method for method in METHODS if method in asked]


def _settings(selection: Selection) -> dict[str, Any]:
    source = selection.data or DEFAULT_DATA
    prices = load_prices(source, selection.gaps)
    size = _QUICK if selection.quick else _FULL
    cap = selection.time_cap or (3 * QUICK_TIME_CAP if selection.quick else TIME_CAP)
    # The fingerprint: rows of other prices under the same name are never taken for these.
    data = {
        "data": str(source),
        "gaps": selection.gaps,
        "prices": prices.fingerprint,
        "assets": len(prices.names),
        "days": len(prices.dates),
        "first": prices.dates[0].isoformat(),
        "last": prices.dates[-1].isoformat(),
    }
    settings = {**data, **_PROTOCOL, **size, "time_cap": float(cap)}
    _split(prices, settings)  # too short a history shows before anything is trained
    return settings


@dataclass(frozen=True)
class Market:
    """What a run is trained and judged on.

    Attributes:
        task: what is decided.
        prices: the history that is used.
        split: its windows.
    """

    task: Portfolio
    prices: Prices
    split: MarketSplit


def make_market(run: Run) -> Market:
    """Read the prices of a run and cut them into windows.

    Raises:
        RunError: the prices are not those that the run was made for.
    """
    settings = run.settings
    prices = load_prices(settings["data"], settings["gaps"])
    if prices.fingerprint != settings["prices"]:
        raise RunError(
            f"the prices of {settings['data']} have changed since the run was asked for: {prices}, fingerprint "
            f"{prices.fingerprint} instead of {settings['prices']}; start pear reproduce again"
        )
    task = portfolio(len(prices.names), settings["risk_aversion"], settings["lower"])
    return Market(task, _used(prices, settings), _split(prices, settings))


def train_market(
    run: Run, progress: Callable[[Progress], None] | None = None
) -> tuple[nn.Module, History, Callable[[], dict[str, Any]]]:
    """Train as the paper does: Adam at 1e-3, batches of 64, the rate halved on a plateau, patience of 10 epochs.

    Args:
        run: what to train.
        progress: called after every epoch.

    Returns:
        The model with its best weights, the history, and a function that gives its scores on the test windows.
    """
    market = make_market(run)
    split, stride = market.split, run.settings["stride"]
    generator = torch.Generator().manual_seed(run.seed)
    model = make_model(run, generator)
    train, validation = split.train.every(stride), split.validation.every(stride)
    judge = Judge(market.task, validation.days, split.ahead)
    history = fit(
        model,
        market_loss(run.method, market.task, split.ahead),
        (train.known, train.days),
        (validation.known, validation.days),
        lambda predicted, true: judge.normalized_regret(predicted),
        FitConfig(
            learning_rate=1e-3,
            batch_size=64,
            max_epochs=run.settings["max_epochs"],
            check_every=1,
            patience=10,
            min_improvement=0.0,
            time_cap=run.settings["time_cap"],
            seed=generator,
            clip_norm=1.0,
            halve_after=3,
        ),
        progress=progress,
    )
    return model, history, lambda: market_scores(market, model)


def make_model(run: Run, generator: torch.Generator | None = None) -> Forecaster:
    """The forecaster of a run, with first weights from ``generator``."""
    settings = run.settings
    return Forecaster(settings["assets"], settings["window"], settings["ahead"], generator=generator)


def market_scores(market: Market, model: nn.Module) -> dict[str, Any]:
    """Regret on the test windows between rebalancings, the error of the forecasts, and the backtest.

    Lists hold one number a window (``regrets``, ``best``) or a day (``value``); the yardsticks trade the same days.
    """
    windows = market.split.rebalancing
    judge = Judge(market.task, windows.days, market.split.ahead)
    with torch.no_grad():
        predicted = model(windows.known)
    realised = _days_of(windows.days, market.split.ahead)
    result = backtest(judge.weights(predicted), realised, market.split.ahead)
    first = int(windows.starts[0]) + windows.known.shape[2] + 1  # prices have one day more than returns
    return {
        "normalized_regret": judge.normalized_regret(predicted),
        "normalized_mse": judge.normalized_error(predicted),
        **result.summary(),
        "regrets": judge.regrets(predicted).tolist(),
        "best": judge.best.tolist(),
        "value": result.value.tolist(),
        "dates": [market.prices.dates[first].isoformat(), market.prices.dates[first + len(realised) - 1].isoformat()],
        "yardsticks": _yardsticks(market, realised),
    }


def measure_market(run: Run, model: nn.Module) -> dict[str, Any]:
    """Regret with other lower bounds than the one that was trained with."""
    if run.variant != "lower-bound-shift":
        raise RunError(f"{run.variant} cannot be measured on portfolios")
    market = make_market(run)
    windows = market.split.rebalancing
    with torch.no_grad():
        predicted = model(windows.known)
    shift, regrets, best = {}, {}, {}
    for lower in LOWER_BOUNDS:
        judge = Judge(market.task.with_lower(lower), windows.days, market.split.ahead)
        name = f"{lower:g}"
        shift[name] = judge.normalized_regret(predicted)
        regrets[name], best[name] = judge.regrets(predicted).tolist(), judge.best.tolist()
    return {"shift": shift, "regrets": regrets, "best": best}


def _yardsticks(market: Market, realised: Tensor) -> dict[str, Any]:
    """Equal weights, and the least variance of the days known at each rebalancing; both need no forecast."""
    windows, ahead, task = market.split.rebalancing, market.split.ahead, market.task
    count, n, _ = windows.known.shape
    covariance = moments(windows.known.double(), ahead)[1]
    portfolios = {
        "equal weight": torch.full((count, n), 1.0 / n, dtype=torch.float64),
        "minimum variance": task.weights(torch.zeros(count, n, dtype=torch.float64), covariance),
    }
    judge = Judge(task, windows.days, ahead)
    found = {}
    for name, weights in portfolios.items():
        result = backtest(weights, realised, ahead)
        regrets = judge.regrets_of(weights)
        share = float(regrets.sum() / judge.best.abs().sum())
        lists = {"value": result.value.tolist(), "regrets": regrets.tolist()}
        found[name] = {"normalized_regret": share, **result.summary(), **lists}
    return found


def _days_of(days: Tensor, ahead: int) -> Tensor:
    """(K · ahead, n) the realised days of windows that follow each other."""
    return days[:, :, -ahead:].double().transpose(1, 2).reshape(-1, days.shape[1])


def _used(prices: Prices, settings: dict[str, Any]) -> Prices:
    return prices.last(settings["last_days"]) if "last_days" in settings else prices


def _split(prices: Prices, settings: dict[str, Any]) -> MarketSplit:
    if len(prices.names) < 2:
        raise ExperimentError(
            f"a portfolio needs two names to choose from; {prices.source} has {prices.names[0]} alone"
        )
    return split_windows(_used(prices, settings).returns(), settings["window"], settings["ahead"])
