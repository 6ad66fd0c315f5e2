"""Benchmark: the time of an epoch of portfolio training on real prices, compared with qpth's layer.

A step takes windows of daily returns, the last days of which are predicted. It computes their mean and covariance, the
portfolio, its regret, and the gradient of the regret with respect to the returns. The forecaster and its optimiser are
the same for all methods. Their time is measured once and added to that of every method.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from pear.tasks import Portfolio, portfolio
from pear_lab.benchmarks.bench_settings import BenchSettings, setting
from pear_lab.benchmarks.benchmark import Benchmark, Labels
from pear_lab.benchmarks.gradient_errors import largest_gradient_error
from pear_lab.benchmarks.number_formats import format_error, format_number
from pear_lab.benchmarks.series_plot import Series
from pear_lab.benchmarks.timing import timed_gradient
from pear_lab.data import load_prices
from pear_lab.peers import measure_peer
from pear_lab.peers.workers.worker import Step, measure_worker_steps
from pear_lab.tasks.market import Forecaster, market_loss, split_windows
from pear_lab.tasks.market.moments import LEAST_EIGENVALUE

PEAR = "pear exact"
SIZE = 64
"""The number of windows of days in a batch."""


@dataclass(frozen=True)
class EpochSettings(BenchSettings):
    """Time an epoch of portfolio training, one thread for each library, with the error of the gradients."""

    data: str = setting("skfolio", "Prices: skfolio, sp100 of $PEAR_DATA, or a file.")
    batches: int = setting(
        4, "The number of batches of 64 windows, from which the time of an epoch is estimated.", least=1, quick=1
    )
    repeats: int = setting(3, "The number of measurements; the fastest counts.", least=1, quick=1)
    limit: float = setting(60.0, "The time limit of a library, in seconds.", positive=True)
    seed: int = setting(0, "Seed of the forecaster.")


@dataclass(frozen=True)
class EpochRow:
    """The times of one method.

    Attributes:
        who: the name of the method.
        batch_seconds: the seconds of a step on one batch, without the forecaster.
        epoch_seconds: the seconds of an epoch over all training windows, forecaster included.
        ratio: ``epoch_seconds`` relative to those of PEAR's exact loss.
        gradient_error: the largest relative 2-norm error of a window's gradient against that of PEAR's exact loss. NaN
            if the method computes another gradient.
    """

    who: str
    batch_seconds: float
    epoch_seconds: float
    ratio: float
    gradient_error: float = math.nan


class EpochBenchmark(Benchmark[EpochSettings, EpochRow]):
    """The benchmark of an epoch of portfolio training with PEAR's losses, PEAR's layer, and other libraries."""

    options = EpochSettings
    labels = Labels("An epoch of portfolio training", "in the order of the table", "seconds an epoch")
    peer_command = "epoch"
    columns: ClassVar = {
        "who": lambda row: row.who,
        "ms a batch": lambda row: format_number(1e3 * row.batch_seconds),
        "s an epoch": lambda row: format_number(row.epoch_seconds),
        "epoch /\npear": lambda row: format_number(row.ratio),
        "gradient\nerror": lambda row: format_error(row.gradient_error),
    }

    def run(self) -> None:
        """Measure the forecaster, then PEAR's methods without and with warm starts, then the other libraries."""
        settings, say, on_note = self.settings, self.callbacks.say, self.callbacks.on_note
        prices = load_prices(settings.data)
        train = split_windows(prices.returns()).train
        task = portfolio(len(prices.names), 2.0)
        model = Forecaster(len(prices.names), generator=torch.Generator().manual_seed(settings.seed))
        chosen = torch.linspace(0, len(train.days) - 1, settings.batches * SIZE).long()
        known, true = train.known[chosen].split(SIZE), train.days[chosen].split(SIZE)
        with torch.no_grad():
            predicted = [model(part) for part in known]
        count = math.ceil(len(train.days) / SIZE)
        on_note(f"{prices}; an epoch is {count} batches of {SIZE}, reckoned from {settings.batches}")

        say("the forecaster")
        common = (
            self._time_fastest(lambda: lambda: _train_epoch_benchmark_forecaster(model, known, true))[1]
            / settings.batches
        )
        on_note(f"the forecaster and its optimiser take {1e3 * common:.1f} ms a batch, on every side")

        def add(who: str, seconds: float, off: float) -> None:
            batch = seconds / settings.batches
            epoch = count * (batch + common)
            ours = self.rows[0].epoch_seconds if self.rows else epoch
            self.add_row(EpochRow(who, batch, epoch, epoch / ours, off))

        exact = None
        for who, method in {PEAR: "pear-exact", "pear mean": "pear-mean", "pear layer": "layer"}.items():
            for warm in (False, True):
                say(who)
                arrays, seconds = self._time_fastest(
                    partial(_make_epoch_benchmark_step, method, task, predicted, true, warm)
                )
                exact = arrays["gradient"] if exact is None else exact
                off = largest_gradient_error(arrays["gradient"], exact) if method != "pear-mean" else math.nan
                add(who + (", later epochs" if warm else ""), seconds, off)
        data = {
            "predicted": torch.stack(predicted).numpy(),
            "true": torch.stack(list(true)).numpy(),
            "ahead": 21,
            "floor": LEAST_EIGENVALUE,
            "risk_aversion": task.risk_aversion,
        }
        for peer, python in self.peers:
            say(peer.name)
            found = measure_peer(peer, python, data, repeats=settings.repeats, limit=settings.limit)
            add(peer.title, min(found.seconds), largest_gradient_error(found.arrays["gradient"], exact))

    def _time_fastest(self, fresh: Callable[[], Step]) -> tuple[dict[str, Any], float]:
        """Return the arrays that a step computes, and the seconds of its fastest measurement.

        Args:
            fresh: makes the step anew for each measurement.
        """
        fresh()()  # what is compiled on first use does not count towards the limit
        arrays, seconds = measure_worker_steps(fresh, self.settings.repeats, self.settings.limit, False, lambda: None)
        return arrays, min(seconds)

    @classmethod
    def series(cls, rows: list[EpochRow]) -> list[Series]:
        """Make a series for each method: one point with the seconds of an epoch."""
        return [Series(row.who, [place + 1.0], [row.epoch_seconds], row.who == PEAR) for place, row in enumerate(rows)]


