"""How long does an epoch take, and a whole run? PEAR under the paper's protocol beside a plain loop that follows it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pear.bench import plain_loop
from pear.bench.peers import Peer, PeerError
from pear.bench.peers import measure as measure_peer
from pear.errors import ProblemError
from pear.experiments.plan import expand
from pear.experiments.protocols.lp import make_run_loss, make_split, make_task, paper_model, train
from pear.experiments.specs import Run, Selection
from pear.losses import PEARLoss
from pear.tasks import Knapsack, ShortestPath, Split

NAMES = {"paths": "shortest_path", "knapsack": "knapsack"}
"""Tasks as the command line calls them, and as the experiments do."""

PLAIN, PEAR = "plain loop", "pear"


@dataclass(frozen=True)
class Settings:
    """What to measure.

    Attributes:
        tasks: of ``NAMES``.
        degree: of the costs.
        seeds: one run each.
        epochs: to time.
        full: whole runs with early stopping instead, at most 10,000 epochs or ``cap`` seconds.
        cap: seconds a whole run may take.
        threads: for every side.
        quick: smaller problems.
    """

    tasks: tuple[str, ...] = ("paths", "knapsack")
    degree: int = 8
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    epochs: int = 5
    full: bool = False
    cap: float = 600.0
    threads: int = 1
    quick: bool = False

    def __post_init__(self) -> None:
        for task in self.tasks:
            if task not in NAMES:
                raise ProblemError(f"--tasks must be some of {', '.join(NAMES)}; got {task!r}")
        if not self.tasks or self.epochs < 1 or not self.cap > 0:
            raise ProblemError(
                f"there must be a task, at least 1 epoch and a positive cap; got {list(self.tasks)}, {self.epochs} "
                f"epochs and {self.cap} s"
            )

    def runs(self, task: str) -> list[Run]:
        """The trainings of a task, one a seed."""
        selection = Selection([NAMES[task]], ["pear"], [self.degree], self.seeds, self.cap, self.quick)
        runs = expand(["lp-degree"], selection)
        if self.full:
            return runs
        return [replace(run, settings={**run.settings, "max_epochs": self.epochs}) for run in runs]


@dataclass(frozen=True)
class Row:
    """One side of one training.

    Attributes:
        task: of ``NAMES``; seed: of the run.
        who: "pear", "plain loop" or a peer's title.
        epochs: trained.
        epoch_seconds: an epoch, without the checks.
        seconds: everything, checks included; None where a peer makes none.
        regret: normalised regret on the test samples, with the weights at the end of it.
        reuse_rate: share of the samples for which no solver was called.
        profile: seconds by what they were spent on.
        versions: of a peer's packages.
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


def run(
    settings: Settings,
    peers: list[tuple[Peer, Path]],
    on_row: Callable[[Row], None],
    on_note: Callable[[str], None] = lambda text: None,
    say: Callable[[str], None] = lambda text: None,
) -> None:
    """Train every side of every run, one after the other.

    Args:
        settings: what to measure.
        peers: with the Python that each runs in.
        on_row: called with every row as soon as it is measured.
        on_note: called with what failed, in words.
        say: called with what is being done.
    """
    for name in settings.tasks:
        if settings.runs(name):
            _warm_up(replace(settings, quick=True, full=False, epochs=1).runs(name)[0])
        for one in settings.runs(name):
            for row in _sides(settings, name, one, peers, on_note, say):
                on_row(row)


def _warm_up(run: Run) -> None:
    """One epoch of a small run: what is compiled or loaded on first use is no part of any measurement."""
    task = make_task(run)
    train(run, task, make_split(run, task))


def _sides(
    settings: Settings,
    name: str,
    one: Run,
    peers: list[tuple[Peer, Path]],
    on_note: Callable[[str], None],
    say: Callable[[str], None],
) -> Iterator[Row]:
    task = make_task(one)
    split = make_split(one, task)
    limit = one.settings["max_epochs"]

    def at(who: str) -> Callable[[int], None]:
        return lambda epoch: say(f"{name}, seed {one.seed}, {who}: epoch {epoch:,} of at most {limit:,}")

    ours = _ours(name, one, task, split, at(PEAR))
    yield ours
    yield _plain(name, one, make_task(one), split, at(PLAIN))
    for peer, python in peers:
        # a peer makes no checks: in whole runs it trains for as many epochs as ours did
        at(peer.title)(ours.epochs)
        try:
            yield _peer(settings, name, one, task, split, ours.epochs, peer, python)
        except PeerError as error:
            on_note(f"{peer.title}, {name}, seed {one.seed}: left out: {error}")


