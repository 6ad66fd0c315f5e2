"""Portfolios of stocks planned by their mean, by mean and variance, and by CVaR over past days; rebalanced monthly.

    python lab/studies/cvar_portfolio_study.py [--prices sp100] [--window 250] [--every 21] [--level 0.95]

``--prices`` names a source of daily prices: skfolio's 20 stocks, sp100, or a CSV file. Every method plans from the same
past days, and holds its weights until the next rebalancing; a weight is at most a quarter. The table has results on the
days after the plans: the mean return of a year, the volatility, and the mean return on the worst days (5 % by default).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

import pear
from pear_lab.data.prices import load_prices

Array = NDArray[np.float64]
Plan = Callable[[Array], Array]
"""A function from returns (W, n) of W past days to weights (n,)."""

MOST, DAYS_A_YEAR, AVERSION = 0.25, 252, 2.0


def plans(stocks: int, window: int, level: float) -> dict[str, Plan]:
    """Return the methods of planning by name, each as a function from past returns to weights.

    Args:
        stocks: n, the number of stocks.
        window: the number of past days.
        level: the level of CVaR.
    """
    fields = {"A": np.ones((1, stocks)), "b": [1.0], "lb": 0.0, "ub": MOST, "sense": "max"}
    names = tuple(f"stock{i}" for i in range(stocks))
    market = pear.Model(pear.Problem(**fields), variables=names)
    averse = {w: pear.Stochastic(market, names, window, pear.CVaR(level, weight=w)) for w in (0.5, 1.0)}

    def curved(past: Array, aversion: float, mean: float = 1.0) -> Array:
        Q = torch.from_numpy(-aversion * np.cov(past.T))[None]
        return pear.solve(pear.Problem(**fields), mean * past.mean(0)[None], Q=Q).x[0].numpy()

    return {
        "equal weights": lambda past: np.full(stocks, 1 / stocks),
        "the mean alone": lambda past: pear.solve(market, past.mean(0)).x[0].numpy(),
        "mean and variance": lambda past: curved(past, AVERSION),
        "least variance": lambda past: curved(past, 1.0, mean=0.0),
        "half mean, half CVaR": lambda past: averse[0.5].solve(past[None]).x[0].numpy(),
        "CVaR": lambda past: averse[1.0].solve(past[None]).x[0].numpy(),
    }


def worst_mean(returns: Array, level: float) -> float:
    """Return the mean return on the worst days, which are a share of 1 − ``level`` of all days."""
    return float(np.sort(returns)[: max(1, round((1 - level) * len(returns)))].mean())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prices", default="skfolio")
    parser.add_argument("--window", type=int, default=250)
    parser.add_argument("--every", type=int, default=21)
    parser.add_argument("--level", type=float, default=0.95)
    args = parser.parse_args()
    prices = load_prices(args.prices).values
    returns = prices[1:] / prices[:-1] - 1
    starts = range(args.window, len(returns), args.every)
    print(
        "| plan | return a year | volatility | worst 5 % of the days | ms a plan |\n|---|---:|---:|---:|---:|",
        flush=True,
    )
    for name, plan in plans(returns.shape[1], args.window, args.level).items():
        began, days = time.process_time(), []
        for start in starts:
            weights = plan(returns[start - args.window : start])
            days.append(returns[start : start + args.every] @ weights)
        took = 1000 * (time.process_time() - began) / len(starts)
        day = np.concatenate(days)
        mean, spread = 100 * DAYS_A_YEAR * day.mean(), 100 * np.sqrt(DAYS_A_YEAR) * day.std()
        print(
            f"| {name} | {mean:.1f} % | {spread:.1f} % | {100 * worst_mean(day, args.level):.2f} % | {took:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
