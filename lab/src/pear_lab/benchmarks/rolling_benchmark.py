"""Benchmark: a training step through rollouts of a battery, compared with the same rollouts through another library.

A step computes the realised cost of all rollouts and its gradient with respect to all forecasts. True prices follow a
daily pattern with noise. An epoch makes a plan in every hour of four years. Its time is estimated from that of a step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

import pear
from pear_lab.benchmarks.bench_settings import BenchSettings, setting
from pear_lab.benchmarks.benchmark import Benchmark, Labels
from pear_lab.benchmarks.gradient_errors import largest_gradient_error
from pear_lab.benchmarks.number_formats import format_error, format_number
from pear_lab.benchmarks.series_plot import Series
from pear_lab.benchmarks.timing import use_timing_threads
from pear_lab.peers import measure_peer
from pear_lab.peers.workers.worker import measure_worker_steps
from pear_lab.tasks.battery_task import Battery, battery

EPOCH_HOURS = 4 * 365 * 24


@dataclass(frozen=True)
class RollingSettings(BenchSettings):
    """Time a step through battery rollouts, one thread for each library, with the error of the gradients."""

    hours: int = setting(48, "The number of hours of a plan.", least=2, quick=6)
    steps: int = setting(24, "The number of steps of a rollout.", least=1, quick=2)
    rollouts: int = setting(16, "The number of rollouts in a batch.", least=1, quick=2)
    repeats: int = setting(3, "The number of measurements; the fastest counts.", least=1, quick=1)
    limit: float = setting(60.0, "The time limit of a library, in seconds.", positive=True)
    seed: int = setting(0, "Seed of the prices.")


@dataclass(frozen=True)
class RollingRow:
    """The times of one method.

    Attributes:
        who: the name of the method.
        step_seconds: the processor seconds of a step.
        plan_seconds: the processor seconds of a step, divided by the number of its plans.
        epoch_seconds: the estimated processor seconds of an epoch.
        ratio: ``step_seconds`` relative to those of PEAR.
        gradient_error: the largest relative 2-norm difference of a rollout's gradient from that of PEAR.
    """

    who: str
    step_seconds: float
    plan_seconds: float
    epoch_seconds: float
    ratio: float
    gradient_error: float = math.nan


class RollingBenchmark(Benchmark[RollingSettings, RollingRow]):
    """The benchmark of a training step through rollouts, with PEAR and with other libraries."""

    options = RollingSettings
    labels = Labels("A training step through rollouts", "in the order of the table", "ms a plan")
    peer_command = "rolling"
    columns: ClassVar = {
        "who": lambda row: row.who,
        "ms a step": lambda row: format_number(1e3 * row.step_seconds),
        "ms a plan": lambda row: format_number(1e3 * row.plan_seconds),
        "s an epoch": lambda row: format_number(row.epoch_seconds),
        "step /\npear": lambda row: format_number(row.ratio),
        "gradient\ndifference": lambda row: format_error(row.gradient_error),
    }

    def run(self) -> None:
        """Measure PEAR, then the other libraries."""
        settings, callbacks = self.settings, self.callbacks
        # squares that are large beside the spread of prices: plans lie between their bounds, and gradients are not zero
        spec = Battery(hours=settings.hours, level_penalty=1.0, flow_penalty=20.0, sells_rest=True)
        forecasts, truth = draw_rolling_benchmark_prices(settings)
        callbacks.on_note(
            f"{settings.rollouts} rollouts of {settings.steps} steps, plans of {settings.hours} hours, one thread; an "
            f"epoch is {EPOCH_HOURS:,} plans"
        )
        rolling = pear.Rolling(battery(spec), state={"state": "state[0]"})
        loss = pear.RollingLoss(rolling, smoothing=0.0)

        def step() -> dict[str, Any]:
            moving = forecasts.clone().requires_grad_()
            loss(moving, truth).backward()
            assert moving.grad is not None
            return {"gradient": moving.grad.numpy()}

        callbacks.say("pear")
        with use_timing_threads(1):
            step()  # compiles on first use
            arrays, seconds = measure_worker_steps(
                lambda: step, settings.repeats, settings.limit, False, lambda: None, "processor"
            )
        exact = arrays["gradient"]
        self._add_step("pear", min(seconds), largest_gradient_error([exact], [exact]))
        names = ("capacity", "efficiency", "charge", "discharge", "start", "level_penalty", "flow_penalty")
        data = {"forecasts": forecasts.numpy(), "truth": truth.numpy(), "half": np.array(spec.capacity / 2)}
        data |= {name: np.array(getattr(spec, name)) for name in names}
        for peer, python in self.peers:
            callbacks.say(peer.name)
            found = measure_peer(
                peer, python, data, repeats=settings.repeats, limit=settings.limit, warm_up=False, clock="processor"
            )
            off = largest_gradient_error([found.arrays["gradient"]], [exact])
            self._add_step(peer.title, min(found.seconds), off)

    def _add_step(self, who: str, seconds: float, off: float) -> None:
        """Add the row of a method with the processor seconds of a step and the error of its gradient."""
        plan = seconds / (self.settings.steps * self.settings.rollouts)
        ours = self.rows[0].step_seconds if self.rows else seconds
        self.add_row(RollingRow(who, seconds, plan, EPOCH_HOURS * plan, seconds / ours, off))

    @classmethod
    def series(cls, rows: list[RollingRow]) -> list[Series]:
        """Make a series for each method: one point with the milliseconds of a plan."""
        return [Series(row.who, [i + 1.0], [1e3 * row.plan_seconds], row.who == "pear") for i, row in enumerate(rows)]


BENCHMARK = RollingBenchmark


def draw_rolling_benchmark_prices(settings: RollingSettings) -> tuple[Tensor, Tensor]:
    """Draw forecasts and true prices of all plans, (rollouts, steps, hours) each. Forecasts have errors of 20 %."""
    generator = torch.Generator().manual_seed(settings.seed)
    length = settings.steps + settings.hours - 1
    noise = torch.randn(settings.rollouts, length, generator=generator, dtype=torch.float64)
    hour = torch.arange(length) + torch.randint(24, (settings.rollouts, 1), generator=generator)
    price = 35 * torch.exp(0.3 * torch.sin(2 * math.pi * hour / 24) + 0.15 * noise)
    truth = price.unfold(1, settings.hours, 1).contiguous()
    return truth * torch.exp(0.2 * torch.randn(truth.shape, generator=generator, dtype=torch.float64)), truth
