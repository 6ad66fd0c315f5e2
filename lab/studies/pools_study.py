"""Methods with a pool of solutions on three small tasks: regret before and after training, and the time of a step.

    python lab/studies/pools_study.py [--seeds 3] [--epochs 60] [--methods …] [--set solve_ratio=0.5 …]

The command trains a linear forecaster by each method on paths through a 5×5 grid, on a knapsack of 20 items, and on an
assignment of 5 to 5 that a function decides (an ``Oracle`` without constraints). All methods get the same samples,
start and number of epochs. Each is judged with its weights after the last epoch. The tables have means over the seeds:
the regret before and after training, in % of the best values, on 500 samples that no training has seen; the
milliseconds of processor time of a training step of 32 samples; and the number of distinct solutions in the pool at the
end.
"""

from __future__ import annotations

import argparse
import time
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment

import pear
from pear.losses import PoolLoss, make_loss
from pear.tasks import knapsack, shortest_path

METHODS = ("mse", "spo+", "nce", "cmap", "ltr-pointwise", "ltr-pairwise", "ltr-listwise")
TRAIN, TEST, FEATURES = 200, 500, 5


class Case(NamedTuple):
    """A problem with samples: features (N, p) and true costs (N, n)."""

    problem: pear.Problem
    features: torch.Tensor
    costs: torch.Tensor


def path_case(seed: int) -> Case:
    """Draw paths through a 5×5 grid, with polynomial costs of degree 6."""
    task = shortest_path((5, 5))
    return Case(task.problem, *task.samples(TRAIN + TEST, degree=6, noise=0.5, seed=seed))


def knapsack_case(seed: int) -> Case:
    """Draw a knapsack of 20 items with two capacities, and polynomial values of degree 6."""
    weights = np.random.default_rng(0).integers(1, 9, (2, 20)).astype(float)
    task = knapsack(weights, weights.sum(1) / 2)
    return Case(task.problem, *task.samples(TRAIN + TEST, degree=6, noise=0.5, seed=seed))


def oracle_case(seed: int) -> Case:
    """Draw an assignment of 5 to 5 that a function decides, with exponentials of linear functions as costs."""

    def assign(cost: Any) -> Any:
        chosen = np.zeros((5, 5))
        chosen[linear_sum_assignment(cost.reshape(5, 5))] = 1.0
        return chosen.ravel()

    rng = np.random.default_rng(seed)
    features = torch.as_tensor(rng.normal(size=(TRAIN + TEST, FEATURES)), dtype=torch.float32)
    mixing = torch.as_tensor(rng.normal(size=(FEATURES, 25)), dtype=torch.float32)
    noise = torch.as_tensor(rng.uniform(0.5, 1.5, (TRAIN + TEST, 25)), dtype=torch.float32)
    return Case(pear.Oracle(assign, n=25), features, (features @ mixing / 2).exp() * noise)


CASES = {"paths": path_case, "knapsack": knapsack_case, "oracle": oracle_case}


def train(case: Case, method: str, options: dict[str, float], epochs: int) -> tuple[float, float, float, int]:
    """Train by a method, and return regret before, regret after, milliseconds of a step, and solutions in the pool.

    The regrets are in percent of the best values. ``options`` are settings of the loss of a method with a pool.
    """
    torch.manual_seed(0)
    model = torch.nn.Linear(case.features.shape[1], case.problem.n)
    known = {name: value for name, value in options.items() if method not in ("mse", "spo+")}
    loss = make_loss(method, case.problem, **known)

    def regret() -> float:
        with torch.no_grad():
            return 100 * pear.normalized_regret(case.problem, model(case.features[TRAIN:]), case.costs[TRAIN:])

    config = pear.FitConfig(max_epochs=1, check_every=epochs + 1, start="standardised", learning_rate=1e-9)
    samples = case.features[:TRAIN], case.costs[:TRAIN]
    pear.fit(model, loss, samples, config=config)  # solves what is solved once, and leaves the start
    before = regret()
    config = pear.FitConfig(max_epochs=epochs, check_every=epochs + 1, start="given", learning_rate=1e-2)
    began = time.process_time()
    pear.fit(model, loss, samples, config=config)
    seconds = time.process_time() - began
    size = len(loss.pools) if isinstance(loss, PoolLoss) else 0
    return before, regret(), 1e3 * seconds / (epochs * -(-TRAIN // config.batch_size)), size


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--methods", nargs="*", default=METHODS)
    parser.add_argument("--cases", nargs="*", default=list(CASES))
    parser.add_argument("--set", nargs="*", default=[])
    given = parser.parse_args()
    options = {name: float(value) for name, _, value in (one.partition("=") for one in given.set)}
    for name in given.cases:
        print(f"{name:16s} {'start, %':>9s} {'end, %':>9s} {'ms a step':>9s} {'pool':>9s}")
        for method in given.methods:
            rows = [train(CASES[name](seed), method, options, given.epochs) for seed in range(given.seeds)]
            print(f"{method:16s} " + " ".join(f"{value:9.2f}" for value in np.mean(rows, axis=0)), flush=True)


if __name__ == "__main__":
    main()
