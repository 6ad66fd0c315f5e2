"""Predicted demand with prices for shortage and leftovers: PEAR beside the squared error, on unseen days.

    python lab/studies/recourse_study.py [--seeds 20] [--days 200] [--only newsvendor staffing]

The command trains a linear forecaster of demand twice for every seed: on the squared error, and on the regret of its
decisions. The table has the normalised regret of both on unseen days, the difference with its 95 % interval over seeds,
and the number of seeds in which PEAR loses less. Training, the choice of the weights and the test use equally many
days.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np

import pear
from pear_lab.report.bootstrap import t_interval
from pear_lab.tasks.public.newsvendor_inventory import DemandDays, draw_product_demand, newsvendor


def staffing(days: int, seed: int, hours: int = 12, length: int = 4) -> DemandDays:
    """Draw a staffing problem: people work in shifts that cover the hours of a day.

    Hours that are not covered are overtime, at a price. The people needed in every hour are predicted, and so is the
    pay of temporary workers, who may cover any hour. The wages of shifts are known.

    Args:
        days: the number of days.
        seed: the seed of features, demand and pay.
        hours: the number of hours of a day.
        length: the number of hours of a shift.
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
    """Return the normalised test regret in percent, by loss.

    A third of the days is for training, a third for the choice of the weights, and a third for the test.
    """
    (X, V, T), (Y, W, U) = np.array_split(example.features, 3), np.array_split(example.values, 3)
    settings = {"max_epochs": max_epochs, "batch_size": 100, "learning_rate": 0.03, "patience": 3, "random_state": seed}
    found = {}
    for loss in ("mse", "pear"):
        forecaster = pear.DecisionRegressor(example.model, loss=loss, **settings)
        found[loss] = -100.0 * forecaster.fit(X, Y, validation=(V, W)).score(T, U)
    return found


def row(name: str, seeds: int, days: int) -> str:
    """Return a line of the table, from ``seeds`` comparisons with ``days`` days for training."""
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
