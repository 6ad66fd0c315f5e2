"""The gain from scenarios in the Irish unit commitment, with scenarios whose spread follows the uncertainty of the day.

    python lab/studies/commitment_spread_study.py [--wind 1] [--scenarios 50]

The model, the days and the ridge forecast are those of ``commitment_study.py``. All plans are exact, by
dynamic programming; the last line compares some of them with ``pear.Stochastic``. There are three tables.

1. The distribution of forecast errors is known. It is made from the errors of a cross-validation on all days. In the
   row "equal", each of these errors is equally likely on every day. In the row "by size", the errors are first divided
   by the size that is predicted for their own day, and then multiplied by the size for the planned day. Every rule
   knows the distribution, and its expected regret is exact. No scenarios can be better than the best plan.
2. The distribution is known and equal on all days. Plans have few scenarios, made in several ways.
3. Walk-forward on the real days, all of them from day 365 on. The size of errors is predicted from the forecast wind,
   its root, and the forecast load of the block, with one regression for all blocks.

The study judges the rule "50 quantiles of errors, by size". The rule, the three features of the size, the penalty 0.1
and the 200 neighbours were chosen on the first 365 days, which are not tested, by the continuous ranked probability
score. The rivals plan by a quantile of demand. The quantile is that of the past errors, of the errors divided by their
size, or of a linear quantile regression on the same features. Each rival is shown with the level that is best on the
tested days, and with the level that was best on the folds before. ``--wind 2`` multiplies the forecast and the true
wind by two. In 2021 the island of Ireland had about 2.6 times the wind capacity of 2012.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from sklearn.linear_model import QuantileRegressor
from sklearn.preprocessing import StandardScaler

import pear
from commitment_study import FIRST_TEST, FOLD, folds, ridge
from pear.scenarios import ErrorSpread, predict_spread, quantile_scenarios, reduce, residual_scenarios
from pear_lab.report.bootstrap import normalized_difference
from pear_lab.tasks.commitment_program import States, block_costs, commitment_cost, plan_commitment
from pear_lab.tasks.irish_commitment import (
    BLOCKS,
    Array,
    IrishCommitmentDays,
    irish_commitment_days,
    irish_commitment_model,
)

LEVELS = (0.7, 0.75, 0.8, 0.85, 0.9, 0.925, 0.95, 0.975)
START_LEVEL = 0.9
NEIGHBOURS, PARTS, SEEDS, EVERY, CHECKED = 200, 12, 10, 4, 30
STRIDE = 101  # shares no factor with the number of days, so that the errors of all days are among those kept
FIXED, SIZED, REGRESSED = "quantile", "quantile by size", "quantile regression"
RIVALS = ((FIXED, True), (FIXED, False), (SIZED, True), (REGRESSED, True))
"""Rules with a quantile that others are compared with, each with whether its level is the best on the tested days."""


class Fold(NamedTuple):
    """The data that is known before a fold of T test days, and the true demand of these days.

    Attributes:
        forecasts: (T, 12) the forecasts of demand.
        errors: (N, 12) the forecast errors on N past days.
        past: (N, 12, 3) the features of the size of errors on the past days.
        now: (T, 12, 3) the features of the size of errors on the test days.
        true: (T, 12) the true demand.
    """

    forecasts: Array
    errors: Array
    past: Array
    now: Array
    true: Array


def size_features(days: IrishCommitmentDays) -> Array:
    """Return the features (D, 12, 3) that predict the size of errors.

    They are the root of the forecast wind, the forecast wind, and the forecast load.
    """
    load, wind = days.features[:, :BLOCKS], days.features[:, BLOCKS : 2 * BLOCKS]
    return np.stack([np.sqrt(wind), wind, load], 2)


def predicted_error_sizes(fold: Fold) -> tuple[Array, Array]:
    """Return the predicted sizes of errors on past days (N, 12) and on test days (T, 12)."""
    spread = predict_spread(fold.past, fold.errors, fold.now)
    return spread.past.numpy(), spread.now.numpy()


def mean_costs(scenarios: Array, weights: Array | None = None) -> Array:
    """Return the expected costs (B, 12, 16) of the 12 blocks of B days, with each of the 16 sets of running plants.

    Args:
        scenarios: (B, S, 12) the demand in S scenarios.
        weights: (B, S) the weights of the scenarios; equal if omitted.
    """
    if weights is None:
        return np.stack([block_costs(values).mean(0) for values in scenarios])
    pairs = zip(scenarios, weights / weights.sum(1, keepdims=True), strict=True)
    return np.stack([np.tensordot(weight, block_costs(values), 1) for values, weight in pairs])


# --- a known process ------------------------------------------------------------------------------------------------


class Process(NamedTuple):
    """A known distribution of demand on B days: forecast plus size · u, where each of N rows u is equally likely.

    Attributes:
        centres: (B, 12) the forecasts of the B days.
        units: (N, 12) the rows u: errors of N days, divided by the size predicted for their day.
        sizes: (B, 12) the predicted sizes of the errors on the B days, or ones.
        mixture: (R, 12) a sample of the errors in MW, pooled over all days.
        expected: (B, 12, 16) the expected costs of the blocks, with each of the 16 sets of running plants.
        least: the mean cost of the best commitments if the demand is known.
    """

    centres: Array
    units: Array
    sizes: Array
    mixture: Array
    expected: Array
    least: float

    def lost(self, costs: Array) -> float:
        """Return the expected regret, in percent, of plans that are optimal for ``costs`` (B, 12, 16) of the blocks."""
        return 100 * (float(commitment_cost(plan_commitment(costs), self.expected).mean()) / self.least - 1)

    def lost_by_quantile(self, values: Array, sizes: Array | float) -> str:
        """Return the least expected regret of planning by one quantile of demand, and its level, as text.

        Args:
            values: (R, 12) the errors whose quantiles are tried.
            sizes: (B, 12) or a number, by which the quantile is multiplied before it is added to the forecasts.
        """
        costs = {q: block_costs(self.centres + sizes * np.quantile(values, q, axis=0)) for q in LEVELS}
        found = {level: self.lost(values) for level, values in costs.items()}
        level = min(found, key=lambda level: found[level])
        return f"{found[level]:.3f} % ({level:g})"


def make_process(centres: Array, errors: Array, sizes: Array, rows: States) -> Process:
    """Return the process in which errors, divided by their sizes, are equally likely on every day.

    Args:
        centres: (B, 12) the forecasts of the planned days.
        errors: (N, 12) the errors on all days.
        sizes: (N, 12) the predicted sizes of these errors.
        rows: (B,) the positions of the planned days among all days.
    """
    units = errors / sizes
    mixture = (sizes[:, None] * units[None]).reshape(-1, BLOCKS)[::STRIDE]
    truth = [block_costs(centre + size * units) for centre, size in zip(centres, sizes[rows], strict=True)]
    least = float(np.mean([commitment_cost(plan_commitment(costs), costs).mean() for costs in truth]))
    return Process(centres, units, sizes[rows], mixture, np.stack([costs.mean(0) for costs in truth]), least)


def known_process(days: IrishCommitmentDays, count: int) -> None:
    """Print the first two tables, for a known process.

    They show the expected regret of each rule, and that of plans with few scenarios.
    """
    X, Y = days.features, days.net_load
    errors = np.zeros_like(Y)
    for block in np.array_split(np.arange(len(Y)), PARTS):
        rest = np.setdiff1d(np.arange(len(Y)), block)
        errors[block] = Y[block] - ridge(X[rest], Y[rest]).predict(X[block])
    features, rows = size_features(days), np.arange(FIRST_TEST, len(Y), EVERY)
    sizes = predict_spread(features, errors, features).now.numpy()
    low, high = np.quantile(sizes, (0.05, 0.95))
    print(f"{len(rows)} days; nine tenths of the predicted sizes of errors are from {low:.0f} to {high:.0f} MW\n")
    print("| process | best plan | best fixed quantile | best quantile by size | scenarios equal on all days | mean |")
    print("|---|---:|---:|---:|---:|---:|")
    equal = make_process((Y - errors)[rows], errors, np.ones_like(sizes), rows)
    for name, process in (("equal", equal), ("by size", make_process(equal.centres, errors, sizes, rows))):
        row = [
            f"{process.lost(process.expected):.3f} %",
            process.lost_by_quantile(process.mixture, 1.0),
            process.lost_by_quantile(process.units, process.sizes),
            f"{process.lost(mean_costs(process.centres[:, None] + process.mixture)):.3f} %",
            f"{process.lost(block_costs(process.centres)):.3f} %",
        ]
        print(f"| {name} | {' | '.join(row)} |")
    print(few_scenarios(equal, count))


def few_scenarios(process: Process, count: int) -> str:
    """Return the table of the expected regret of plans with 20 and with ``count`` scenarios.

    Each row is a way to make scenarios. A cell has the mean regret over seeds, and its range.
    """
    zero, errors = np.zeros((1, BLOCKS)), process.units
    lines = ["", f"| scenarios | 20 | {count} |", "|---|---:|---:|"]
    makers: dict[str, Callable[[int, int], tuple[Array, Array | None]]] = {
        "a random draw of days": lambda S, seed: (residual_scenarios(zero, errors, S, seed=seed)[0].numpy(), None),
        "days at even steps": lambda S, seed: (residual_scenarios(zero, errors, S, draw="even")[0].numpy(), None),
        "means of clusters": lambda S, seed: _clusters(errors, S, "mean", seed),
        "one day of each cluster": lambda S, seed: _clusters(errors, S, "one", seed),
        "quantiles of each block": lambda S, seed: (quantile_scenarios(zero, errors, S)[0].numpy(), None),
    }
    for name, make in makers.items():
        cells = []
        for S in (20, count):
            found = []
            for seed in range(SEEDS):
                values, weights = make(S, seed)
                shares = None if weights is None else np.tile(weights, (len(process.centres), 1))
                found.append(process.lost(mean_costs(process.centres[:, None] + values, shares)))
            ends = f" ({min(found):.3f} to {max(found):.3f})" if max(found) > min(found) else ""
            cells.append(f"{np.mean(found):.3f} %{ends}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _clusters(errors: Array, count: int, keep: Literal["mean", "one"], seed: int) -> tuple[Array, Array]:
    """Return the scenarios (S, 12) that ``pear.scenarios.reduce`` makes from errors (N, 12), and their weights (S,).

    ``keep`` says whether a cluster becomes the mean of its errors, or one of them.
    """
    values, weights = reduce(errors, count, keep=keep, seed=seed)
    return values.numpy(), weights.numpy()


# --- walk-forward ---------------------------------------------------------------------------------------------------


def quantile_regressions(fold: Fold, level: float) -> Array:
    """Return the quantiles of demand (T, 12) on the test days.

    A linear quantile regression for each block predicts them.
    """
    found = np.zeros_like(fold.forecasts)
    for block in range(BLOCKS):
        scaler = StandardScaler().fit(fold.past[:, block])
        model = QuantileRegressor(quantile=level, alpha=0.0, solver="highs")
        model.fit(scaler.transform(fold.past[:, block]), fold.errors[:, block])
        found[:, block] = fold.forecasts[:, block] + model.predict(scaler.transform(fold.now[:, block]))
    return found


def neighbour_weights(fold: Fold) -> Array:
    """Return weights (T, N) of the N past days for each of T test days.

    The nearer a past day is to the test day, the larger is its weight; from the ``NEIGHBOURS``-th nearest day on, it is
    zero. The distance of two days is that of the square roots of their forecast winds, over all blocks.
    """
    apart = np.linalg.norm(fold.now[:, None, :, 0] - fold.past[None, :, :, 0], axis=2)
    reach = np.sort(apart, 1)[:, NEIGHBOURS - 1 : NEIGHBOURS]
    return np.maximum(1 - (apart / reach) ** 2, 0.0)


def walk_forward_costs(fold: Fold, count: int) -> dict[str, Array]:
    """Return, for each rule, the expected costs (T, 12, 16) of the blocks that the rule plans by."""
    past, now = predicted_error_sizes(fold)
    spread, units = ErrorSpread(torch.from_numpy(past), torch.from_numpy(now)), fold.errors / past
    rules = {"mean": block_costs(fold.forecasts)}
    for level in LEVELS:
        rules[f"{FIXED} {level:g}"] = block_costs(fold.forecasts + np.quantile(fold.errors, level, axis=0))
        rules[f"{SIZED} {level:g}"] = block_costs(fold.forecasts + now * np.quantile(units, level, axis=0))
        rules[f"{REGRESSED} {level:g}"] = block_costs(quantile_regressions(fold, level))
    both = (fold.forecasts, fold.errors, count)
    all_days = fold.forecasts[:, None] + fold.errors
    scenarios = {
        f"{count} past errors, a random draw": residual_scenarios(*both).numpy(),
        f"{count} quantiles of errors": quantile_scenarios(*both).numpy(),
        "all past errors": all_days,
        f"{count} past errors, a random draw, by size": residual_scenarios(*both, spread=spread).numpy(),
        f"{count} quantiles of errors, by size": quantile_scenarios(*both, spread=spread).numpy(),
        "all past errors, by size": fold.forecasts[:, None] + now[:, None] * units,
    }
    rules |= {name: mean_costs(values) for name, values in scenarios.items()}
    rules[f"past errors of {NEIGHBOURS} days with similar wind"] = mean_costs(all_days, neighbour_weights(fold))
    return rules


def rules_of_kind(lost: dict[str, Array], kind: str) -> list[str]:
    """Return the names of the quantile rules of a kind, which is a rule's name without the level."""
    return [name for name in lost if name.rpartition(" ")[0] == kind]


