"""Unit commitment for the Irish net load, planned by scenarios, by quantiles of demand and by its mean; walk-forward.

    python lab/studies/commitment_study.py [--scenarios 20] [--every 3] [--stands] [--out FILE]

For each fold of two months, a ridge forecast of demand is fitted on all days before the fold. Quantiles and scenarios
are made from its errors in a cross-validation by blocks of days. With ``--stands``, outputs are decided a day ahead,
too, and only shortage and surplus are settled later. Other options add rules: ``--averse`` a plan with half of the
weight on CVaR, ``--even`` scenarios from evenly drawn errors, ``--reduce`` scenarios from one error of each cluster,
and ``--train`` trained scenarios. The table has the regret of each rule, and its difference from two rivals: the fixed
quantile that is best on the tested days, and the quantile that was best before each fold. ``--out`` writes the result
of each fold to a file; folds in the file are not run again.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Container, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

import pear
from pear_lab.forecasters.json_lines import append_json_line, drop_partial_json_line, read_json_lines
from pear_lab.report.bootstrap import normalized_difference
from pear_lab.tasks.irish_commitment import Array, irish_commitment_days, irish_commitment_model

QUANTILES = (0.7, 0.8, 0.9, 0.95)
FIRST_TEST, FOLD, PARTS = 365, 61, 6


class FoldForecast(NamedTuple):
    """The forecasts of a fold, and the data that the forecaster was fitted to.

    The k forecast values of a day are those of the demand of 12 blocks, or all that another model predicts.

    Attributes:
        forecasts: (T, k) the forecasts of T test days.
        errors: (N, k) the errors on N training days, from a cross-validation by blocks of days.
        features: (N + T, p) the standardised features of the training days, followed by those of the test days.
        true: (N + T, k) the true values of the same days.
        ridge: the weights (k, p) and the intercepts (k,) of the forecaster, for standardised features.
    """

    forecasts: Array
    errors: Array
    features: Array
    true: Array
    ridge: tuple[Array, Array]


def ridge(X: Array, Y: Array) -> Any:
    """Return a ridge regression fitted on standardised features. Cross-validation chooses its strength."""
    return make_pipeline(StandardScaler(), RidgeCV(np.logspace(-2, 5, 15))).fit(X, Y)


def folds(
    X: Array, Y: Array, every: int, done: Container[int], first: int = FIRST_TEST, size: int = FOLD
) -> Iterator[tuple[int, FoldForecast, Tensor]]:
    """Yield, for each fold that is not in ``done``, its first day, its forecasts, and the true values of its test days.

    Args:
        X: (D, p) the features of D days.
        Y: (D, k) the true values of these days.
        every: only every ``every``-th day of a fold is tested.
        done: the first days of folds to leave out.
        first: the first day of the first fold.
        size: the number of days of a fold.
    """
    for start in range(first, len(X) - size // 2, size):
        if start in done:
            continue
        train, test = np.arange(start), np.arange(start, min(start + size, len(X)))[::every]
        errors = np.zeros_like(Y[train])
        for block in np.array_split(train, PARTS):
            rest = np.setdiff1d(train, block)
            errors[block] = Y[block] - ridge(X[rest], Y[rest]).predict(X[block])
        fitted = ridge(X[train], Y[train])
        both, last = np.concatenate([train, test]), fitted[-1]
        scaled = fitted[:-1].transform(X[both])
        forecast = FoldForecast(fitted.predict(X[test]), errors, scaled, Y[both], (last.coef_, last.intercept_))
        yield start, forecast, torch.from_numpy(Y[test])


def trained_scenarios(plan: pear.Stochastic, fold: FoldForecast, rows: int, epochs: int) -> Tensor:
    """Return scenarios (T, S, 12) from a trained generator.

    The generator starts at past errors, and is trained on the last ``rows`` days before the fold.
    """
    count, tests = len(fold.errors), len(fold.forecasts)
    drawn = pear.scenarios.residual_scenarios(np.zeros((1, fold.errors.shape[1])), fold.errors, plan.scenarios)[0]
    weights, bias = (torch.from_numpy(part) for part in fold.ridge)
    linear = torch.nn.Linear(*reversed(weights.shape), dtype=torch.float64)
    with torch.no_grad():
        linear.weight.copy_(weights)
        linear.bias.copy_(bias)
    torch.manual_seed(0)
    net = pear.scenarios.ResidualScenarios(linear.requires_grad_(False), drawn, fold.features.shape[1])
    X, Y = (torch.from_numpy(part) for part in (fold.features, fold.true))
    some = slice(count - rows, count)
    loss = pear.ScenarioLoss(plan)
    loss.calibrate(Y[some])
    optimizer = torch.optim.Adam(net.parameters(), lr=0.005)
    config = pear.FitConfig(max_epochs=epochs, batch_size=25, check_every=2)
    pear.fit(net, loss, (X[some], Y[some]), optimizer=optimizer, config=config)
    with torch.no_grad():
        found: Tensor = net(X[count:]).reshape(tests, plan.scenarios, -1)
    return found


class FoldPlans:
    """The plans of T test days by several rules, and what they lose.

    Args:
        single: the program in two stages, with one scenario.
        true: (T, k) the true values of the test days.

    Attributes:
        least: (T,) the least costs if the true values are known.
        rules: the losses of each rule on the T days, and the seconds in which it planned them.
    """

    def __init__(self, single: pear.Stochastic, true: Tensor) -> None:
        self.single, self.true, self.least = single, true, single.best(true)
        self.rules: dict[str, tuple[list[float], float]] = {}

    def judge(self, rule: str, plan: pear.Stochastic, values: Any, weights: Any = None) -> None:
        """Plan the test days for the given scenarios, as ``plan.solve`` takes them, and judge the plans."""
        began = time.process_time()
        x = plan.solve(values, weights=weights).x
        seconds = time.process_time() - began
        self.rules[rule] = (self.single.cost(x, self.true) - self.least).tolist(), seconds

    def result(self, start: int) -> dict[str, Any]:
        """Return the line of the file of results, for a fold with the given first day."""
        return {"start": start, "least": self.least.tolist(), "rules": self.rules}


def plan_fold(fold: FoldForecast, true: Tensor, args: argparse.Namespace) -> FoldPlans:
    """Plan the test days of a fold by every rule."""
    model, S = irish_commitment_model(), args.scenarios
    first = ["on", "start", "output"] if args.stands else ["on", "start"]
    single, plan = pear.Stochastic(model, first, 1), pear.Stochastic(model, first, S)
    plans = FoldPlans(single, true)
    plans.judge("mean", single, fold.forecasts)
    for level in QUANTILES:
        plans.judge(f"quantile {level:g}", single, fold.forecasts + np.quantile(fold.errors, level, axis=0))
    drawn = pear.scenarios.residual_scenarios(fold.forecasts, fold.errors, S)
    plans.judge(f"{S} past errors", plan, drawn)
    if args.even:
        even = pear.scenarios.residual_scenarios(fold.forecasts, fold.errors, S, draw="even")
        plans.judge(f"{S} past errors, evenly", plan, even)
    if args.reduce:
        centres, weights = pear.scenarios.reduce(fold.errors, S, keep="one")
        shares = weights.expand(len(true), -1)
        plans.judge(f"{S} of the clusters of errors", plan, torch.from_numpy(fold.forecasts)[:, None] + centres, shares)
    if args.averse:
        plans.judge(f"{S} past errors, half CVaR", pear.Stochastic(model, first, S, pear.CVaR(0.9, weight=0.5)), drawn)
    if args.train:
        plans.judge(f"{S} trained scenarios", plan, trained_scenarios(plan, fold, args.rows, args.epochs))
    return plans


def run(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Plan the folds that are not in the file yet; return the results of all folds."""
    days = irish_commitment_days()

    def plan_folds(done: Container[int]) -> Iterator[dict[str, Any]]:
        for start, fold, true in folds(days.features, days.net_load, args.every, done):
            yield plan_fold(fold, true, args).result(start)

    return resume_folds(plan_folds, args.out, 1 if args.one else None)


