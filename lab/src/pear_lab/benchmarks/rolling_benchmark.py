"""Benchmark: a training step through rollouts of a battery, compared with the same rollout by another layer.

A step is the realised cost of all rollouts and its gradient with respect to all forecasts. Prices are drawn: a daily
pattern with noise. The time of an epoch is estimated from that of a step: as many rollouts as fit into four years of
hours without overlap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import pear
from pear_lab.benchmarks.bench_settings import Callbacks, Labels, Settings, option
from pear_lab.benchmarks.exact_gradients import largest_gradient_error
from pear_lab.benchmarks.number_formats import format_error, format_number
from pear_lab.benchmarks.series_plot import Series
from pear_lab.benchmarks.text_table import TextTable
from pear_lab.benchmarks.timing import measure_steps, use_timing_threads
from pear_lab.peers import Peer, measure_peer
from pear_lab.tasks.battery_task import Battery, battery

PEERS = "rolling"
LABELS = Labels("A training step through rollouts", "in the order of the table", "ms a plan")
EPOCH_HOURS = 4 * 365 * 24


@dataclass(frozen=True)
class RollingSettings(Settings):
    """Time a step through battery rollouts, one thread for each library, with the error of the gradients."""

    hours: int = option(48, "The number of hours of a plan.", least=2, quick=6)
    steps: int = option(24, "The number of steps of a rollout.", least=1, quick=2)
    rollouts: int = option(16, "The number of rollouts in a batch.", least=1, quick=2)
    repeats: int = option(3, "The number of measurements; the fastest counts.", least=1, quick=1)
    limit: float = option(60.0, "The time limit of a library, in seconds.", positive=True)
    seed: int = option(0, "Seed of the prices.")


SETTINGS = RollingSettings


@dataclass(frozen=True)
class RollingRow:
    """The times of one method.

    Attributes:
        who: name of the method.
        step_seconds: processor seconds of a step.
        plan_seconds: the same for each plan.
        epoch_seconds: estimated seconds of an epoch.
        ratio: step_seconds relative to ours.
        gradient_error: largest relative 2-norm error of a rollout's gradient against ours.
    """

    who: str
    step_seconds: float
    plan_seconds: float
    epoch_seconds: float
    ratio: float
    gradient_error: float = math.nan


def run(settings: RollingSettings, callbacks: Callbacks, peers: Sequence[tuple[Peer, Path]] = ()) -> None:
    """Measure PEAR and the peers. Each peer comes with the Python interpreter that can import it."""
    # squares that are large beside the spread of prices: plans lie between their bounds, and gradients are not zero
    spec = Battery(hours=settings.hours, level_penalty=1.0, flow_penalty=20.0, sells_rest=True)
    forecasts, truth = draw_prices(settings)
    plans = settings.steps * settings.rollouts
    epoch = EPOCH_HOURS / plans
    callbacks.on_note(
        f"{settings.rollouts} rollouts of {settings.steps} steps, plans of {settings.hours} hours, one thread; an "
        f"epoch is {EPOCH_HOURS:,} plans"
    )
    rolling = pear.Rolling(battery(spec), state={"state": "state[0]"})
    loss = pear.RollingLoss(rolling, smoothing=0.0)
    rows: list[RollingRow] = []

    def add(who: str, seconds: float, found: Any) -> None:
        ours = rows[0].step_seconds if rows else seconds
        off = largest_gradient_error([found], [exact])
        rows.append(RollingRow(who, seconds, seconds / plans, epoch * seconds, seconds / ours, off))
        callbacks.on_row(rows[-1])

    def step() -> dict[str, Any]:
        moving = forecasts.clone().requires_grad_()
        loss(moving, truth).backward()
        assert moving.grad is not None
        return {"gradient": moving.grad.numpy()}

    callbacks.say("pear")
    with use_timing_threads(1):
        step()  # compiles on first use
        arrays, seconds = measure_steps(
            lambda: step, settings.repeats, settings.limit, False, lambda: None, "processor"
        )
    exact = arrays["gradient"]
    add("pear", min(seconds), exact)
    names = ("capacity", "efficiency", "charge", "discharge", "start", "level_penalty", "flow_penalty")
    data = {"forecasts": forecasts.numpy(), "truth": truth.numpy(), "half": np.array(spec.capacity / 2)}
    data |= {name: np.array(getattr(spec, name)) for name in names}
    for peer, python in peers:
        callbacks.say(peer.name)
        found = measure_peer(
            peer, python, data, repeats=settings.repeats, limit=settings.limit, warm_up=False, clock="processor"
        )
        add(peer.title, min(found.seconds), found.arrays["gradient"])


def draw_prices(settings: RollingSettings) -> tuple[Tensor, Tensor]:
    """Forecasts and true prices of all plans, (B, S, T) each: a daily pattern with noise, and errors of 20 %."""
    generator = torch.Generator().manual_seed(settings.seed)
    length = settings.steps + settings.hours - 1
    noise = torch.randn(settings.rollouts, length, generator=generator, dtype=torch.float64)
    hour = torch.arange(length) + torch.randint(24, (settings.rollouts, 1), generator=generator)
    price = 35 * torch.exp(0.3 * torch.sin(2 * math.pi * hour / 24) + 0.15 * noise)
    truth = price.unfold(1, settings.hours, 1).contiguous()
    return truth * torch.exp(0.2 * torch.randn(truth.shape, generator=generator, dtype=torch.float64)), truth


def tables(rows: list[RollingRow]) -> list[TextTable]:
    """Make the table of all methods."""
    columns = {
        "who": lambda row: row.who,
        "ms a step": lambda row: format_number(1e3 * row.step_seconds),
        "ms a plan": lambda row: format_number(1e3 * row.plan_seconds),
        "s an epoch": lambda row: format_number(row.epoch_seconds),
        "step /\npear": lambda row: format_number(row.ratio),
        "gradient\ndifference": lambda row: format_error(row.gradient_error),
    }
    return [TextTable.of("A training step through rollouts", rows, columns)]


def series(rows: list[RollingRow]) -> list[Series]:
    """Return the milliseconds of a plan, one point per method."""
    return [Series(row.who, [i + 1.0], [1e3 * row.plan_seconds], row.who == "pear") for i, row in enumerate(rows)]
