"""The paper's portfolio protocol: windows of returns, a forecaster, regret and a backtest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pear.tasks import Portfolio, portfolio
from pear.train import FitConfig, fit
from pear_lab.data import Prices, load_prices
from pear_lab.experiments.catalogue import LOWER_BOUNDS, PEER_METHODS
from pear_lab.experiments.experiment_errors import ExperimentError, RunError
from pear_lab.experiments.protocols.protocol import Listener, Protocol, Say, TrainingResult
from pear_lab.experiments.run_spec import RunSpec, Selection
from pear_lab.peers import Peer, PeerLayer, choose_peers, peer_interpreter
from pear_lab.tasks import metrics
from pear_lab.tasks.market import (
    DecisionUtilityLoss,
    Evaluation,
    Forecaster,
    MarketSplit,
    backtest,
    market_loss,
    moments,
    split_windows,
)

DEFAULT_DATA = "skfolio"
_PUBLISHED_FIT: dict[str, Any] = {
    "learning_rate": 1e-3, "batch_size": 64, "check_every": 1, "patience": 10, "min_improvement": 0.0,
    "clip_norm": 1.0, "halve_after": 3,
}  # fmt: skip


class PortfolioProtocol(Protocol):
    """The protocol of mean–variance portfolios on a history of prices."""

    def settings(self, selection: Selection, task: str) -> dict[str, Any]:
        """Return the settings that all trainings share. The prices are read here to check that they are usable."""
        source = selection.data or DEFAULT_DATA
        prices = load_prices(source, selection.gaps)
        settings = {
            "data": str(source),
            "gaps": selection.gaps,
            "prices": prices.fingerprint,  # records of other prices under the same name are never taken for these
            "assets": len(prices.names),
            "days": len(prices.dates),
            "first": prices.dates[0].isoformat(),
            "last": prices.dates[-1].isoformat(),
            **super().settings(selection, task),
        }
        _split_prices(prices, settings)  # too short a history shows before anything is trained
        return settings

    def method_settings(self, method: str) -> dict[str, Any]:
        """Return the library, with its version, that computes the method; for our methods, the options of the loss."""
        if method not in PEER_METHODS:
            return super().method_settings(method)
        return {"peer": next(one for one in _layer_peer(method).requirements if one.startswith(method))}

    def check(self, run: RunSpec, say: Say = lambda line: None) -> None:
        """Make the environment of the library (called a peer) that computes the run's method, if there is none yet.

        Raises:
            PeerError: the environment cannot be made; the message says what to do.
        """
        if run.method in PEER_METHODS:
            peer_interpreter(_layer_peer(run.method), say=say)

    def train(self, run: RunSpec, progress: Listener = None) -> TrainingResult:
        """Train as the paper does.

        Adam begins with the learning rate 1e-3, and a batch has 64 windows. The learning rate is halved after more than
        3 epochs in a row without a lower validation regret, and training ends after 10.

        If another library computes the portfolios, it does so in a process of its own. The transfer of numbers does not
        count as training time.
        """
        market = make_market(run)
        split, stride = market.split, run.settings["stride"]
        generator = torch.Generator().manual_seed(run.seed)
        model = _make_forecaster(run, generator)
        train, validation = split.train.every(stride), split.validation.every(stride)
        metric = Evaluation(market.task, validation.days, split.ahead).normalized_regret
        budget = {name: run.settings[name] for name in ("max_epochs", "time_cap")}
        config = FitConfig(**_PUBLISHED_FIT, **budget, seed=generator, start="given")
        with _open_loss(run, market) as loss:
            samples = (train.known, train.days), (validation.known, validation.days)
            history = fit(model, loss, *samples, metric, config, progress=progress)
        history.seconds -= history.split.get("transport", 0.0)
        return TrainingResult(model, history, lambda: market_scores(market, model), (history,))

    def model(self, run: RunSpec) -> Forecaster:
        """Return a forecaster of the run's number of assets and days."""
        return _make_forecaster(run)

    def measure(self, run: RunSpec, model: nn.Module) -> dict[str, Any]:
        """Return the regrets under other lower bounds of the portfolio weights than in training.

        The bounds are ``LOWER_BOUNDS``, and the regrets are those of the test windows of ``market_scores``.
        """
        if run.variant != "lower-bound-shift":
            return super().measure(run, model)
        market = make_market(run)
        windows = market.split.rebalancing
        with torch.no_grad():
            predicted = model(windows.known)
        n, aversion = market.task.problem.n, market.task.risk_aversion
        bounds = {f"{lower:g}": portfolio(n, aversion, lower) for lower in LOWER_BOUNDS}
        outcomes = {
            name: Evaluation(task, windows.days, market.split.ahead).outcome(predicted) for name, task in bounds.items()
        }
        return {
            "shift": {name: metrics.published_regret_metric(outcome) for name, outcome in outcomes.items()},
            "regrets": {name: outcome.regret.tolist() for name, outcome in outcomes.items()},
            "best": {name: outcome.best.tolist() for name, outcome in outcomes.items()},
        }