def resume_folds(
    plan_folds: Callable[[Container[int]], Iterator[dict[str, Any]]], out: Path | None, most: int | None = None
) -> list[dict[str, Any]]:
    """Return the results of all folds, in their order. Folds in the file are not planned again.

    Args:
        plan_folds: function from the first days of the folds to leave out to the results of the others.
        out: file of results, to which those of each fold are appended; None for no file.
        most: the largest number of folds to plan.
    """
    if out is not None:
        drop_partial_json_line(out)
    found: list[dict[str, Any]] = [] if out is None else read_json_lines(out, dict, "fold")
    for part in islice(plan_folds({part["start"] for part in found}), most):
        found.append(part)
        if out is not None:
            append_json_line(out, part)
    return sorted(found, key=lambda part: part["start"])


def chosen_quantile(found: list[dict[str, Any]]) -> Array:
    """Return the losses, over all folds, of the rule that takes for each fold the quantile that lost least before it.

    The first fold takes the quantile 0.9.
    """
    lost, days = {f"quantile {level:g}": 0.0 for level in QUANTILES}, []
    for i, part in enumerate(found):
        level = min(lost, key=lambda rule: lost[rule]) if i else "quantile 0.9"
        days += part["rules"][level][0]
        lost = {rule: before + sum(part["rules"][rule][0]) for rule, before in lost.items()}
    return np.array(days)


