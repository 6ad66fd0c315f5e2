"""Benchmark: the time of an epoch of portfolio training on real prices, compared with qpth's layer.

Each method is timed from predicted days to μ̂ and Σ̂, to the portfolio, to its regret, and back to the days. The
forecaster and its optimiser are the same for all methods; they are timed once and added.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pear.tasks import Portfolio, portfolio
from pear_lab.benchmarks.bench_settings import Callbacks, Labels, Settings, option
from pear_lab.benchmarks.exact_gradients import largest_gradient_error
from pear_lab.benchmarks.number_formats import format_error, format_number
from pear_lab.benchmarks.series_plot import Series
from pear_lab.benchmarks.text_table import TextTable
from pear_lab.benchmarks.timing import Step, measure_steps, timed_gradient
from pear_lab.data import load_prices
from pear_lab.peers import Peer, measure_peer
from pear_lab.tasks.market import Forecaster, market_loss, split_windows
from pear_lab.tasks.market.moments import LEAST_EIGENVALUE

PEAR = "pear exact"
SIZE = 64


PEERS = "epoch"
LABELS = Labels("An epoch of portfolio training", "in the order of the table", "seconds an epoch")


@dataclass(frozen=True)
class EpochSettings(Settings):
    """Time an epoch of portfolio training, one thread for each library, with the error of the gradients."""

    data: str = option("skfolio", "Prices: skfolio, sp100 of $PEAR_DATA, or a file.")
    batches: int = option(
        4, "The number of batches of 64 windows, from which the time of an epoch is estimated.", least=1, quick=1
    )
    repeats: int = option(3, "The number of measurements; the fastest counts.", least=1, quick=1)
    limit: float = option(60.0, "The time limit of a library, in seconds.", positive=True)
    seed: int = option(0, "Seed of the forecaster.")


SETTINGS = EpochSettings


@dataclass(frozen=True)
class EpochRow:
    """The times of one method.

    Attributes:
        who: name of the method.
        batch_seconds: seconds from predicted days to their gradient, for one batch.
        epoch_seconds: seconds of an epoch over all training windows, forecaster included.
        ratio: epoch_seconds relative to ours.
        gradient_error: largest relative 2-norm error of a window's gradient against ours; NaN where there is none.
    """

    who: str
    batch_seconds: float
    epoch_seconds: float
    ratio: float
    gradient_error: float = math.nan


def run(settings: EpochSettings, callbacks: Callbacks, peers: Sequence[tuple[Peer, Path]] = ()) -> None:
    """Measure PEAR, our layer, and the peers. Each peer comes with the Python interpreter that can import it."""
    say, on_note = callbacks.say, callbacks.on_note
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
    common = _time_fastest(settings, lambda: lambda: _forecast_step(model, known, true))[1] / settings.batches
    on_note(f"the forecaster and its optimiser take {1e3 * common:.1f} ms a batch, on every side")
    epochs: list[float] = []

    def add(who: str, seconds: float, off: float) -> None:
        batch = seconds / settings.batches
        epochs.append(count * (batch + common))
        callbacks.on_row(EpochRow(who, batch, epochs[-1], epochs[-1] / epochs[0], off))

    exact = None
    for who, method in {PEAR: "pear-exact", "pear mean": "pear-mean", "pear layer": "layer"}.items():
        for warm in (False, True):
            say(who)
            arrays, seconds = _time_fastest(settings, partial(_make_step, method, task, predicted, true, warm))
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
    for peer, python in peers:
        say(peer.name)
        found = measure_peer(peer, python, data, repeats=settings.repeats, limit=settings.limit)
        add(peer.title, min(found.seconds), largest_gradient_error(found.arrays["gradient"], exact))


def tables(rows: list[EpochRow]) -> list[TextTable]:
    """Make the table of all methods."""
    columns = {
        "who": lambda row: row.who,
        "ms a batch": lambda row: format_number(1e3 * row.batch_seconds),
        "s an epoch": lambda row: format_number(row.epoch_seconds),
        "epoch /\npear": lambda row: format_number(row.ratio),
        "gradient\nerror": lambda row: format_error(row.gradient_error),
    }
    return [TextTable.of("An epoch of portfolio training", rows, columns)]


def series(rows: list[EpochRow]) -> list[Series]:
    """Return the seconds of an epoch, one point per method."""
    return [Series(row.who, [place + 1.0], [row.epoch_seconds], row.who == PEAR) for place, row in enumerate(rows)]


def _time_fastest(settings: EpochSettings, fresh: Callable[[], Step]) -> tuple[dict[str, Any], float]:
    fresh()()  # what is compiled on first use does not count towards the limit
    arrays, seconds = measure_steps(fresh, settings.repeats, settings.limit, False, lambda: None)
    return arrays, min(seconds)


def _make_step(method: str, task: Portfolio, predicted: list[Tensor], true: tuple[Tensor, ...], warm: bool) -> Step:
    """Make a step with a new loss. With ``warm``, the loss has already decided every window for another forecast."""
    loss = market_loss(method, task)
    if warm:
        _decide_and_differentiate(loss, [1.02 * days for days in predicted], true)
    return lambda: _decide_and_differentiate(loss, predicted, true)


def _decide_and_differentiate(loss: nn.Module, predicted: list[Tensor], true: tuple[Tensor, ...]) -> dict[str, Any]:
    found = []
    for place, (days, came) in enumerate(zip(predicted, true, strict=True)):
        keys = torch.arange(place * SIZE, place * SIZE + len(days))
        found.append(timed_gradient(days, partial(loss, true=came, keys=keys)).numpy())
    return {"gradient": found}


def _forecast_step(model: Forecaster, known: tuple[Tensor, ...], true: tuple[Tensor, ...]) -> dict[str, Any]:
    """Train the forecaster for one epoch on the squared error: what an epoch costs without decisions."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0)
    loss = market_loss("mse", portfolio(2))
    for part, came in zip(known, true, strict=True):
        optimizer.zero_grad()
        loss(model(part), came).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return {}