def _ours(name: str, one: Run, task: ShortestPath | Knapsack, split: Split, progress: Callable[[int], None]) -> Row:
    loss = make_run_loss(one, task)
    model, history = train(one, task, split, lambda report: progress(report.epoch), loss)
    if history.interrupted:
        raise KeyboardInterrupt
    network = _network_seconds(task.problem.n, split, one.seed) * history.epochs
    profile = dict(history.split)
    profile["network"] = min(network, profile.get("rest", 0.0))
    profile["rest"] = profile.get("rest", 0.0) - profile["network"]
    reuse = loss.reused / max(loss.samples, 1) if isinstance(loss, PEARLoss) else None
    seconds = (history.seconds - history.check_seconds) / max(history.epochs, 1)
    regret = _regret(task, model, split)
    return Row(name, one.seed, PEAR, history.epochs, seconds, history.seconds, regret, reuse, profile)


def _network_seconds(n: int, split: Split, seed: int) -> float:
    """Seconds of one epoch of the same network, optimizer and batches with a loss that costs nothing."""
    model, _ = paper_model(n, seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    began = time.perf_counter()
    for features in split.train.features.split(32):
        optimizer.zero_grad()
        model(features).mean().backward()
        optimizer.step()
    return time.perf_counter() - began


def _plain(name: str, one: Run, task: ShortestPath | Knapsack, split: Split, progress: Callable[[int], None]) -> Row:
    s = one.settings
    options = (one.seed, s["max_epochs"], s["smoothing"], s["injection"], s["time_cap"], progress)
    model, history = plain_loop.train(task.problem, split, task.normalized_regret, *options)
    regret = _regret(task, model, split)
    return Row(
        name, one.seed, PLAIN, history.epochs, history.epoch_seconds, history.seconds, regret, None, history.split
    )


def _peer(
    settings: Settings,
    name: str,
    one: Run,
    task: ShortestPath | Knapsack,
    split: Split,
    epochs: int,
    peer: Peer,
    python: Path,
) -> Row:
    model, _ = paper_model(task.problem.n, one.seed)
    data: dict[str, Any] = {
        "features": split.train.features.numpy(),
        "costs": split.train.costs.numpy(),
        "first_weight": model.weight.detach().numpy(),
        "first_bias": model.bias.detach().numpy(),
        "epochs": epochs,
        "seed": one.seed,
    }
    if isinstance(task, ShortestPath):
        data["grid"] = np.asarray(task.grid)
    else:
        data |= {"weights": task.weights.numpy(), "capacity": task.capacity.numpy()}
    found = measure_peer(peer, python, data, "cpu", settings.threads, 1, settings.cap, warm_up=False)
    with torch.no_grad():
        model.weight.copy_(torch.from_numpy(found.arrays["weight"]))
        model.bias.copy_(torch.from_numpy(found.arrays["bias"]))
    seconds = float(found.arrays["training_seconds"]) / epochs
    return Row(name, one.seed, peer.title, epochs, seconds, None, _regret(task, model, split), versions=found.versions)


def _regret(task: ShortestPath | Knapsack, model: nn.Module, split: Split) -> float:
    with torch.no_grad():
        predicted: Tensor = model(split.test.features)
    return task.normalized_regret(predicted, split.test.costs)


@dataclass(frozen=True)
class Summary:
    """All seeds of one side on one task.

    Attributes:
        task, who: as in the rows.
        seeds: how many.
        epochs: trained on average.
        epoch_seconds: median over the seeds.
        seconds: mean of whole runs, None where unknown.
        ratio: median over the seeds of its time per epoch to that of ``pear`` with the same seed.
        run_ratio: the same for whole runs.
        regret, regret_std: mean and sample deviation.
        reuse_rate: mean.
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


def summarize(rows: Sequence[Row]) -> list[Summary]:
    """One line for every side of every task, over the seeds measured so far."""
    return [
        _summary([row for row in rows if (row.task, row.who) == key], rows)
        for key in dict.fromkeys((row.task, row.who) for row in rows)
    ]


def _summary(own: list[Row], rows: Sequence[Row]) -> Summary:
    base = {row.seed: row for row in rows if row.who == PEAR and row.task == own[0].task}
    pairs = [(row, base[row.seed]) for row in own if row.seed in base]
    runs = [row.seconds / ours.seconds for row, ours in pairs if row.seconds and ours.seconds]
    regrets = [row.regret for row in own]
    reuse = [row.reuse_rate for row in own if row.reuse_rate is not None]
    whole = [row.seconds for row in own if row.seconds is not None]
    return Summary(
        task=own[0].task,
        who=own[0].who,
        seeds=len(own),
        epochs=float(np.mean([row.epochs for row in own])),
        epoch_seconds=float(np.median([row.epoch_seconds for row in own])),
        seconds=float(np.mean(whole)) if whole else None,
        ratio=_median([row.epoch_seconds / ours.epoch_seconds for row, ours in pairs]),
        run_ratio=_median(runs),
        regret=float(np.mean(regrets)),
        regret_std=float(np.std(regrets, ddof=1)) if len(regrets) > 1 else float("nan"),
        reuse_rate=float(np.mean(reuse)) if reuse else None,
    )


def _median(values: Sequence[float]) -> float:
    return float(np.median(values)) if len(values) else float("nan")
