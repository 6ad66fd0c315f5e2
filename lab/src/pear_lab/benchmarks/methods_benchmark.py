"""Benchmark: the time of one training step, forward and backward, with every training method of PEAR and of PyEPO.

PEAR and PyEPO get the same programs, true costs and forecasts in float32. Both know the best decisions under the true
costs, as after the first epoch of a training. Forecasts are new in every step, so that the best decisions under a
forecast are never known before.
"""

from __future__ import annotations

import inspect
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from pear.errors import ProblemError
from pear.losses import MSELoss, make_loss, method
from pear.losses.methods import METHODS
from pear_lab.benchmarks.bench_settings import BenchSettings, setting
from pear_lab.benchmarks.benchmark import Benchmark, Callbacks, Labels
from pear_lab.benchmarks.number_formats import format_error, format_number
from pear_lab.benchmarks.series_plot import Series
from pear_lab.benchmarks.step_tasks import STEP_TASKS, StepTask
from pear_lab.benchmarks.text_table import TextTable
from pear_lab.peers import Peer, PeerError, measure_peer
from pear_lab.peers.workers.run_pyepo_methods import WARM_UP, warm_up_steps
from pear_lab.peers.workers.worker import CLOCKS

PYEPO: dict[str, tuple[str, dict[str, str]]] = {
    "spo+": ("SPOPlus", {}),
    "pfyl": ("PFY", {"n_samples": "samples", "sigma": "sigma"}),
    "dbb": ("DBB", {"lambd": "interpolation"}),
    "nid": ("NID", {}),
    "pg": ("PG", {}),
    "dpo": ("DPO", {"n_samples": "samples"}),
    "dpo-multiplicative": ("DPOMul", {"n_samples": "samples"}),
    "imle": ("IMLE", {"n_samples": "samples"}),
    "aimle": ("AIMLE", {"n_samples": "samples"}),
    "rfwo": ("RFWO", {}),
    "rfyl": ("RFY", {}),
    "nce": ("NCE", {"solve_ratio": "solve_ratio"}),
    "cmap": ("CMAP", {"solve_ratio": "solve_ratio"}),
    "ltr-pointwise": ("ptLTR", {"solve_ratio": "solve_ratio"}),
    "ltr-pairwise": ("prLTR", {"solve_ratio": "solve_ratio"}),
    "ltr-listwise": ("lsLTR", {"solve_ratio": "solve_ratio"}),
}
"""For each method the class of PyEPO, and its options with the attributes of our loss that hold their values."""

COMPARED = ("spo+", "dbb", "nid")
"""Methods whose gradient depends on no random draw and no unit of costs, so that both libraries must agree."""

PEAR = "pear"
_NOISE = 0.25  # the error of forecasts, relative to the spread of the costs

Array = NDArray[np.float32]


@dataclass(frozen=True)
class MethodsBenchmarkSettings(BenchSettings):
    """Time a training step of every method, and of PyEPO's own implementation with open solvers."""

    tasks: tuple[str, ...] = setting(tuple(STEP_TASKS), f"{', '.join(STEP_TASKS)}.", quick=("path-5",))
    methods: tuple[str, ...] = setting(("all",), "Names of methods, or all.", quick=("spo+", "pfyl"))
    batch: int = setting(32, "The number of samples of a step.", least=1)
    repeats: int = setting(15, "The number of steps of each library in a round.", least=1, quick=3)
    rounds: int = setting(
        3, "The number of rounds over all libraries; the median of all steps counts.", least=1, quick=1
    )
    limit: float = setting(10.0, "The time limit of the steps of a method in a round, in seconds.", positive=True)
    clock: str = setting("wall", "wall, or processor for processor time, if other programs use the machine.")
    seed: int = setting(0, "Seed of programs and costs.")
    threads: int = setting(1, "Threads for each library.")

    def __post_init__(self) -> None:
        super().__post_init__()
        unknown = [name for name in self.tasks if name not in STEP_TASKS]
        if unknown:
            raise ProblemError(f"--tasks must be some of {', '.join(STEP_TASKS)}; got {', '.join(unknown)!r}")
        if self.clock not in CLOCKS:
            raise ProblemError(f"--clock must be one of {', '.join(CLOCKS)}; got {self.clock!r}")
        for name in self.method_names:
            method(name)

    @property
    def method_names(self) -> tuple[str, ...]:
        """The names of the methods to time."""
        return tuple(row.name for row in METHODS) if "all" in self.methods else self.methods