def table(found: list[dict[str, Any]]) -> str:
    """Return the table in Markdown, with a line for each rule, from the results of all folds."""
    least = np.concatenate([part["least"] for part in found])
    names = list(found[0]["rules"])
    lost = {rule: np.concatenate([part["rules"][rule][0] for part in found]) for rule in names}
    best = min((rule for rule in names if rule.startswith("quantile")), key=lambda rule: lost[rule].mean())
    before = "the quantile that was best before"
    lost[before] = chosen_quantile(found)
    lines = [
        f"{len(least)} days\n",
        f"| rule | regret | worst tenth of the days | below {best}, points (95 %) | below {before} | s a day |",
        "|---|---:|---:|---:|---:|---:|",
    ]

    def gain(rule: str, rival: str) -> str:
        found = [100 * x for x in normalized_difference([lost[rival]], [lost[rule]], [least], block=7)]
        return "" if rule == rival else f"{found[0]:.3f} ({found[1]:.3f} to {found[2]:.3f})"

    for rule, days in lost.items():
        worst = np.sort(days)[-max(1, len(days) // 10) :].mean()
        times = [part["rules"][rule][1] for part in found if rule in part["rules"]]
        seconds = f"{sum(times) / len(days):.2f}" if times else ""
        share = f"{100 * days.sum() / least.sum():.3f} % | {worst:,.0f}"
        lines.append(f"| {rule} | {share} | {gain(rule, best)} | {gain(rule, before)} | {seconds} |")
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenarios", type=int, default=20)
    parser.add_argument("--every", type=int, default=3, help="test every so many days")
    parser.add_argument("--stands", action="store_true", help="outputs are decided a day ahead, too")
    parser.add_argument("--averse", action="store_true", help="plan by half CVaR as well")
    parser.add_argument("--even", action="store_true", help="plan by past errors at even steps as well")
    parser.add_argument("--reduce", action="store_true", help="plan by one past error of each cluster as well")
    parser.add_argument("--out", type=Path, help="file of results, a line for each fold")
    parser.add_argument("--one", action="store_true", help="stop after one more fold")
    parser.add_argument("--train", action="store_true", help="train scenarios as well")
    parser.add_argument("--rows", type=int, default=150, help="days to train scenarios on")
    parser.add_argument("--epochs", type=int, default=6)
    print(table(run(parser.parse_args())))


if __name__ == "__main__":
    main()
