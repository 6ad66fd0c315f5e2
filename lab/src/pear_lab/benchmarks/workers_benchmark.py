"""Benchmark: data-parallel training. The rates of a few workers are measured, and those of more are predicted."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from pear.compile.thread_pools import thread_count as core_count
from pear.errors import ProblemError
from pear.losses import PEARLoss
from pear.problem import Problem
from pear.train import FitConfig, fit
from pear_lab.benchmarks.bench_settings import BenchSettings, setting
from pear_lab.benchmarks.benchmark import Benchmark, Labels
from pear_lab.benchmarks.number_formats import format_long_duration, format_number
from pear_lab.benchmarks.program_structures import STRUCTURES, Structure, choose_structures
from pear_lab.benchmarks.series_plot import Series
from pear_lab.benchmarks.streams_benchmark import StreamsBenchmarkLoss, StreamsBenchmarkMarks
from pear_lab.benchmarks.text_table import TextTable
from pear_lab.benchmarks.timing import use_timing_threads

HIDDEN = 64
"""The number of hidden units of the forecaster."""
_LARGE = 2**20  # the count of numbers in the large sum, from which the bandwidth is computed
_SUMS = 30  # the number of measured sums of each size
_OWN = tuple(
    one.name for one in STRUCTURES if one.name in ("portfolio", "box", "rows", "own-rows")
)  # each sample has its own Q


@dataclass(frozen=True)
class WorkerSettings(BenchSettings):
    """Measure training on one worker and on several, and predict time and core hours for more of both."""

    structures: tuple[str, ...] = setting(("knapsack", "path-5"), "Structures, among knapsack, path-5 and path-12.")
    batch_size: int = setting(512, "The number of samples of a step on each worker.", least=1, quick=64)
    steps: int = setting(8, "The number of steps of each measurement.", least=2, quick=3)
    rounds: int = setting(
        5, "The number of measurements, of one worker and of all in turn; the fastest count.", least=1, quick=1
    )
    local: int = setting(2, "The number of processes on this machine, one thread each.", least=2)
    workers: tuple[int, ...] = setting(
        (1, 2, 8, 64, 1024), "Numbers of workers for which the time is estimated.", least=1
    )
    samples: tuple[float, ...] = setting(
        (1e6, 1e8, 1e10), "Numbers of samples for which the time is estimated.", least=1
    )
    latency: float | None = setting(None, "The time of a message between workers, in seconds.", shown="measured")
    bandwidth: float | None = setting(None, "The bandwidth between workers, in bytes per second.", shown="measured")
    price: float | None = setting(None, "The price of a core hour, in your currency.", shown="no costs")
    seed: int = setting(0, "Seed of samples and weights.")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.structures:
            if name in _OWN:
                raise ProblemError(
                    f"--structures must be of samples that share their problem: knapsack, path-5, path-12; got {name!r}"
                )


@dataclass(frozen=True)
class WorkersBenchmarkNetwork:
    """The network between the workers, which sum their gradients by a ring all-reduce.

    Attributes:
        latency: the seconds of a message.
        bandwidth: the bytes per second.

    Example:
        >>> round(WorkersBenchmarkNetwork(latency=1e-4, bandwidth=1e9).seconds(workers=2, size=1e6), 6)
        0.0012
    """

    latency: float
    bandwidth: float

    def seconds(self, workers: int, size: float) -> float:
        """Predict the seconds of a sum of ``size`` bytes over N workers: 2 (N − 1) messages of ``size`` / N bytes."""
        return 2 * (workers - 1) * (self.latency + size / workers / self.bandwidth)


@dataclass(frozen=True)
class WorkerRow:
    """The measured rates of one structure, and the settings of the prediction.

    Attributes:
        structure: the name of the structure.
        n: the number of variables.
        parameters: the number of parameters of the forecaster.
        step_bytes: the bytes of the gradients that each worker adds to the sum of a step.
        batch_size: the samples of a step on each worker.
        alone: the samples per second of one worker while the others wait.
        busy: the samples per second of the slowest worker while all workers train separately.
        local: the number of workers on this machine.
        together: the samples per second of all local workers in a joint training.
        latency: the seconds of a message between workers.
        bandwidth: the bytes per second between workers.
        workers: the numbers of workers to predict for.
        samples: the numbers of samples to predict for.
        price: the price of a core hour, or None.
    """

    structure: str
    n: int
    parameters: int
    step_bytes: int
    batch_size: int
    alone: float
    busy: float
    local: int
    together: float
    latency: float
    bandwidth: float
    workers: tuple[int, ...]
    samples: tuple[float, ...]
    price: float | None

    def rate(self, workers: int) -> float:
        """Predict the samples per second of a number of workers.

        A step takes the time of its computation and of two sums over the workers. One sum is of all gradients, the
        other of so few bytes that only the latency counts. One worker computes at the rate ``alone``, and several at
        the rate ``busy``, because they share the memory.
        """
        network = WorkersBenchmarkNetwork(self.latency, self.bandwidth)
        step = self.batch_size / (self.busy if workers > 1 else self.alone)
        step += network.seconds(workers, self.step_bytes) + network.seconds(workers, 0)
        return workers * self.batch_size / step


class WorkersBenchmark(Benchmark[WorkerSettings, WorkerRow]):
    """The benchmark of data-parallel training on one worker and on several."""

    options = WorkerSettings
    labels = Labels("Data-parallel training", "workers", "samples a second")

    def run(self) -> None:
        """Measure every structure, all of them in the same processes."""
        settings, callbacks = self.settings, self.callbacks
        if settings.local > core_count():
            raise ProblemError(f"--local must be at most {core_count()}, the cores there are; got {settings.local}")
        callbacks.say(f"training on {', '.join(settings.structures)}, one worker and {settings.local} in turns")
        for structure, found in zip(
            choose_structures(settings.structures), _run_benchmark_workers(settings), strict=True
        ):
            found |= {name: getattr(settings, name) for name in ("latency", "bandwidth") if getattr(settings, name)}
            found |= {name: getattr(settings, name) for name in ("batch_size", "local", "workers", "samples", "price")}
            row = WorkerRow(structure=structure.name, n=structure.size, step_bytes=4 * found["parameters"], **found)
            self.add_row(row)
            message, rate = f"{row.latency * 1e6:.0f} µs", f"{row.bandwidth / 1e6:,.0f} MB/s"
            callbacks.on_note(f"{row.structure}: a message {message}, {rate} between the workers")
        callbacks.on_note(
            "alone: one worker, the others wait; busy: each by itself at the same time; reckoned: a step of a busy "
            "worker, and two sums round a ring, one of them of all gradients"
        )

    @classmethod
    def tables(cls, rows: list[WorkerRow]) -> list[TextTable]:
        """Make a table of measured rates and, if there are rows, a table of predictions for more workers."""
        return [
            _table_of_measured_workers_benchmark(rows),
            *([_table_of_predicted_workers_benchmark(rows)] if rows else []),
        ]

    @classmethod
    def series(cls, rows: list[WorkerRow]) -> list[Series]:
        """Make the series of samples per second over workers: lines for predictions, and points for measurements."""
        lines = [Series(row.structure, row.workers, [row.rate(count) for count in row.workers]) for row in rows]
        points = [Series(row.structure, [1, row.local], [row.alone, row.together], joined=False) for row in rows]
        return lines + points


BENCHMARK = WorkersBenchmark


def _run_benchmark_workers(settings: WorkerSettings) -> list[dict[str, Any]]:
    """Start the workers, and return the measurements of the first one for every structure.

    The processes find each other through a file.
    """
    with TemporaryDirectory() as folder, ProcessPoolExecutor(settings.local, get_context("spawn")) as pool:
        meeting = (Path(folder) / "meeting").as_uri()
        first, *others = [pool.submit(run_benchmark_worker, rank, meeting, settings) for rank in range(settings.local)]
        for one in others:
            one.result()
        return first.result()


def run_benchmark_worker(rank: int, meeting: str, settings: WorkerSettings) -> list[dict[str, Any]]:
    """Do the work of one process: train alone and with the others, in turns, and time sums over all workers.

    Args:
        rank: the number of this worker.
        meeting: the address of the file through which the workers find each other.
        settings: what to measure.

    Returns:
        For each structure the arguments of ``WorkerRow`` that are measured.
    """
    wait = datetime.timedelta(seconds=300)
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=settings.local, timeout=wait)
    try:
        with use_timing_threads(1):
            return [
                _measure_workers_benchmark(rank, settings, structure)
                for structure in choose_structures(settings.structures)
            ]
    finally:
        dist.destroy_process_group()


def _measure_workers_benchmark(rank: int, settings: WorkerSettings, structure: Structure) -> dict[str, Any]:
    """Measure one structure. Return the measured arguments of ``WorkerRow``. All workers must call this function."""
    data, alone, busy, together = WorkersBenchmarkTraining(settings, structure), [0.0], [0.0], [0.0]
    for _ in range(settings.rounds):
        if rank == 0:
            alone.append(data.rate(1))
        dist.barrier()
        slowest = torch.tensor(data.rate(1))
        dist.all_reduce(slowest, dist.ReduceOp.MIN)
        busy.append(float(slowest))
        together.append(data.rate(settings.local))
        dist.barrier()
    small, large = _time_workers_benchmark_sum(1), _time_workers_benchmark_sum(_LARGE)
    messages, share = 2 * (settings.local - 1), 4 * _LARGE / settings.local
    network = {"latency": small / messages, "bandwidth": messages * share / max(large - small, 1e-9)}
    rates = {"alone": max(alone), "busy": max(busy), "together": max(together)}
    return {**network, **rates, "parameters": data.parameters}


class WorkersBenchmarkTraining:
    """A training of a small network on random samples in memory, to measure samples per second.

    A structure draws programs with predicted and true costs. Here the predicted costs serve as the features from which
    the network forecasts the true costs.
    """

    def __init__(self, settings: WorkerSettings, structure: Structure) -> None:
        self.settings, self.n = settings, structure.size
        count = settings.batch_size * settings.local * (settings.steps + 1)
        draw = structure.draw(np.random.default_rng(settings.seed), structure.size, count)
        self.problem, self.smoothing = Problem(**draw.fields), draw.smoothing
        self.samples = tuple(torch.from_numpy(part).float() for part in (draw.cost, draw.true))
        self.parameters = sum(parameter.numel() for parameter in self._make_model().parameters())

    def _make_model(self) -> nn.Module:
        """Make the forecaster, with the same weights on every worker."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.settings.seed)
            return nn.Sequential(nn.Linear(self.n, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, self.n))

    def rate(self, workers: int) -> float:
        """Train ``workers`` workers for an epoch without warm starts. Return the samples per second of all of them.

        The first step does not count.
        """
        size, steps = self.settings.batch_size * workers, self.settings.steps + 1
        features, costs = (part[: size * steps] for part in self.samples)
        model, loss = self._make_model(), StreamsBenchmarkLoss(PEARLoss(self.problem, smoothing=self.smoothing))
        marks = StreamsBenchmarkMarks(self.settings.batch_size * steps, every=1)
        model.register_forward_hook(marks.hook)
        config = FitConfig(max_epochs=1, batch_size=size, start="standardised", data_parallel=workers > 1)
        fit(model, loss, (features, costs), (features[:8], costs[:8]), lambda *_: 0.0, config)
        return workers * marks.row("", 0, 1 / steps).rate


