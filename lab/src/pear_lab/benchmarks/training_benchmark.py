"""Benchmark: the time of an epoch and of a whole training under the paper's protocol.

PEAR is compared with a plain loop over single samples and with other libraries.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from pear.errors import FailedSamplesWarning, ProblemError
from pear.losses import PEARLoss
from pear.problem import Problem
from pear.tasks import Knapsack, ShortestPath, Split
from pear.train import Progress
from pear_lab.benchmarks import plain_loop
from pear_lab.benchmarks.bench_settings import BenchSettings, setting
from pear_lab.benchmarks.benchmark import Benchmark, Labels
from pear_lab.benchmarks.number_formats import format_number, format_share
from pear_lab.benchmarks.series_plot import Series
from pear_lab.benchmarks.text_table import TextTable
from pear_lab.experiments.expand_runs import expand
from pear_lab.experiments.protocols import lp_protocol as lp
from pear_lab.experiments.run_spec import RunSpec, Selection
from pear_lab.peers import Peer, PeerError, measure_peer

NAMES = {"paths": "shortest_path", "knapsack": "knapsack"}
"""For each task of the command line its name in the experiments."""

PLAIN, PEAR = "plain loop", "pear"
MASKED = "pear, {:g} % infeasible, from the second epoch on"


@dataclass(frozen=True)
class TrainingBenchmarkSettings(BenchSettings):
    """Time training with PEAR and with a plain loop over single samples, and compare the regrets of both."""

    tasks: tuple[str, ...] = setting(("paths", "knapsack"), "paths, knapsack, separated by commas.")
    degree: int = setting(8, "The degree of the costs: 2, 4, 6 or 8.")
    seeds: tuple[int, ...] = setting((0, 1, 2, 3, 4), "Seeds, such as 0-4 or 0,2.", quick=(0,), shown="0-4")
    epochs: int = setting(5, "The number of epochs to time.", least=1)
    full: bool = setting(False, "Time whole runs with early stopping, of at most 10,000 epochs.")
    cap: float = setting(600.0, "The time limit of a run, in seconds.", positive=True)
    threads: int = setting(1, "Threads for each library.")
    profile: bool = setting(False, "Also show what the time is spent on.")
    infeasible: float = setting(0.0, "Also train with and without this share of infeasible samples.")
    quick: bool = setting(False, "Use smaller problems and one seed.")

    def __post_init__(self) -> None:
        super().__post_init__()
        unknown = [task for task in self.tasks if task not in NAMES]
        if unknown:
            raise ProblemError(f"--tasks must be some of {', '.join(NAMES)}; got {', '.join(unknown)!r}")
        if not 0 <= self.infeasible < 1:
            raise ProblemError(f"--infeasible must be a share from 0 to below 1; got {self.infeasible!r}")
        if self.infeasible and not self.full and self.epochs < 3:
            raise ProblemError(
                f"--infeasible leaves out the first epoch: --epochs must be at least 3; got {self.epochs}"
            )

    def runs(self, task: str) -> list[RunSpec]:
        """Return the trainings of a task, one for each seed."""
        selection = Selection([NAMES[task]], ["pear"], [self.degree], self.seeds, self.cap, self.quick)
        runs = expand(["lp-degree"], selection)
        if self.full:
            return runs
        return [replace(run, settings={**run.settings, "max_epochs": self.epochs}) for run in runs]


@dataclass(frozen=True)
class TrainingRow:
    """The time and the regret of one training by PEAR, by the plain loop or by a peer, which is another library.

    Attributes:
        task: "paths" or "knapsack".
        seed: the seed of the run.
        who: "pear", "plain loop" or the title of a peer.
        epochs: the number of trained epochs.
        epoch_seconds: the seconds per epoch, without the checks on validation samples.
        seconds: the total seconds, checks included; None for a peer, which makes no checks.
        regret: the normalised regret on the test samples, with the weights that validate best; for a peer, with the
            last weights.
        reuse_rate: the share of the samples for which no solver was called; None if it is not known.
        profile: the seconds of each phase; empty unless the settings ask for it.
        versions: the versions of a peer's packages.
        whole: whether the training was a whole run with early stopping, not a fixed number of epochs.
    """

    task: str
    seed: int
    who: str
    epochs: int
    epoch_seconds: float
    seconds: float | None
    regret: float
    reuse_rate: float | None = None
    profile: dict[str, float] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    whole: bool = False


class TrainingBenchmark(Benchmark[TrainingBenchmarkSettings, TrainingRow]):
    """The benchmark of training under the paper's protocol, with PEAR, a plain loop and other libraries."""

    options = TrainingBenchmarkSettings
    labels = Labels("Training under the paper's protocol", "seconds an epoch", "test regret")
    peer_command = "training"

    def run(self) -> None:
        """Carry out every training with PEAR, the plain loop and the peers, one after the other."""
        settings = self.settings
        for name in settings.tasks:
            if settings.runs(name):
                # what is compiled or loaded on first use is no part of any measurement
                train_as_benchmark(replace(settings, quick=True, full=False, epochs=1, infeasible=0.0).runs(name)[0])
            for one in settings.runs(name):
                for row in self._train_all(name, one):
                    shown = row if settings.profile else replace(row, profile={})
                    self.add_row(replace(shown, whole=settings.full))

    def _train_all(self, name: str, one: RunSpec) -> Iterator[TrainingRow]:
        """Carry out one training of the task ``name`` with PEAR, the plain loop and the peers, and yield the rows."""
        task = lp.make_task(one)
        compared = _TrainingBenchmarkRun(name, one, task, lp.make_split(one, task))
        limit = one.settings["max_epochs"]

        def at(who: str) -> Callable[[int], None]:
            return lambda epoch: self.callbacks.say(
                f"{name}, seed {one.seed}, {who}: epoch {epoch:,} of at most {limit:,}"
            )

        ours = compared.ours(at(PEAR))
        yield ours
        yield compared.plain(at(PLAIN))
        for part in (0.0, self.settings.infeasible) if self.settings.infeasible else ():
            yield compared.masked(part, at(MASKED.format(100 * part)))
        for peer, python in self.peers:
            # a peer makes no checks: in whole runs it trains for as many epochs as ours did
            at(peer.title)(ours.epochs)
            try:
                yield compared.peer(self.settings, ours.epochs, peer, python)
            except PeerError as error:
                self.callbacks.on_note(f"{peer.title}, {name}, seed {one.seed}: left out: {error}")

    @classmethod
    def tables(cls, rows: list[TrainingRow]) -> list[TextTable]:
        """Make a table that compares the libraries and, if rows have profiles, a table of the seconds of phases."""
        full = any(row.whole for row in rows)
        runs = ("s a run", "time /\npear") if full else ()
        headings = ("task", "who", "seeds", "epochs", "ms an\nepoch", "time /\npear", *runs, "test regret\n%", "reuse")
        table = TextTable("Training under the paper's protocol, means over seeds", headings, left=2)
        table.rows.extend(_training_benchmark_cells(one, full) for one in summarize_training_benchmark(rows))
        spent = {
            key: [row.profile for row in own]
            for key, own in _group_training_benchmark_rows([row for row in rows if row.profile]).items()
        }
        means = [(key, {name: float(np.mean([x[name] for x in own])) for name in own[0]}) for key, own in spent.items()]
        title = "Where the time goes, seconds a run"
        return [table, TextTable.of_profiles(title, ("task", "who"), means, left=2)] if means else [table]

    @classmethod
    def series(cls, rows: list[TrainingRow]) -> list[Series]:
        """Make a series for each library: test regret over seconds per epoch.

        Each task has a panel, and each seed a point. Low and left is best.
        """
        return [
            Series(
                who, [row.epoch_seconds for row in own], [row.regret for row in own], who == PEAR, task, joined=False
            )
            for (task, who), own in _group_training_benchmark_rows(rows).items()
        ]