def best_before(lost: dict[str, Array], kind: str, fold: int, start_level: float) -> Array:
    """Return the losses (D,) of a quantile rule that chooses, for each fold, the level that lost least before it.

    Args:
        lost: the losses (D,) of each rule on D tested days.
        kind: the rule's name without the level.
        fold: the number of tested days of a fold.
        start_level: the level of the first fold.
    """
    names = rules_of_kind(lost, kind)
    total, found = dict.fromkeys(names, 0.0), []
    for start in range(0, len(lost[names[0]]), fold):
        name = min(names, key=lambda one: total[one]) if start else f"{kind} {start_level:g}"
        part = slice(start, start + fold)
        found.append(lost[name][part])
        total = {one: before + float(lost[one][part].sum()) for one, before in total.items()}
    return np.concatenate(found)


def walk_forward(days: IrishCommitmentDays, count: int) -> None:
    """Print the table of the rules on the real days, and the largest difference from ``pear.Stochastic``."""
    features, lost, least = size_features(days), dict[str, list[Array]](), []
    plan, apart = pear.Stochastic(irish_commitment_model(), ["on", "start"], count), 0.0
    for start, fold, true in folds(days.features, days.net_load, 1, ()):
        rows = slice(start, start + len(true))
        one = Fold(fold.forecasts, fold.errors, features[:start], features[rows], true.numpy())
        truth = block_costs(one.true)
        least.append(commitment_cost(plan_commitment(truth), truth))
        for name, costs in walk_forward_costs(one, count).items():
            lost.setdefault(name, []).append(commitment_cost(plan_commitment(costs), truth) - least[-1])
        some = slice(None, None, CHECKED)
        spread = predict_spread(one.past, one.errors, one.now[some])
        scenarios = quantile_scenarios(one.forecasts[some], one.errors, count, spread=spread)
        costs = mean_costs(scenarios.numpy())
        own = commitment_cost(plan_commitment(costs), costs)
        apart = max(apart, float(np.abs(plan.solve(scenarios).value.numpy() / own - 1).max()))
    print(table({name: np.concatenate(parts) for name, parts in lost.items()}, np.concatenate(least)))
    print(f"\nlargest relative difference from the value of pear.Stochastic: {apart:.0e}")