@dataclass(frozen=True)
class MethodRow:
    """The time of one method on one task, by PEAR or by a peer.

    Attributes:
        task: the name of the task.
        method: the name of the method.
        who: "pear" or the title of the peer.
        solver: the solver of the peer; empty for PEAR.
        seconds: the median time of a step.
        steps: the number of timed steps.
        ratio: the seconds of the peer relative to those of PEAR; NaN for PEAR.
        difference: the largest difference of the peer's gradients from PEAR's, relative to the largest entry of PEAR's;
            NaN for PEAR, and for methods that are not in ``COMPARED``.
    """

    task: str
    method: str
    who: str
    solver: str
    seconds: float
    steps: int
    ratio: float = math.nan
    difference: float = math.nan


class MethodsBenchmark(Benchmark[MethodsBenchmarkSettings, MethodRow]):
    """The benchmark of a training step of every method, by PEAR and by PyEPO."""

    options = MethodsBenchmarkSettings
    labels = Labels("A training step", "in the order of the table", "seconds a step")
    peer_command = "methods"

    def run(self) -> None:
        """Time the steps of PEAR and of each peer, in turns, task by task."""
        for name in self.settings.tasks:
            task = STEP_TASKS[name](np.random.default_rng([self.settings.seed, len(name)]))
            steps = _MethodsBenchmarkTask(self.settings, name, task, self.callbacks)
            for _ in range(self.settings.rounds):
                steps.play_round(self.peers)
            for row in steps.rows():
                self.add_row(row)

    @classmethod
    def tables(cls, rows: list[MethodRow]) -> list[TextTable]:
        """Make a table with a line for each task and method: the time of PEAR, and that of the fastest peer."""
        columns: dict[str, Callable[[tuple[MethodRow, MethodRow | None]], str]] = {
            "task": lambda pair: pair[0].task,
            "method": lambda pair: pair[0].method,
            "fastest peer": lambda pair: "–" if pair[1] is None else f"{pair[1].who}: {pair[1].solver}",
            "pear,\nms": lambda pair: format_number(1e3 * pair[0].seconds),
            "peer,\nms": lambda pair: "–" if pair[1] is None else format_number(1e3 * pair[1].seconds),
            "peer /\npear": lambda pair: "–" if pair[1] is None else format_number(pair[1].ratio),
            "difference": lambda pair: "–" if pair[1] is None else format_error(pair[1].difference),
        }
        return [TextTable.of("A training step, forward and backward", pair_with_fastest_method(rows), columns, left=3)]

    @classmethod
    def series(cls, rows: list[MethodRow]) -> list[Series]:
        """Make a series of step times for each library. Each task has a panel, and each method a point."""
        found = []
        for task in dict.fromkeys(row.task for row in rows):
            for who in dict.fromkeys(row.who for row in rows):
                own = [row for row in rows if (row.task, row.who) == (task, who)]
                places = [list(dict.fromkeys(r.method for r in rows)).index(row.method) + 1.0 for row in own]
                if own:
                    found.append(Series(who, places, [row.seconds for row in own], who == PEAR, task, joined=False))
        return found


BENCHMARK = MethodsBenchmark


