"""Do bounds on the cost of decisions cover what they promise? Batteries on PJM and on Irish days, in time order.

    python lab/studies/intervals_study.py [--level 0.9] [--only pjm irish] [--forecasters ridge pear] [--seconds 120]

A forecaster is trained once, on the first two fifths of the days, and forecasts all other days. The first 200 of these
other days have no bounds. The first table has, for each way to compute bounds, the share of days whose cost lies within
the bounds (with a 95 % interval from blocks of about ten days), the lowest such share in 60 consecutive days, and the
mean width. "Frozen" calibrates on the 200 days and never again. The other ways learn the cost of every day on the next
day. "Doubled" doubles all true prices in the second half of the tested days, which the forecasts do not know.
"Shuffled" puts the days into random order.

The second table shows the policy that keeps the battery still on days on which acting may cost money.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import pear
from pear.intervals.conformal_rule import ConformalRule
from pear.intervals.cost_residuals import CostResiduals
from pear_lab.forecasters.battery_cases import irish_battery_case, pjm_battery_case
from pear_lab.forecasters.study_case import StudyCase

Array = np.ndarray[Any, Any]

BEFORE, WINDOW, WEEK = 200, 60, 7
CASES: dict[str, Callable[[], StudyCase]] = {
    "pjm": lambda: pjm_battery_case("time", 0, False),
    "irish": lambda: irish_battery_case("wide", 0, False),
}
RULES: dict[str, tuple[dict[str, Any], bool]] = {
    "exchangeable, frozen": ({"order": "exchangeable"}, True),
    "exchangeable": ({"order": "exchangeable"}, False),
    "time, rate 0": ({"rate": 0.0}, False),
    "time (default)": ({}, False),
    "time, half-life 100": ({"half_life": 100.0}, False),
}
"""The ways to compute bounds: arguments of ``CostIntervals``, and whether only the first 200 days are used."""


class Days(NamedTuple):
    """The problem, and the forecasts and true values of the days that training has not seen."""

    problem: Any
    forecast: Array
    true: Array


def train_ridge(case: StudyCase, count: int, seconds: float) -> Array:
    """Train a ridge regression on the first ``count`` days, and return its forecasts of all later days.

    ``seconds`` is ignored.
    """
    ridge = make_pipeline(StandardScaler(), RidgeCV(alphas=np.logspace(-2, 4, 13)))
    return np.asarray(ridge.fit(case.X[:count], case.C[:count]).predict(case.X[count:]))


def train_pear(case: StudyCase, count: int, seconds: float) -> Array:
    """Train a linear model on the regret of the first ``count`` days, and return its forecasts of all later days.

    The training ends after ``seconds`` at most.
    """
    model = pear.DecisionRegressor(case.problem, time_cap=seconds).fit(case.X[:count], case.C[:count])
    return np.asarray(model.predict(case.X[count:]))


FORECASTERS = {"ridge": train_ridge, "pear": train_pear}


def read_days(name: str, forecaster: str, seconds: float) -> Days:
    """Return the last three fifths of the days of a case, with forecasts of a model trained on the others."""
    case = CASES[name]()
    count = 2 * len(case.X) // 5
    return Days(case.problem, FORECASTERS[forecaster](case, count, seconds), case.C[count:])


def doubled(days: Days) -> Days:
    """Return the days with all true prices doubled in the second half of the tested days. Forecasts are unchanged."""
    middle = (BEFORE + len(days.true)) // 2
    times = np.where(np.arange(len(days.true)) < middle, 1.0, 2.0)[:, None]
    return days._replace(true=days.true * times)


def shuffled(days: Days) -> Days:
    """Return the days in random order."""
    order = np.random.default_rng(0).permutation(len(days.true))
    return days._replace(forecast=days.forecast[order], true=days.true[order])


ORDERS: dict[str, Callable[[Days], Days]] = {"in time": lambda days: days, "doubled": doubled, "shuffled": shuffled}


def bounded_days(days: Days, rule: str, level: float, of: str) -> pear.IntervalRecord:
    """Return bounds on the cost, or on the regret, of every day after the first 200.

    The bounds of a day are computed from all days before it or, if the rule is frozen, from the first 200 days only.

    Args:
        days: the days.
        rule: the name of a row of ``RULES``.
        level: the share of days that the bounds promise to cover.
        of: what is bounded, as in ``pear.CostIntervals``.
    """
    options, frozen = RULES[rule]
    intervals = pear.CostIntervals(days.problem, of=of, **options)
    walked = intervals.walk(days.forecast, days.true, level)
    lower, upper = (np.where(np.arange(len(days.true)) < BEFORE, np.nan, one) for one in (walked.lower, walked.upper))
    if frozen:
        intervals.planned, intervals.realised = walked.planned[:BEFORE], walked.realised[:BEFORE]
        lower[BEFORE:], upper[BEFORE:] = intervals.amounts(walked.planned[BEFORE:], level)
    return pear.IntervalRecord(walked.planned, walked.realised, lower, upper, level, walked.of)


def line(names: tuple[str, ...], found: pear.IntervalRecord) -> str:
    """Return a line of the first table in Markdown."""
    covered = found.covered[found.bounded].astype(float)
    share, interval = found.coverage, found.coverage_interval(block=10).interval
    worst = np.convolve(covered, np.ones(WINDOW) / WINDOW, "valid").min()
    missed = interval[1] < found.level
    mark = " **misses**" if missed else ""
    return (
        f"| {' | '.join(names)} | {len(covered)} | {100 * share:.1f} % ({100 * interval[0]:.1f} to "
        f"{100 * interval[1]:.1f}){mark} | {100 * worst:.0f} % | {found.mean_width:.1f} |"
    )


def walk_policy(days: Days, level: float) -> tuple[Array, Array, Array]:
    """Return, for each tested day, whether the policy acts, and the realised and the planned cost of acting.

    The policy acts if the upper bound of the cost at this level is at most 0, the cost of keeping the battery still.
    """
    plan = pear.CostIntervals(days.problem, order="exchangeable").walk(days.forecast, days.true, 0.5)
    still = np.zeros(len(days.true))  # doing nothing costs nothing in both batteries
    rule, acted = ConformalRule(), np.zeros(len(days.true), dtype=bool)
    difference = CostResiduals(np.abs(plan.planned - still), plan.realised - plan.planned)
    bounds = rule.walk(difference, level, two_sided=False)
    acted[BEFORE:] = (plan.planned + bounds.upper)[BEFORE:] <= 0
    return acted[BEFORE:], plan.realised[BEFORE:], plan.planned[BEFORE:]


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--level", type=float, default=0.9)
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--forecasters", nargs="+", choices=list(FORECASTERS), default=list(FORECASTERS))
    parser.add_argument("--seconds", type=float, default=120.0, help="for a training on regret")
    parser.add_argument("--of", choices=["cost", "regret"], nargs="+", default=["cost", "regret"])
    args = parser.parse_args()
    torch.set_num_threads(1)
    read = {(name, who): read_days(name, who, args.seconds) for name in args.only for who in args.forecasters}
    for of in args.of:
        print(
            f"\n{of}, level {args.level:g}\n\n| days | forecaster | order | bounds | days | covered | least | width |"
        )
        print("|---|---|---|---|---:|---:|---:|---:|", flush=True)
        for (name, who), days in read.items():
            for order, change in ORDERS.items():
                for rule in RULES:
                    print(line((name, who, order, rule), bounded_days(change(days), rule, args.level, of)), flush=True)
    print("\n| days | forecaster | level | acted on | worse than still, of these | mean cost | of acting always |")
    print("|---|---|---:|---:|---:|---:|---:|")
    for (name, who), days in read.items():
        for level in (0.8, 0.9, 0.95, 0.99):
            acted, cost, _ = walk_policy(days, level)
            paid = np.where(acted, cost, 0.0)
            print(
                f"| {name} | {who} | {level:g} | {100 * acted.mean():.0f} % | {100 * (cost[acted] > 0).mean():.1f} % | "
                f"{paid.mean():.2f} | {cost.mean():.2f} |"
            )


if __name__ == "__main__":
    main()