@dataclass(frozen=True)
class MarketData:
    """The prices, windows and task of a run.

    Attributes:
        task: the portfolio task.
        prices: the part of the price history that is used.
        split: windows for training, validation and test.
    """

    task: Portfolio
    prices: Prices
    split: MarketSplit


def make_market(run: RunSpec) -> MarketData:
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
    return MarketData(task, _used_prices(prices, settings), _split_prices(prices, settings))


@contextmanager
def _open_loss(run: RunSpec, market: MarketData) -> Iterator[nn.Module]:
    """Yield the loss of a run. If another library computes the loss, its process ends with the with block."""
    ahead = market.split.ahead
    if run.method not in PEER_METHODS:
        yield market_loss(run.method, market.task, ahead)
        return
    peer = _layer_peer(run.method)
    with PeerLayer(peer, peer_interpreter(peer), market.task.problem.n) as layer:
        yield DecisionUtilityLoss(market.task, ahead, layer)


def _layer_peer(method: str) -> Peer:
    """Return the library, called a peer, whose layer this method uses."""
    return choose_peers([method], "gradient")[0]


def _make_forecaster(run: RunSpec, generator: torch.Generator | None = None) -> Forecaster:
    settings = run.settings
    return Forecaster(settings["assets"], settings["window"], settings["ahead"], generator=generator)


def market_scores(market: MarketData, model: nn.Module) -> dict[str, Any]:
    """Return the regret on the test windows, the error of the forecasts, and the results of the backtest.

    The test windows are ``MarketSplit.rebalancing``. The lists ``regrets`` and ``best`` (the utility of the best
    portfolio) hold one number for each window, and the list ``value`` (of the backtested portfolio) one for each day.
    ``yardsticks`` holds the scores, on the same days, of two portfolios that use no forecast.
    """
    windows = market.split.rebalancing
    evaluation = Evaluation(market.task, windows.days, market.split.ahead)
    with torch.no_grad():
        predicted = model(windows.known)
    realised = _days_of(windows.days, market.split.ahead)
    first = int(windows.starts[0]) + windows.known.shape[2] + 1  # prices have one day more than returns
    return {
        **_trading_scores(evaluation, evaluation.weights(predicted), realised),
        "normalized_mse": evaluation.normalized_error(predicted),
        "best": evaluation.best.tolist(),
        "dates": [market.prices.dates[first].isoformat(), market.prices.dates[first + len(realised) - 1].isoformat()],
        "yardsticks": _yardstick_scores(market, evaluation, realised),
    }


def _trading_scores(evaluation: Evaluation, weights: Tensor, realised: Tensor) -> dict[str, Any]:
    """Return regret and backtest of portfolios (K, n), one for each of K windows, on realised returns (days, n)."""
    outcome, result = evaluation.outcome_of(weights), backtest(weights, realised, evaluation.ahead)
    lists = {"value": result.value.tolist(), "regrets": outcome.regret.tolist()}
    return {"normalized_regret": metrics.published_regret_metric(outcome), **result.summary(), **lists}


def _yardstick_scores(market: MarketData, evaluation: Evaluation, realised: Tensor) -> dict[str, Any]:
    """Return the scores of two portfolios without a forecast: equal weights, and least variance over the known days."""
    known = market.split.rebalancing.known.double()
    count, n, _ = known.shape
    covariance = moments(known, evaluation.ahead)[1]
    portfolios = {
        "equal weight": torch.full((count, n), 1.0 / n, dtype=torch.float64),
        "minimum variance": market.task.weights(torch.zeros(count, n, dtype=torch.float64), covariance),
    }
    return {name: _trading_scores(evaluation, weights, realised) for name, weights in portfolios.items()}


def _days_of(days: Tensor, ahead: int) -> Tensor:
    """Return the last ``ahead`` days of K consecutive windows ``days`` (K, n, T), one window after the other.

    The shape of the result is (K · ahead, n).
    """
    return days[:, :, -ahead:].double().transpose(1, 2).reshape(-1, days.shape[1])


def _used_prices(prices: Prices, settings: dict[str, Any]) -> Prices:
    return prices.last(settings["last_days"]) if "last_days" in settings else prices


def _split_prices(prices: Prices, settings: dict[str, Any]) -> MarketSplit:
    if len(prices.names) < 2:
        raise ExperimentError(
            f"a portfolio needs two names to choose from; {prices.source} has {prices.names[0]} alone"
        )
    return split_windows(_used_prices(prices, settings).returns(), settings["window"], settings["ahead"])