BENCHMARK = TrainingBenchmark


def train_as_benchmark(run: RunSpec) -> None:
    """Train as the benchmark trains with PEAR, without measuring anything."""
    task = lp.make_task(run)
    lp.train_as_published(run, task, lp.make_split(run, task))


@dataclass(frozen=True)
class _TrainingBenchmarkRun:
    """One training, which PEAR, the plain loop and the peers carry out with the same samples and first weights.

    Attributes:
        name: the name of the task.
        run: the specification of the training.
        task: the task.
        split: the training, validation and test samples.
    """

    name: str
    run: RunSpec
    task: ShortestPath | Knapsack
    split: Split

    def ours(self, progress: Callable[[int], None]) -> TrainingRow:
        """Train with PEAR by the published protocol, and return the row."""
        loss = lp.make_run_loss(self.run, self.task)
        model, history = lp.train_as_published(
            self.run, self.task, self.split, lambda report: progress(report.epoch), loss
        )
        if history.interrupted:
            raise KeyboardInterrupt
        profile = dict(history.split)
        profile["network"] = min(self._network_seconds() * history.epochs, profile.get("rest", 0.0))
        profile["rest"] = profile.get("rest", 0.0) - profile["network"]
        reuse = loss.reused / max(loss.samples, 1) if isinstance(loss, PEARLoss) else None
        seconds = (history.seconds - history.check_seconds) / max(history.epochs, 1)
        return self._row(PEAR, model, history.epochs, seconds, history.seconds, reuse_rate=reuse, profile=profile)

    def plain(self, progress: Callable[[int], None]) -> TrainingRow:
        """Train with the plain loop, and return the row."""
        s, task = self.run.settings, lp.make_task(self.run)
        options = (self.run.seed, s["max_epochs"], s["smoothing"], s["injection"], s["time_cap"], progress)
        model, history = plain_loop.train_plain_loop(task.problem, self.split, task.normalized_regret, *options)
        seconds = (history.epoch_seconds, history.seconds)
        return self._row(PLAIN, model, history.epochs, *seconds, profile=history.split)

    def masked(self, part: float, progress: Callable[[int], None]) -> TrainingRow:
        """Train with PEAR on samples that each have their own right-hand sides, and return the row.

        The seconds per epoch are the median of all epochs but the first, in which the infeasible samples are found.

        Args:
            part: the share of the samples that are infeasible.
            progress: called with the number of each epoch.
        """
        own, s, count = self.task.problem, self.run.settings, len(self.split.train.features)
        name = "h" if own.b is None else "b"
        sides = getattr(own, name).reshape(1, -1).repeat(count, 1)
        if part:  # evenly spread over the samples
            sides[(torch.arange(round(part * count)) / part).long()] -= 1.0 + sides.abs().max()
        given = {field: getattr(own, field) for field in ("A", "b", "G", "h", "lb", "ub")} | {name: sides}
        problem = Problem(**given, sense=own.sense)
        loss = PEARLoss(problem, s["smoothing"], s["injection"], 0.0, on_failure="mask")
        ends: list[float] = []

        def ended(report: Progress) -> None:
            ends.append(time.perf_counter())
            progress(report.epoch)

        with warnings.catch_warnings():  # they name every failed sample once
            warnings.simplefilter("ignore", FailedSamplesWarning)
            model, history = lp.train_as_published(self.run, self.task, self.split, ended, loss)
        seconds = float(np.median(np.diff(ends)))  # the first epoch finds the failures; few later epochs have a check
        return self._row(MASKED.format(100 * part), model, history.epochs, seconds, history.seconds)

    def peer(self, settings: TrainingBenchmarkSettings, epochs: int, peer: Peer, python: Path) -> TrainingRow:
        """Train with a peer for a number of epochs, from the same first weights, and return the row."""
        model, _ = lp.paper_model(self.task.problem.n, self.run.seed)
        data: dict[str, Any] = {
            "features": self.split.train.features.numpy(),
            "costs": self.split.train.costs.numpy(),
            "first_weight": model.weight.detach().numpy(),
            "first_bias": model.bias.detach().numpy(),
            "epochs": epochs,
            "seed": self.run.seed,
        }
        if isinstance(self.task, ShortestPath):
            data["grid"] = np.asarray(self.task.grid)
        else:
            data |= {"weights": self.task.weights.numpy(), "capacity": self.task.capacity.numpy()}
        found = measure_peer(peer, python, data, "cpu", settings.threads, 1, settings.cap, warm_up=False)
        with torch.no_grad():
            model.weight.copy_(torch.from_numpy(found.arrays["weight"]))
            model.bias.copy_(torch.from_numpy(found.arrays["bias"]))
        seconds = float(found.arrays["training_seconds"]) / epochs
        return self._row(peer.title, model, epochs, seconds, None, versions=found.versions)

    def _row(
        self, who: str, model: nn.Module, epochs: int, epoch_seconds: float, seconds: float | None, **more: Any
    ) -> TrainingRow:
        """Make a row with the test regret of a model."""
        with torch.no_grad():
            regret = self.task.normalized_regret(model(self.split.test.features), self.split.test.costs)
        return TrainingRow(self.name, self.run.seed, who, epochs, epoch_seconds, seconds, regret, **more)

    def _network_seconds(self) -> float:
        """Return the seconds of an epoch of the same network, optimizer and batches, with a loss that takes no time."""
        model, _ = lp.paper_model(self.task.problem.n, self.run.seed)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        began = time.perf_counter()
        for features in self.split.train.features.split(32):
            optimizer.zero_grad()
            model(features).mean().backward()
            optimizer.step()
        return time.perf_counter() - began