def table(
    lost: dict[str, Array],
    least: Array,
    compared: Sequence[tuple[str, bool]] = RIVALS,
    fold: int = FOLD,
    start_level: float = START_LEVEL,
) -> str:
    """Return the table of all rules.

    Args:
        lost: the losses (D,) of each rule on D tested days.
        least: (D,) the least costs of these days.
        compared: the rivals that have a column, as in ``RIVALS``.
        fold: the number of tested days of a fold.
        start_level: the level of the first fold in rules that choose it on the folds before.
    """
    kinds = dict.fromkeys(kind for kind, _ in compared)
    best = {kind: min(rules_of_kind(lost, kind), key=lambda name: lost[name].mean()) for kind in kinds}
    before = {kind: f"{kind}, level of the folds before" for kind in kinds}
    shown = {"mean": lost["mean"]} | {name: lost[name] for name in best.values()}
    shown |= {name: best_before(lost, kind, fold, start_level) for kind, name in before.items()}
    shown |= {name: days for name, days in lost.items() if not name.startswith("quantile")}
    rivals = [best[kind] if in_hindsight else before[kind] for kind, in_hindsight in compared]
    lines = [
        f"\n{len(least)} days\n",
        f"| rule | regret | {' | '.join(f'below {rival}' for rival in rivals)} |",
        f"|---|---:|{'---:|' * len(rivals)}",
    ]

    def gain(days: Array, rival: str) -> str:
        if days is shown[rival]:
            return ""
        found = [100 * x for x in normalized_difference([shown[rival]], [days], [least], block=7)]
        return f"{found[0]:.3f} ({found[1]:.3f} to {found[2]:.3f})"

    for name, days in shown.items():
        cells = " | ".join(gain(days, rival) for rival in rivals)
        lines.append(f"| {name} | {100 * days.sum() / least.sum():.3f} % | {cells} |")
    return "\n".join(lines)


def main() -> None:
    """Print the three tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wind", type=float, default=1.0, help="factor of the forecast and the true wind")
    parser.add_argument("--scenarios", type=int, default=50)
    args = parser.parse_args()
    warnings.filterwarnings("error", module="sklearn")
    days = irish_commitment_days(wind_factor=args.wind)
    known_process(days, args.scenarios)
    walk_forward(days, args.scenarios)


if __name__ == "__main__":
    main()