def _time_workers_benchmark_sum(count: int) -> float:
    """Return the median seconds of a sum of ``count`` float32 numbers over all workers."""
    numbers, found = torch.zeros(count), []
    for _ in range(_SUMS):
        dist.barrier()
        began = time.perf_counter()
        dist.all_reduce(numbers)
        found.append(time.perf_counter() - began)
    return float(np.median(found))


def _table_of_measured_workers_benchmark(rows: Iterable[WorkerRow]) -> TextTable:
    """Make the table that compares measured with predicted rates."""
    headings = ("structure", "variables", "kB a step", "alone", "busy", "workers", "measured", "reckoned", "off")
    table = TextTable("Samples a second, measured and reckoned", headings)
    for row in rows:
        reckoned = row.rate(row.local)
        rates = (f"{row.alone:,.0f}", f"{row.busy:,.0f}", str(row.local), f"{row.together:,.0f}", f"{reckoned:,.0f}")
        table.rows.append(
            (
                row.structure,
                str(row.n),
                f"{row.step_bytes / 1e3:,.0f}",
                *rates,
                f"{reckoned / row.together - 1:+.0%}".replace("%", " %"),
            )
        )
    return table


def _table_of_predicted_workers_benchmark(rows: list[WorkerRow]) -> TextTable:
    """Make the table of predicted times and core hours for more workers and samples."""
    samples, price = rows[0].samples, rows[0].price
    times = tuple(f"10^{np.log10(count):g}" if count >= 1e4 else f"{count:,.0f}" for count in samples)
    costs = ("cost",) if price is not None else ()
    table = TextTable(
        f"Reckoned: time for so many samples; core hours for the last, {times[-1]}",
        ("structure", "workers", "samples/s", *times, "core hours", *costs),
    )
    for row in rows:
        for workers in row.workers:
            rate = row.rate(workers)
            hours = workers * samples[-1] / rate / 3600
            spent = () if price is None else (format_number(hours * price),)
            cells = (
                row.structure,
                f"{workers:,}",
                f"{rate:,.0f}",
                *(format_long_duration(count / rate) for count in samples),
            )
            table.rows.append((*cells, format_number(hours), *spent))
    return table
