"""Predicted weights of a knapsack, trained by PEAR, by SFGE (``pear.losses.SFGELoss``) and on the squared error.

    python lab/studies/coefficients_study.py [--seeds 5] [--methods mse sfge pear-guided]

The data is that of the public task "predicted-weights" (ODECE). That task predicts the values of the 64 sets of items.
This study predicts the 12 weights of the items, which are coefficients of two rows whose overload has a price. All
methods start at the same forecast, trained on the squared error, and have the same epochs and samples. Training is on
items in part; the normalised regret of decisions on whole items chooses the epoch, and is the test result. The table
has, for each method, this regret in percent for each seed, its mean over the seeds with a 95 % interval, and the mean
difference from the first method. By default this is "two-stage", the training on the squared error alone.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from torch import Tensor

import pear
from pear.losses import make_loss
from pear.tasks.synthetic_task import draw_synthetic_costs
from pear.tasks.task import Split
from pear_lab.report.bootstrap import t_interval
from pear_lab.tasks.public.drawn_samples import SIZES, cut_drawn_samples
from pear_lab.tasks.public.predicted_weights_and_capacities import (
    CAPACITY,
    DIMENSIONS,
    ITEMS,
    MEAN_WEIGHT,
    OVERLOAD,
    VALUES,
    predicted_weight_values,
)

TITLES = {"mse": "two-stage", "sfge": "SFGE", "pear-guided": "PEAR", "pear": "PEAR as published"}


def knapsack() -> pear.Model:
    """Return the model of the knapsack with predicted weights and a price for overload. Items may be taken in part."""
    rows = pear.Problem(G=np.ones((DIMENSIONS, ITEMS)), h=np.full(DIMENSIONS, CAPACITY), lb=0.0, ub=1.0, sense="max")
    price = pear.Penalty(h=OVERLOAD)
    return pear.Model.predicting(rows, cost=False, G=True, recourse=price, known=np.array(VALUES))


def regret(predicted: Tensor, true: Tensor) -> float:
    """Return the normalised regret of the sets of whole items that are best under the predicted weights (B, 12)."""
    worth = predicted_weight_values(true.double())
    chosen = predicted_weight_values(predicted.double()).argmax(1, keepdim=True)
    best = worth.amax(1)
    return float((best - worth.gather(1, chosen)[:, 0]).sum() / best.sum())


def draw(seed: int) -> Split:
    """Return the samples of the public task, with the weights (N, 12) of the items as predicted values."""
    random = np.random.RandomState(seed)
    features, weights = draw_synthetic_costs(random, sum(SIZES), DIMENSIONS * ITEMS, 4, 0.25)
    return cut_drawn_samples(features, MEAN_WEIGHT * weights / weights.mean())


def run(method: str, seed: int, max_epochs: int) -> tuple[float, float]:
    """Train by a method; return the normalised test regret in percent, and the processor seconds of the training."""
    split, begin = draw(seed), time.process_time()
    config = pear.FitConfig(
        max_epochs=max_epochs, check_every=2, patience=5, learning_rate=0.01, start="mse", seed=seed
    )
    torch.manual_seed(seed)
    net = torch.nn.Linear(split.train.features.shape[1], DIMENSIONS * ITEMS)
    pear.fit(net, make_loss(method, knapsack()), split.train, split.validation, regret, config)
    with torch.no_grad():
        return 100.0 * regret(net(split.test.features), split.test.costs), time.process_time() - begin


def main() -> None:
    """Run all methods on all seeds, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--methods", nargs="+", default=["mse", "sfge", "pear-guided"])
    parser.add_argument("--epochs", type=int, default=60)
    args = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, list[float]] = {}
    print("| method | each seed | mean, % | 95 % interval | minus two-stage | 95 % interval | seconds |")
    print("|---|---|---:|---:|---:|---:|---:|", flush=True)
    for method in args.methods:
        runs = [run(method, seed, args.epochs) for seed in range(args.seeds)]
        found[method] = [regret for regret, _ in runs]
        own, seconds = t_interval(found[method]), np.mean([spent for _, spent in runs])
        gain = t_interval([a - b for a, b in zip(found[method], found[args.methods[0]], strict=True)])
        beside = "–" if method == args.methods[0] else f"{gain.low:.2f} to {gain.high:.2f}"
        print(
            f"| {TITLES.get(method, method)} | {', '.join(f'{one:.2f}' for one in found[method])} | "
            f"{own.estimate:.2f} | {own.low:.2f} to {own.high:.2f} | {gain.estimate:.2f} | {beside} | {seconds:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