@dataclass(frozen=True)
class TrainingSummary:
    """The summary of all seeds of one library on one task.

    Attributes:
        task, who: as in ``TrainingRow``.
        seeds: the number of seeds.
        epochs: the mean number of trained epochs.
        epoch_seconds: the median seconds per epoch.
        seconds: the mean of the total seconds; None if no row has them.
        ratio: the median of the time per epoch relative to that of PEAR with the same seed.
        run_ratio: the median of the total time relative to that of PEAR with the same seed.
        regret, regret_std: the mean and the standard deviation of the test regret over the seeds.
        reuse_rate: the mean reuse rate; None if no row has one.
    """

    task: str
    who: str
    seeds: int
    epochs: float
    epoch_seconds: float
    seconds: float | None
    ratio: float
    run_ratio: float
    regret: float
    regret_std: float
    reuse_rate: float | None


def summarize_training_benchmark(rows: Sequence[TrainingRow]) -> list[TrainingSummary]:
    """Summarise the rows of every task and library over the seeds measured so far."""
    return [_summarize_training_benchmark_rows(own, rows) for own in _group_training_benchmark_rows(rows).values()]


def _group_training_benchmark_rows(rows: Sequence[TrainingRow]) -> dict[tuple[str, str], list[TrainingRow]]:
    """Group rows by task and library."""
    found: dict[tuple[str, str], list[TrainingRow]] = {}
    for row in rows:
        found.setdefault((row.task, row.who), []).append(row)
    return found


