"""How the defaults were chosen: validation regret of several settings on tasks whose seeds no table uses.

    PEAR_DATA=… python lab/studies/defaults_study.py "" "beta=0.1" "start=mse,rho=0.3" [--cells paths-8 …]

The command trains with each setting by the protocol of the task. A cell is a task with its data. The table has a row
for each cell and a column for each setting: the mean validation regret in percent and, from the second setting on, its
paired difference from the first setting with a standard error. Test samples are never used.

A setting names what differs from the defaults. ``lam`` is λ, the strength of the smoothing; without it, λ is chosen
automatically, in proportion to ``rho``. ``beta`` is the injection, ``alpha`` the guidance at the start, and ``decay``
the factor of the guidance after each step. ``patience`` replaces that of the protocol if it is not 0. ``start`` is that
of ``FitConfig``, and ``loss`` is pear or mse.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import torch
from torch import nn

import pear
from pear.decisions import choose_smoothing
from pear.losses import defaults, pear_loss
from pear.losses.mse import MSELoss
from pear_lab.data.building_data import load_building
from pear_lab.data.energy_data import load_energy
from pear_lab.tasks.building_task import building_split
from pear_lab.tasks.energy_task import energy_split
from pear_lab.tasks.splits import SharedLinear

FIRST = 100
"""The first seed of this study. Lower seeds belong to tables of results."""


class Trial(NamedTuple):
    """A problem with training and validation samples, the metric, an untrained model, and settings of the protocol."""

    problem: pear.Problem
    train: tuple[Any, Any]
    validation: tuple[Any, Any]
    metric: Callable[[Any, Any], float]
    model: nn.Module
    protocol: dict[str, Any]


PAPER = {"patience": 3, "time_cap": 600.0}


def paths(degree: int, noise: float, seed: int) -> Trial:
    """Return a trial of shortest paths through the grid of PEAR's paper."""
    task = pear.tasks.shortest_path((5, 5))
    train, validation, _ = task.split(task.samples(2000, degree=degree, noise=noise, seed=seed))
    return Trial(task.problem, train, validation, task.normalized_regret, nn.Linear(5, task.problem.n), PAPER)


def knapsack(degree: int, noise: float, seed: int) -> Trial:
    """Return a trial of the knapsack of PEAR's paper. Its validation uses the integer program."""
    task = pear.tasks.random_knapsack(items=100, dimensions=5, capacity_ratio=0.5, seed=seed, jobs=1)
    train, validation, _ = task.split(task.samples(2000, degree=degree, noise=noise, seed=seed))
    return Trial(task.problem, train, validation, task.normalized_regret, nn.Linear(5, task.problem.n), PAPER)


def assignment(seed: int, size: int = 8, count: int = 500) -> Trial:
    """Return a trial of assignments with 300 training samples, and costs of both signs that no linear model fits."""
    random, n = np.random.RandomState(seed), size * size
    rows = np.vstack([np.kron(np.eye(size), np.ones(size)), np.kron(np.ones(size), np.eye(size))])
    problem = pear.Problem(A=rows, b=np.ones(2 * size), lb=0.0)
    scores = random.normal(size=(n, 5))
    x = random.normal(size=(count, 5))
    linear = x @ scores.T / np.sqrt(5)
    costs = 2 * linear + linear**2 * random.choice([-1, 1], n) + 0.5 * random.normal(size=linear.shape)
    features, true = torch.tensor(x).float(), torch.tensor(costs).float()
    metric = lambda predicted, paid: pear.normalized_regret(problem, predicted, paid)  # noqa: E731
    return Trial(problem, (features[:300], true[:300]), (features[300:], true[300:]), metric, nn.Linear(5, n), PAPER)


def energy(capacity: float) -> Trial:
    """Return a trial of the knapsack of half-hours.

    The data is the same for all seeds. The seed of a training changes only the first weights and the batches.
    """
    data = load_energy()
    split = energy_split(data, capacity)
    train, validation = split.train, split.validation
    model = SharedLinear(train.samples.features.shape[-1], data.weights)
    protocol = {"check_every": 5, "patience": 5, "time_cap": 20.0, "max_epochs": 300}
    metric = validation.task.normalized_regret
    return Trial(train.task.problem, train.samples, validation.samples, metric, model, protocol)


def building(seed: int) -> Trial:
    """Return a trial of building investment, in which properties are chosen within a budget.

    The seed assigns properties to instances, and chooses the fold that is the test set.
    """
    split = building_split(load_building(), seed, fold=seed % 5)
    train, validation = split.train, split.validation
    model = SharedLinear(train.samples.features.shape[-1])
    protocol = {"batch_size": 8, "check_every": 10, "patience": 10, "time_cap": 20.0, "max_epochs": 2000}
    metric = validation.task.normalized_regret
    return Trial(train.task.problem, train.samples, validation.samples, metric, model, protocol)


