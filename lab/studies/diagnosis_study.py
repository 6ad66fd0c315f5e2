"""The numbers of docs/diagnosis.md: which errors cost money, on paths and on Irish energy prices.

    PEAR_DATA=… python lab/studies/diagnosis_study.py [paths] [energy] [--seeds 0-4] [--plot FILE.svg]

``paths`` trains a linear model on the squared error and one on regret, for shortest paths with costs of degree 8, and
compares their diagnoses on the test samples. ``energy`` diagnoses a ridge regression of half-hour prices. Its decisions
sell energy in the best half-hours: an integer knapsack of 48 half-hours.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

import pear
from pear.diagnosis import Diagnosis
from pear.pages import figure_style
from pear.tasks import knapsack
from pear_lab.data.energy_data import load_energy

CAPACITY, SHARES, PENALTY = 120.0, (0.7, 0.8), 1.0


def paths(seed: int) -> tuple[Diagnosis, Diagnosis]:
    """Return two diagnoses: of a model trained on the squared error, and of one trained on regret."""
    task = pear.tasks.shortest_path((5, 5))
    train, validation, test = task.split(task.samples(2000, degree=8, noise=0.5, seed=seed))
    found = []
    for loss in (nn.MSELoss(), pear.PEARLoss(task.problem)):
        torch.manual_seed(seed)
        model = nn.Linear(5, task.problem.n)
        pear.fit(model, loss, train, validation, metric=task.normalized_regret)
        with torch.no_grad():
            found.append(pear.diagnose(task.problem, model(test.features), test.costs))
    return found[0], found[1]


def energy() -> Diagnosis:
    """Return the diagnosis of a ridge regression of 48 prices a day, on the last fifth of the days."""
    data = load_energy()
    count = len(data.prices)
    first, last = (round(share * count) for share in SHARES)
    X, y = data.features.numpy(), data.prices.numpy()
    mean, deviation = X[:first].mean((0, 1)), X[:first].std((0, 1))
    X = np.concatenate([(X - mean) / deviation, np.ones((*X.shape[:2], 1))], 2)
    rows, target = X[:first].reshape(-1, X.shape[2]), y[:first].reshape(-1)
    weights = np.linalg.solve(rows.T @ rows + PENALTY * np.eye(X.shape[2]), rows.T @ target)
    names = [f"{i // 2:02d}:{30 * (i % 2):02d}" for i in range(48)]
    sold = pear.CostMap(np.diag(data.weights), names=names)
    model = pear.Model(knapsack(data.weights[None], CAPACITY).problem, cost_map=sold, variables=tuple(names))
    dates = np.array(data.dates[last:], dtype="datetime64[D]")
    return pear.diagnose(model, X[last:] @ weights, y[last:], groups=dates)


def draw(found: Diagnosis, path: Path) -> None:
    """Draw the share of each half-hour in the regret, and in the squared error."""
    cost = np.nansum(found.attribution, axis=0)
    error = np.sqrt(((found.predicted - found.true) ** 2).mean(0))
    with figure_style.styled_figure((8.4, 4.6), sharex=True) as (figure, axes):
        figure_style.write_figure_headline(
            figure, "Which half-hours cost money", "Irish prices, ridge regression, test days"
        )
        axes.bar(
            range(len(cost)), 100 * cost / cost.sum(), color=figure_style.LIGHT["pear"], label="share of the regret, %"
        )
        axes.plot(
            100 * error**2 / (error**2).sum(), color=figure_style.LIGHT["mse"], label="share of the squared error, %"
        )
        axes.set_xticks(range(0, len(cost), 6), [found.names[i] for i in range(0, len(cost), 6)])
        axes.legend()
        figure_style.save_figure(figure, path)


def main() -> None:
    """Print the diagnoses that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", default=["paths", "energy"], choices=["paths", "energy"])
    parser.add_argument("--seeds", default="0-4")
    parser.add_argument("--plot", type=Path)
    asked = parser.parse_args()
    if "paths" in asked.what:
        low, _, high = asked.seeds.partition("-")
        for seed in range(int(low), int(high or low) + 1):
            mse, ours = paths(seed)
            squared = [((d.predicted - d.true) ** 2).mean() for d in (mse, ours)]
            print(
                f"seed {seed}: regret {mse.normalized_regret:.2%} → {ours.normalized_regret:.2%}, tangent share "
                f"{mse.tangent_share:.3%} → {ours.tangent_share:.3%}, squared error "
                f"{squared[0]:.2f} → {squared[1]:.2f}, largest distance of the parts from the regret "
                f"{max(np.abs(d.attribution.sum(1) - d.regret).max() for d in (mse, ours)):.1e}"
            )
            if seed == int(low):
                print(mse, *mse.compare(ours, ("MSE", "PEAR")), sep="\n")
    if "energy" in asked.what:
        start = time.perf_counter()
        found = energy()
        print(f"\nenergy, {time.perf_counter() - start:.1f} s", found, sep="\n")
        print(found.values().to_string(), found.by_group().to_string(), sep="\n\n")
        print("", *(f"sample {i}: {why}" for i, why in found.worst(5)["why"].items()), sep="\n")
        print(f"sum of the parts {found.attribution.sum():.10g}, test regret {found.regret.sum():.10g}")
        if asked.plot is not None:
            draw(found, asked.plot)


if __name__ == "__main__":
    main()