BENCHMARK = EpochBenchmark


def _make_epoch_benchmark_step(
    method: str, task: Portfolio, predicted: list[Tensor], true: tuple[Tensor, ...], warm: bool
) -> Step:
    """Return a function without arguments that computes the gradients of all batches with a new loss.

    Args:
        method: the name of the method, as for ``market_loss``.
        task: the portfolio problem of n assets.
        predicted, true: batches of predicted and of true daily returns, (windows, n, days) each.
        warm: whether the loss has warm starts. They come from a first pass over all windows, which is not timed and has
            forecasts that are 2 % larger.
    """
    loss = market_loss(method, task)
    if warm:
        _epoch_benchmark_gradients(loss, [1.02 * days for days in predicted], true)
    return lambda: _epoch_benchmark_gradients(loss, predicted, true)


def _epoch_benchmark_gradients(loss: nn.Module, predicted: list[Tensor], true: tuple[Tensor, ...]) -> dict[str, Any]:
    """Return the gradients of the loss with respect to each batch of predicted returns, under the key "gradient"."""
    found = []
    for place, (days, came) in enumerate(zip(predicted, true, strict=True)):
        keys = torch.arange(place * SIZE, place * SIZE + len(days))
        found.append(timed_gradient(days, partial(loss, true=came, keys=keys)).numpy())
    return {"gradient": found}


def _train_epoch_benchmark_forecaster(
    model: Forecaster, known: tuple[Tensor, ...], true: tuple[Tensor, ...]
) -> dict[str, Any]:
    """Train the forecaster for a step per batch on the squared error, without any decision. Return an empty dictionary.

    The learning rate is 0, so that the weights do not change.
    """
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0)
    loss = market_loss("mse", portfolio(2))
    for part, came in zip(known, true, strict=True):
        optimizer.zero_grad()
        loss(model(part), came).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return {}