CELLS: dict[str, Callable[[int], Trial]] = {
    **{f"paths-{degree}": lambda seed, degree=degree: paths(degree, 0.0, seed) for degree in (2, 4, 6, 8)},
    "paths-8-noise": lambda seed: paths(8, 0.5, seed),
    **{f"knapsack-{degree}": lambda seed, degree=degree: knapsack(degree, 0.0, seed) for degree in (2, 4, 6, 8)},
    "knapsack-8-noise": lambda seed: knapsack(8, 0.5, seed),
    "assignment": assignment,
    **{f"energy-{c:g}": lambda seed, c=c: energy(c) for c in (60.0, 120.0, 180.0)},
    "building": building,
}


class Setting(NamedTuple):
    """The settings that may differ from the defaults. The docstring of the module explains them."""

    rho: float = choose_smoothing.STRENGTH
    lam: float | None = None
    beta: float = 0.05
    alpha: float = 10.0
    decay: float = 0.995
    patience: float = 0.0
    start: str = "given"
    loss: str = "pear"

    @classmethod
    def read(cls, text: str) -> Setting:
        """Return the setting that a text such as ``rho=0.3,beta=0.1`` describes."""
        pairs = dict(part.split("=", 1) for part in text.split(",") if part)
        words = ("start", "loss")
        return cls(**{name: value if name in words else float(value) for name, value in pairs.items()})  # type: ignore[arg-type]


@contextmanager
def library_constants(setting: Setting) -> Iterator[None]:
    """Set the constants of the library that ``rho`` and ``decay`` of a setting stand for, and restore them at the end.

    They are no arguments of ``PEARLoss``.
    """
    with (
        patch.object(choose_smoothing, "STRENGTH", setting.rho),
        patch.object(defaults, "DECAY", setting.decay),  # read by compiled epochs
        patch.object(pear_loss, "DECAY", setting.decay),  # read by ``PEARLoss.step``
    ):
        yield


def train(cell: str, text: str, seed: int) -> float:
    """Train on ``cell`` with the setting that ``text`` describes; return the best validation regret in percent."""
    torch.set_num_threads(1)
    setting = Setting.read(text)
    torch.manual_seed(seed)
    trial = CELLS[cell](seed)
    protocol = {**trial.protocol, **({"patience": int(setting.patience)} if setting.patience else {})}
    config = pear.FitConfig(seed=seed, start=setting.start, **protocol)  # type: ignore[arg-type]

    def run(loss: nn.Module) -> float:
        with library_constants(setting):
            history = pear.fit(trial.model, loss, trial.train, trial.validation, trial.metric, config)
        assert history.best is not None
        if history.stopped == "time_cap":
            print(f"\n{cell}, {text!r}, seed {seed} was ended by the time cap", file=sys.stderr)
        return 100 * history.best.metric

    if setting.loss == "mse":
        return run(MSELoss())
    own = pear.PEARLoss(
        trial.problem,
        smoothing="auto" if setting.lam is None else setting.lam,
        injection=setting.beta,
        guidance=setting.alpha,
    )
    return run(own)


def _job(job: tuple[str, str, int]) -> tuple[str, str, int, float]:
    return (*job, train(*job))


def _seeds(text: str) -> list[int]:
    first, _, last = text.partition("-")
    found = list(range(int(first), int(last or first) + 1))
    if found[0] < FIRST:
        raise SystemExit(f"seeds below {FIRST} belong to the tables; got {text}")
    return found


def table(found: dict[tuple[str, str, int], float], cells: list[str], settings: list[str], seeds: list[int]) -> str:
    """Return the table in Markdown. Each column uses the seeds that have its result and that of the first setting."""
    lines = ["| validation regret, % | " + " | ".join(one or "defaults" for one in settings) + " |"]
    lines.append("|---|" + "---|" * len(settings))
    for cell in cells:
        columns = []
        for setting in settings:
            both = [s for s in seeds if (cell, setting, s) in found and (cell, settings[0], s) in found]
            mine = np.array([found[cell, setting, s] for s in both])
            less = mine - np.array([found[cell, settings[0], s] for s in both])
            deviation = less.std(ddof=1) / np.sqrt(len(less)) if len(less) > 1 else np.nan
            difference = f" ({less.mean():+.3f} ± {deviation:.3f})" if setting != settings[0] and len(less) else ""
            columns.append(f"{mine.mean():.3f}{difference}" if len(mine) else "")
        lines.append(f"| {cell} | " + " | ".join(columns) + " |")
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", nargs="+", help='such as "" (the defaults) or "beta=0.1,rho=0.5"')
    parser.add_argument("--seeds", type=_seeds, default="100-107")
    parser.add_argument("--cells", nargs="+", default=list(CELLS), choices=list(CELLS))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, help="a file that gets every single run as a line of JSON")
    args = parser.parse_args()
    jobs = [(cell, setting, seed) for seed in args.seeds for cell in args.cells for setting in args.settings]
    found = {}
    with multiprocessing.get_context("spawn").Pool(args.jobs) as pool:
        for done, (cell, setting, seed, regret) in enumerate(pool.imap_unordered(_job, jobs), 1):
            found[cell, setting, seed] = regret
            print(f"\r{done} of {len(jobs)} runs", end="", file=sys.stderr, flush=True)
            if args.out:
                with args.out.open("a") as file:
                    file.write(json.dumps([cell, setting, seed, regret]) + "\n")
    print(file=sys.stderr)
    print(table(found, args.cells, args.settings, args.seeds))


if __name__ == "__main__":
    main()
