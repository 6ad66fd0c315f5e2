"""How strong should ``smoothing="auto"`` be? Mean validation regret of the default loss for several ρ.

    PEAR_DATA=… python tools/smoothing.py [--rho 0.25 0.5 1 2 4] [--seeds 0 1 2 3 4] [--only paths-8 …]

prints one row a task and one column a ρ, in percent, with the λ that came of it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

import pear
from pear.data.energy import load_energy
from pear.decisions import smoothing
from pear.tasks.energy import energy_split
from pear.tasks.splits import SharedLinear


class Trial(NamedTuple):
    """A task to train on: its problem, training and validation samples, metric and a fresh model."""

    problem: pear.Problem
    train: tuple[Any, Any]
    validation: tuple[Any, Any]
    metric: Callable[[Any, Any], float]
    model: nn.Module


def paths(degree: int, noise: float, seed: int) -> Trial:
    """The paper's grid."""
    task = pear.tasks.shortest_path((5, 5))
    train, validation, _ = task.split(task.samples(2000, degree=degree, noise=noise, seed=seed))
    return Trial(task.problem, train, validation, task.normalized_regret, nn.Linear(5, task.problem.n))


def assignment(seed: int, size: int = 8, count: int = 500) -> Trial:
    """Costs of both signs that a linear model does not get right: 300 samples to train on."""
    random, n = np.random.RandomState(seed), size * size
    rows = np.vstack([np.kron(np.eye(size), np.ones(size)), np.kron(np.ones(size), np.eye(size))])
    problem = pear.Problem(A=rows, b=np.ones(2 * size), lb=0.0)
    scores = random.normal(size=(n, 5))
    x = random.normal(size=(count, 5))
    linear = x @ scores.T / np.sqrt(5)
    costs = 2 * linear + linear**2 * random.choice([-1, 1], n) + 0.5 * random.normal(size=linear.shape)
    features, true = torch.tensor(x).float(), torch.tensor(costs).float()
    metric = lambda predicted, paid: pear.normalized_regret(problem, predicted, paid)  # noqa: E731
    return Trial(problem, (features[:300], true[:300]), (features[300:], true[300:]), metric, nn.Linear(5, n))


def energy(capacity: float) -> Trial:
    """The half-hours of a day; another seed is another start."""
    data = load_energy()
    split = energy_split(data, capacity)
    train, validation = split.train, split.validation
    model = SharedLinear(train.samples.features.shape[-1], data.weights)
    return Trial(train.task.problem, train.samples, validation.samples, validation.task.normalized_regret, model)


TRIALS: dict[str, Callable[[int], Trial]] = {
    "paths-2": lambda seed: paths(2, 0.0, seed),
    "paths-4": lambda seed: paths(4, 0.0, seed),
    "paths-8": lambda seed: paths(8, 0.0, seed),
    "paths-8-noise": lambda seed: paths(8, 0.5, seed),
    "assignment": assignment,
    "energy-60": lambda seed: energy(60.0),
    "energy-180": lambda seed: energy(180.0),
}


def run(name: str, rho: float, seed: int) -> tuple[float, float]:
    """Validation regret in percent, and λ."""
    torch.manual_seed(seed)
    trial = TRIALS[name](seed)
    smoothing.STRENGTH = rho
    loss = pear.PEARLoss(trial.problem, smoothing="auto")
    history = pear.fit(
        trial.model, loss, trial.train, trial.validation, trial.metric, pear.FitConfig(seed=seed, time_cap=60.0)
    )
    assert history.best is not None
    assert loss.chosen_smoothing is not None
    return 100 * history.best.metric, loss.chosen_smoothing


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rho", type=float, nargs="+", default=[0.25, 0.5, 1.0, 2.0, 4.0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--only", nargs="+", default=list(TRIALS), choices=list(TRIALS))
    args = parser.parse_args()
    print("| validation regret, % | " + " | ".join(f"ρ = {rho:g}" for rho in args.rho) + " |")
    print("|---|" + "---|" * len(args.rho))
    for name in args.only:
        cells = []
        for rho in args.rho:
            found = np.array([run(name, rho, seed) for seed in args.seeds])
            cells.append(f"{found[:, 0].mean():.3f} (λ {found[:, 1].mean():.2g})")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