class _MethodsBenchmarkTask:
    """The timed training steps of all losses of PEAR, and of all peers, on one task.

    Args:
        settings: what to measure.
        name: the name of the task.
        task: the task.
        callbacks: receive notes and progress.
    """

    def __init__(self, settings: MethodsBenchmarkSettings, name: str, task: StepTask, callbacks: Callbacks) -> None:
        self.settings, self.name, self.task, self.callbacks = settings, name, task, callbacks
        self.random = np.random.default_rng([settings.seed, 1])
        shape = (settings.repeats, settings.batch, task.n)
        self.true = task.draw_costs(self.random, shape).astype(np.float32)
        self.losses = {one: loss for one in settings.method_names if (loss := self._make_loss(one)) is not None}
        self.seconds: dict[tuple[str, str], list[float]] = {}
        self.solvers: dict[str, str] = {}
        self.differences: dict[str, float] = {}

    def _make_loss(self, name: str) -> nn.Module | None:
        """Make the loss of a method, and let it solve all samples once. Return None if the task omits the method."""
        if name in self.task.left_out:
            self.callbacks.on_note(f"{self.name}: {name} left out, {self.task.left_out[name]}")
            return None
        self.callbacks.say(f"{self.name}, {name}: first visit of all samples")
        known = inspect.signature(method(name).loss).parameters
        plain = {"mse_weight": 0.0, "cost_unit": 1.0}
        options = {key: value for key, value in plain.items() if key in known and method(name).loss is not MSELoss}
        loss = make_loss(name, self.task.decider, **options)
        self._time_ours(loss, self._draw_forecasts())
        return loss

    def _draw_forecasts(self) -> Array:
        """Draw forecasts (repeats, B, n) of the true costs, one batch for each step of a round."""
        noise = self.random.standard_normal(self.true.shape)
        forecasts: Array = self.true + (_NOISE * self.true.std() * noise).astype(np.float32)
        return forecasts

    def play_round(self, peers: Sequence[tuple[Peer, Path]]) -> None:
        """Time the steps of PEAR and of each peer, all on the same new forecasts."""
        predicted = self._draw_forecasts()
        ours = {}
        for name, loss in self.losses.items():
            self.callbacks.say(f"{self.name}, {name}: {PEAR}")
            seconds, ours[name] = self._time_ours(loss, predicted)
            self.seconds.setdefault((name, PEAR), []).extend(seconds)
        for peer, python in peers:
            self.callbacks.say(f"{self.name}: {peer.title}")
            try:
                self._time_peer(peer, python, predicted, ours)
            except PeerError as error:
                self.callbacks.on_note(f"{peer.title}, {self.name}: left out: {error}")

    def _time_ours(self, loss: nn.Module, predicted: Array) -> tuple[list[float], list[Array]]:
        """Time a step of PEAR on each batch, after some steps that do not count.

        Returns:
            The seconds and the gradient (B, n) of each step. There are fewer steps than batches if time runs out.
        """
        now, began, count = CLOCKS[self.settings.clock], time.perf_counter(), len(self.true)
        seconds, gradients = [], []
        for r in (*warm_up_steps(count), *range(count)):
            cost = torch.from_numpy(predicted[r]).clone().requires_grad_()
            true, keys = torch.from_numpy(self.true[r]), torch.arange(self.settings.batch) + r * self.settings.batch
            start = now()
            loss(cost, true, keys=keys).backward()
            seconds.append(now() - start)
            assert cost.grad is not None
            gradients.append(cost.grad.numpy())
            if len(seconds) > WARM_UP and time.perf_counter() - began > self.settings.limit:
                break
        return seconds[WARM_UP:], gradients[WARM_UP:]

    def _time_peer(self, peer: Peer, python: Path, predicted: Array, ours: dict[str, list[Array]]) -> None:
        """Time the same steps of a peer, and compare its gradients with ``ours``, those of PEAR by method."""
        limit, losses = self.settings.limit, {}
        for name in (name for name in self.losses if name in PYEPO):
            kind, options = PYEPO[name]
            losses[name] = kind, {key: getattr(self.losses[name], own) for key, own in options.items()}
        data = {**self.task.arrays(), "true": self.true, "predicted": predicted, "losses": json.dumps(losses)}
        data |= {"clock": self.settings.clock, "seconds": limit}
        allowed = limit * (len(losses) + 1)
        found = measure_peer(peer, python, data, "cpu", self.settings.threads, 1, allowed, warm_up=False)
        if peer.title not in self.solvers:
            tried = ", ".join(f"{who} {1e3 * s:.2f}" for who, s in json.loads(str(found.arrays["tried"])).items())
            self.callbacks.on_note(f"{self.name}, {peer.title}: ms a decision: {tried}")
            self.solvers[peer.title] = str(found.arrays["solver"])
        for name in losses:
            self.seconds.setdefault((name, peer.title), []).extend(found.arrays[f"seconds {name}"].tolist())
            if name in COMPARED:
                pairs = zip(ours[name], found.arrays[f"gradient {name}"], strict=False)
                off = max(gradient_difference_of_methods(one, other) for one, other in pairs)
                self.differences[name] = max(off, self.differences.get(name, 0.0))

    def rows(self) -> list[MethodRow]:
        """Make a row for each method and library, with the median of all rounds."""
        found = []
        for (name, who), seconds in sorted(self.seconds.items(), key=lambda item: list(self.losses).index(item[0][0])):
            middle, ours = median(seconds), median(self.seconds[name, PEAR])
            compared = (math.nan, math.nan) if who == PEAR else (middle / ours, self.differences.get(name, math.nan))
            found.append(MethodRow(self.name, name, who, self.solvers.get(who, ""), middle, len(seconds), *compared))
        return found


def gradient_difference_of_methods(one: Array, other: Array) -> float:
    """Return the largest difference of two gradients, relative to the largest entry of the first one.

    If the first gradient is zero, the result is 0 for a second gradient of zero, and infinite for any other.

    Example:
        >>> gradient_difference_of_methods(np.array([2.0, 1.0]), np.array([2.0, 0.5]))
        0.25
        >>> gradient_difference_of_methods(np.zeros(2), np.zeros(2))
        0.0
    """
    gap, size = float(np.abs(one - other).max()), float(np.abs(one).max())
    return gap / size if size > 0 else (math.inf if gap > 0 else 0.0)


def pair_with_fastest_method(rows: Sequence[MethodRow]) -> list[tuple[MethodRow, MethodRow | None]]:
    """Return pairs: each row of PEAR, and the row of the fastest peer on the same task and method, or None."""
    pairs = []
    for row in rows:
        if row.who == PEAR:
            others = [one for one in rows if (one.task, one.method) == (row.task, row.method) and one.who != PEAR]
            pairs.append((row, min(others, key=lambda one: one.seconds, default=None)))
    return pairs
