"""A day-ahead unit commitment, planned by scenarios and by quantiles of demand; walk-forward on days that are drawn.

    python lab/studies/commitment_quantiles_study.py [--seed 0] [--scenarios 50] [--every 1] [--out FILE]

The model is that of ``pear bench commitment``: eight plants over 24 hours, with integers, least outputs, ramps and
imports. Everything is decided the day before; afterwards only the shortage is paid, 300 a MWh, and the surplus, 5.
Demand is more uncertain on colder days. Ten folds of 60 days are tested. For each fold, a ridge forecast of the
logarithms of prices and demand is fitted on all days before. All rules plan with the same prices. They differ in the
demand, which they make from the errors of the forecast in a cross-validation on the same days. No rule plans for errors
of prices: whatever is paid at these prices is decided the day before, so that only the mean price matters.

The study judges the rule "50 quantiles of errors, by size", on seed 0. Rule and settings were fixed before, on the
seeds 1 and 2, which have other plants and other days. There the logarithms were chosen, with which every rule loses
less than with a ridge forecast of the values; six features, those of the forecast, for the size of the errors, in a
regression for each hour with the default penalty (their squares and other penalties were no better); and the level 0.8
with which the rivals start. Hours are linked only by decisions of the day before, so that quantiles of each hour are
enough: it does not matter which errors of different hours occur together.

The rivals plan by one quantile of demand, which has the same level in all hours: of the errors, or of the errors in
units of their size. Each is shown with the level that is best on the tested days, and with the level that was best on
the folds before. ``--out`` writes the result of each fold to a file; folds in the file are not run again.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

import pear
from commitment_spread_study import FIXED, SIZED, table
from commitment_study import FoldForecast, FoldPlans, folds, resume_folds
from pear.cli.csv_table import split_at_commas
from pear.cli.model_columns import parse_cost_columns, read_wide_model_columns
from pear.scenarios import predict_spread, quantile_scenarios
from pear_lab.benchmarks.commitment_model import FEATURES, CommitmentModel, draw_commitment_days
from pear_lab.tasks.irish_commitment import Array

FIRST_TEST, FOLD, FOLDS = 180, 60, 10
LEVELS = {FIXED: (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.99), SIZED: (0.7, 0.75, 0.8, 0.85, 0.9, 0.95)}
START_LEVEL, FEW = 0.8, 20
RIVALS = ((FIXED, True), (FIXED, False), (SIZED, True), (SIZED, False))


def draw_commitment(plants: int, hours: int, days: int, seed: int) -> tuple[pear.Model, Array, Array]:
    """Return the model, the features (D, 6) of D days, and their true import prices and demands (D, 2·hours)."""
    drawn = CommitmentModel(plants, hours, seed)
    rows = pd.DataFrame(draw_commitment_days(drawn, days, seed))
    named, priced = parse_cost_columns(split_at_commas(drawn.costs))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "plants.lp"
        drawn.write(file)
        model, paid = read_wide_model_columns(file, named, rows, priced)
    return model, rows[list(FEATURES)].to_numpy(), rows[paid].to_numpy()


def plan_fold(model: pear.Model, fold: FoldForecast, true: Tensor, count: int) -> FoldPlans:
    """Plan the test days of a fold by every rule.

    Args:
        model: the model, which predicts k/2 prices, then k/2 demands.
        fold: the forecasts of the logarithms of these k values.
        true: (T, k) the true values of T test days.
        count: the number of scenarios; some rules have ``FEW``.
    """
    days, hours = len(fold.errors), fold.errors.shape[1] // 2
    single = pear.Stochastic(model, model.variables, 1)
    plans, logs, errors = FoldPlans(single, true), fold.forecasts[:, hours:], fold.errors[:, hours:]
    spread = predict_spread(fold.features[:days], errors, fold.features[days:])
    sizes, units = spread.now.numpy(), errors / spread.past.numpy()
    means = np.exp(fold.forecasts) * np.exp(fold.errors).mean(0)

    def values(scenarios: Any) -> Tensor:
        """Return the values (T, S, k) to plan for, from the logarithms of demand, (T, S, k/2)."""
        demand = torch.as_tensor(scenarios).exp()
        return torch.cat([torch.from_numpy(means[:, None, :hours]).expand_as(demand), demand], 2)

    plans.judge("mean", single, means)
    for level in LEVELS[FIXED]:
        plans.judge(f"{FIXED} {level:g}", single, values((logs + np.quantile(errors, level, axis=0))[:, None]))
    for level in LEVELS[SIZED]:
        plans.judge(f"{SIZED} {level:g}", single, values((logs + sizes * np.quantile(units, level, axis=0))[:, None]))
    for S in sorted({FEW, count}):
        plan = pear.Stochastic(model, model.variables, S)
        plans.judge(f"{S} quantiles of errors", plan, values(quantile_scenarios(logs, errors, S)))
        sized = quantile_scenarios(logs, errors, S, spread=spread)
        plans.judge(f"{S} quantiles of errors, by size", plan, values(sized))
    return plans


def run(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Plan the folds that are not in the file yet; return the results of all folds."""
    days = FIRST_TEST + args.folds * FOLD
    model, X, Y = draw_commitment(args.plants, args.hours, days, args.seed)

    def plan_folds(done: Container[int]) -> Iterator[dict[str, Any]]:
        for start, fold, logs in folds(X, np.log(Y), args.every, done, FIRST_TEST, FOLD):
            print(f"days {start} to {start + FOLD - 1} of {days}", file=sys.stderr)
            yield plan_fold(model, fold, logs.exp(), args.scenarios).result(start)

    return resume_folds(plan_folds, args.out)


def report(found: list[dict[str, Any]]) -> str:
    """Return the table of the rules, and the processor time of their plans, from the results of all folds."""
    least = np.concatenate([part["least"] for part in found])
    lost = {rule: np.concatenate([part["rules"][rule][0] for part in found]) for rule in found[0]["rules"]}
    rules = table(lost, least, RIVALS, len(found[0]["least"]), START_LEVEL)
    lines = [rules, "\n| rule | s a day | times the mean |", "|---|---:|---:|"]
    seconds = {rule: sum(part["rules"][rule][1] for part in found) / len(least) for rule in lost}
    for rule, time in seconds.items():
        if not rule.startswith(FIXED):
            lines.append(f"| {rule} | {time:.2f} | {time / seconds['mean']:.1f} |")
    return "\n".join(lines)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="seed of plants and days")
    parser.add_argument("--plants", type=int, default=8)
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--folds", type=int, default=FOLDS)
    parser.add_argument("--scenarios", type=int, default=50)
    parser.add_argument("--every", type=int, default=1, help="test every so many days")
    parser.add_argument("--out", type=Path, help="file of results, a line for each fold")
    print(report(run(parser.parse_args())))


if __name__ == "__main__":
    main()