def _summarize_training_benchmark_rows(own: list[TrainingRow], rows: Sequence[TrainingRow]) -> TrainingSummary:
    """Summarise the rows ``own`` of one library on one task. Ratios need the rows of PEAR among ``rows``."""
    base = {row.seed: row for row in rows if row.who == PEAR and row.task == own[0].task}
    pairs = [(row, base[row.seed]) for row in own if row.seed in base]
    runs = [row.seconds / ours.seconds for row, ours in pairs if row.seconds and ours.seconds]
    regrets = [row.regret for row in own]
    reuse = [row.reuse_rate for row in own if row.reuse_rate is not None]
    whole = [row.seconds for row in own if row.seconds is not None]
    return TrainingSummary(
        task=own[0].task,
        who=own[0].who,
        seeds=len(own),
        epochs=float(np.mean([row.epochs for row in own])),
        epoch_seconds=float(np.median([row.epoch_seconds for row in own])),
        seconds=float(np.mean(whole)) if whole else None,
        ratio=_median_of_training_benchmark([row.epoch_seconds / ours.epoch_seconds for row, ours in pairs]),
        run_ratio=_median_of_training_benchmark(runs),
        regret=float(np.mean(regrets)),
        regret_std=float(np.std(regrets, ddof=1)) if len(regrets) > 1 else float("nan"),
        reuse_rate=float(np.mean(reuse)) if reuse else None,
    )


def _median_of_training_benchmark(values: Sequence[float]) -> float:
    """Return the median; NaN without a value."""
    return float(np.median(values)) if len(values) else float("nan")


def _training_benchmark_cells(one: TrainingSummary, full: bool) -> tuple[str, ...]:
    """Make the cells of a summary. If ``full``, the cells on whole runs are included."""
    spread = "" if np.isnan(one.regret_std) else f" ± {100 * one.regret_std:.2f}"
    epoch = (format_number(1e3 * one.epoch_seconds), format_number(one.ratio))
    run = (format_number(one.seconds), format_number(one.run_ratio)) if full else ()
    counts = (str(one.seeds), format_number(one.epochs))
    return (one.task, one.who, *counts, *epoch, *run, f"{100 * one.regret:.2f}{spread}", format_share(one.reuse_rate))
