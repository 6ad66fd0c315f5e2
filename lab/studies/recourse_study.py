"""Predicted demand with a price for what is missing or left over: PEAR beside the squared error, on days not seen.

    python lab/studies/recourse_study.py [--seeds 20] [--days 200] [--only newsvendor staffing]

trains a linear forecaster of demand twice for every seed, on its squared error and on what its decisions lose, and
prints a table: normalised regret of both on as many days that neither has seen, the difference with its 95 % interval
over seeds, and in how many seeds PEAR loses less. Both trainings keep the weights that lose least on other days again.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np

import pear
from pear_lab.report.bootstrap import t_interval
from pear_lab.tasks.public.newsvendor_inventory import DemandDays, draw_product_demand, newsvendor


def staffing(days: int, seed: int, hours: int = 12, length: int = 4) -> DemandDays:
    """People on shifts cover the hours of a day; a missing hour is worked as overtime, at a price.

    Predicted are the people needed in every hour and the pay of temporary workers, who may cover any hour; the wages
    of shifts are known.
    """
    random = np.random.default_rng(seed)
    features, demand = draw_product_demand(random, days, hours, level=10.0)
    pay = 1.6 + 0.3 * np.tanh(features[:, :1]) + 0.2 * random.random((days, 1))
    starts = range(0, hours - length + 1)
    shifts = np.array([[float(start <= hour < start + length) for start in starts] for hour in range(hours)])
    wages = length * (1.0 + 0.3 * np.linspace(0.0, 1.0, len(starts)))  # late shifts cost more
    n = len(starts) + hours
    prices = np.zeros((n, hours + 1))
    prices[len(starts) :, -1] = 1.0
    model = pear.Model(
        pear.Problem(G=-np.hstack([shifts, np.eye(hours)]), h=np.zeros(hours), lb=0.0, ub=50.0),
        cost_map=pear.CostMap(
            prices, np.append(wages, np.zeros(hours)), [*(f"hour{i}" for i in range(hours)), "temporary"]
        ),
        constraint_map=pear.ConstraintMap(h=-np.eye(hours, hours + 1)),
        recourse=pear.Penalty(h=8.0),
    )
    return DemandDays(model, features, np.hstack([demand, pay]))


EXAMPLES: dict[str, Callable[..., DemandDays]] = {"newsvendor": newsvendor, "staffing": staffing}


def compare(example: DemandDays, seed: int, max_epochs: int = 60) -> dict[str, float]:
    """Normalised regret in percent for each loss: a third of the days trains, one chooses the weights, one judges."""
    (X, V, T), (Y, W, U) = np.array_split(example.features, 3), np.array_split(example.values, 3)
    settings = {"max_epochs": max_epochs, "batch_size": 100, "learning_rate": 0.03, "patience": 3, "random_state": seed}
    found = {}
    for loss in ("mse", "pear"):
        forecaster = pear.DecisionRegressor(example.model, loss=loss, **settings)
        found[loss] = -100.0 * forecaster.fit(X, Y, validation=(V, W)).score(T, U)
    return found


def row(name: str, seeds: int, days: int) -> str:
    """A line of the table."""
    runs = [compare(EXAMPLES[name](3 * days, seed), seed) for seed in range(seeds)]
    mse, ours = (np.array([run[loss] for run in runs]) for loss in ("mse", "pear"))
    gain = t_interval((mse - ours).tolist())
    return (
        f"| {name} | {mse.mean():.2f} % | {ours.mean():.2f} % | {gain.estimate:.2f} | {gain.low:.2f} to "
        f"{gain.high:.2f} | {int((ours < mse).sum())} of {seeds} |"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--days", type=int, default=200)
    parser.add_argument("--only", nargs="+", choices=list(EXAMPLES), default=list(EXAMPLES))
    args = parser.parse_args()
    print(
        "| | MSE | PEAR | less regret, points | 95 % interval | PEAR wins |\n|---|---:|---:|---:|---:|---:|", flush=True
    )
    for name in args.only:
        print(row(name, args.seeds, args.days), flush=True)


if __name__ == "__main__":
    main()
