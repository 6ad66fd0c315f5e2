"""The portfolio experiments beside the paper: tables, differences with intervals, and the value over time."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import torch

from pear.report.bootstrap import paired_interval
from pear.report.compare import mean_and_deviation
from pear.report.database import Run, Runs
from pear.report.published import Published, published_portfolio
from pear.tasks.market import METHODS, Drawdown, deepest_drawdowns

COLORS = {
    "mse": "--mse",
    "layer": "--spo",
    "pear-mean": "--lava",
    "pear-exact": "--pear",
    "pear-mean-injected": "--pfyl",
    "pear-exact-injected": "--spo-relaxed",
    "equal weight": "--ink",
    "minimum variance": "--muted",
}
"""The page's variable for the colour of each line."""

_PAPER = {"mse": ("mse",), "layer": ("qpth", "cvxpylayers"), "pear-mean": ("pear",)}
_PRINTED = {"mse": "MSE", "qpth": "qpth", "cvxpylayers": "CvxpyLayers", "pear": "PEAR"}
# heading → published metric, our metric, factor, digits
_COLUMNS: dict[str, tuple[str, str, float, int]] = {
    "regret, %": ("normalized_regret_pct", "normalized_regret", 100.0, 2),
    "training, s": ("train_seconds", "total", 1.0, 1),
    "cumulative return, %": ("cumulative_return_pct", "cumulative_return", 100.0, 2),
    "annual return, %": ("annual_return_pct", "annual_return", 100.0, 2),
    "volatility, %": ("", "volatility", 100.0, 2),
    "Sharpe": ("sharpe", "sharpe", 1.0, 2),
    "max. drawdown, %": ("max_drawdown_pct", "max_drawdown", 100.0, 2),
    "turnover": ("", "mean_turnover", 1.0, 2),
    "normalised MSE": ("normalized_mse", "normalized_mse", 1.0, 3),
}
_LOWER = ("-0.1", "-0.3", "-0.5", "-1")


@dataclass(frozen=True)
class Grid:
    """A small table of words."""

    title: str
    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Lines:
    """What the picture shows.

    Attributes:
        values: at the end of each day, by name; mean over the seeds.
        falls: the deepest falls of equal weights, which stand for the market.
        dates: the first and the last day.
    """

    values: Mapping[str, Sequence[float]]
    falls: tuple[Drawdown, ...]
    dates: tuple[str, str]


@dataclass(frozen=True)
class MarketSection:
    """All runs on the same prices with the same settings."""

    name: str
    title: str
    sentences: tuple[str, ...]
    grids: tuple[Grid, ...]
    lines: Lines | None


def market_sections(runs: Runs) -> list[MarketSection]:
    """One section for each set of prices and settings, those of the full protocol first."""
    groups: dict[str, list[Run]] = defaultdict(list)
    for run in runs.done:
        if run.task == "portfolio":
            settings = {name: value for name, value in run.settings.items() if name != "variant"}
            groups[json.dumps(settings, sort_keys=True)].append(run)
    ordered = sorted(groups.values(), key=lambda group: bool(group[0].settings.get("quick")))
    return [_section(group, f"portfolio{place or ''}") for place, group in enumerate(ordered)]


def _section(group: Sequence[Run], name: str) -> MarketSection:
    settings = group[0].settings
    trained = _by_method(run for run in group if "variant" not in run.settings)
    shifted = _by_method(run for run in group if run.settings.get("variant") == "lower-bound-shift")
    grids = [_main(trained), _differences(trained)]
    if shifted:
        grids += [_shift(shifted), _shift_differences(shifted)]
    reduced = ", a reduced run" if settings.get("quick") else ""
    title = f"Portfolios: {settings['assets']} names of {settings['data']}{reduced}"
    return MarketSection(
        name, title, _what_differs(settings), tuple(grid for grid in grids if grid is not None), _lines(trained)
    )


def _by_method(runs: Any) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        found[run.method].append(run)
    return {name: sorted(found[name], key=lambda run: run.seed) for name in METHODS if name in found}


def _what_differs(settings: Mapping[str, Any]) -> tuple[str, ...]:
    span = f"{settings['first']} to {settings['last']}"
    sentences = [
        f"Ours: {settings['assets']} names, {settings['days']:,} days, {span}. The paper trades S&P 100 names over "
        "2010 to 2024 and does not list them, so that regrets and returns of the two are of different markets; only "
        "the order of the methods can be compared.",
        f"{_chosen_late(settings['data'])} companies that failed are not among them (survivorship), which flatters "
        "every return here, the yardsticks' included.",
        "“Layer (ours)” is pear.DecisionLayer with exact derivatives, trained as the paper trains qpth and "
        "CvxpyLayers; neither of the two was run. Its gradient and that of “PEAR, exact” are the same gradient, "
        "computed in two ways. “PEAR, mean” is the paper's PEAR: it takes the predicted covariance for the true one.",
        "The annual return is 252 times the mean daily return; costs of 0.1 % of the turnover are taken off, the first "
        "purchase included.",
    ]
    if settings.get("quick"):
        sentences.append(
            f"A reduced run: the last {settings['last_days']:,} days, every {settings['stride']}th training window and "
            f"{settings['max_epochs']} epochs at most. Its numbers show that everything works, and nothing else."
        )
    return tuple(sentences)


def _chosen_late(data: str) -> str:
    if data in ("skfolio", "sp100"):
        return "The names are those that still mattered at the end of the history:"
    return "Where the names of a file were chosen by what they are at its end,"


def _main(trained: Mapping[str, Sequence[Run]]) -> Grid:
    rows = []
    for method, runs in trained.items():
        cells = [_ours(runs, *column[1:]) for column in _COLUMNS.values()]
        rows.append((METHODS[method], f"ours, n = {len(runs)}", *cells))
        rows += [_paper_row(name) for name in _PAPER.get(method, ())]
    for name, numbers in _yardsticks(trained).items():
        cells = [
            f"{factor * numbers[ours]:.{digits}f}" if ours in numbers else "–"
            for _, ours, factor, digits in _COLUMNS.values()
        ]
        rows.append((name, "yardstick", *cells))
    caption = "Mean ± sample standard deviation (ddof 1) over the seeds. Times are of different machines."
    return Grid("Regret and backtest", caption, ("Method", "", *_COLUMNS), tuple(rows))


def _ours(runs: Sequence[Run], metric: str, factor: float, digits: int) -> str:
    values = [run.timings["total"] if metric == "total" else run.metrics[metric] for run in runs]
    mean, std = mean_and_deviation([factor * value for value in values], 1)
    return f"{mean:.{digits}f}" + ("" if std is None else f" ± {std:.{digits}f}")


def _paper_row(name: str) -> tuple[str, ...]:
    there = {row.metric: row for row in published_portfolio() if row.method == name and row.table != _SHIFT}
    return ("", f"paper: {_PRINTED[name]}", *(_printed(there.get(column[0])) for column in _COLUMNS.values()))


_SHIFT = "lower_bound_shift"


def _printed(row: Published | None) -> str:
    if row is None or row.mean is None:
        return "–"
    return f"{row.mean:.{row.decimals}f}" + ("" if row.std is None else f" ± {row.std:.{row.decimals}f}")


def _shift(shifted: Mapping[str, Sequence[Run]]) -> Grid:
    rows = []
    for method, runs in shifted.items():
        cells = []
        for lower in _LOWER:
            mean, std = mean_and_deviation([100 * run.metrics["shift"][lower] for run in runs], 1)
            cells.append(f"{mean:.1f}" + ("" if std is None else f" ± {std:.1f}"))
        rows.append((METHODS[method], f"ours, n = {len(runs)}", *cells))
        for name in _PAPER.get(method, ()):
            there = {
                f"{row.condition['lower_bound']:g}": row
                for row in published_portfolio()
                if row.method == name and row.table == _SHIFT
            }
            rows.append(("", f"paper: {_PRINTED[name]}", *(_printed(there.get(lower)) for lower in _LOWER)))
    header = ("Method", "", *(f"lower bound {lower}" for lower in _LOWER))
    caption = "Regret in % of the models trained long only, where short positions are allowed down to the bound."
    return Grid("Lower-bound shift", caption, header, tuple(rows))


def _differences(trained: Mapping[str, Sequence[Run]]) -> Grid | None:
    """Every pair of methods, and every method against the yardsticks."""
    regrets = {METHODS[name]: _window_regrets(runs) for name, runs in trained.items()}
    rows = [row for pair in combinations(regrets, 2) if (row := _difference(regrets, *pair))]
    for name, numbers in _yardsticks(trained).items():
        some = next(iter(trained.values()))[0].metrics
        values = 100 * np.asarray(numbers["regrets"]) / np.abs(some["best"]).mean()
        seeds = {seed: values for runs in trained.values() for seed in (run.seed for run in runs)}
        rows += [row for method in regrets if (row := _difference({**regrets, name: seeds}, method, name))]
    return Grid("Differences between methods", _HOW_SURE, _PAIRS, tuple(rows)) if rows else None


def _shift_differences(shifted: Mapping[str, Sequence[Run]]) -> Grid | None:
    rows = []
    for lower in _LOWER:
        regrets = {METHODS[name]: _window_regrets(runs, lower) for name, runs in shifted.items()}
        found = [row for pair in combinations(regrets, 2) if (row := _difference(regrets, *pair))]
        rows += [(f"{lower}: {row[0]}", *row[1:]) for row in found]
    return Grid("Differences between methods by lower bound", _HOW_SURE, _PAIRS, tuple(rows)) if rows else None


_PAIRS = ("Pair", "difference", "over windows", "over windows and seeds", "seeds", "windows", "told apart")
_HOW_SURE = (
    "Percentage points of normalised regret, each pair on the same test windows and seeds. 95 % bootstrap intervals of "
    "the mean: windows resampled, and windows and seeds resampled. Two methods count as told apart where both leave "
    "zero out. Windows are taken as independent of each other, the scale (mean best utility) as known, and nothing is "
    "corrected for the number of pairs, so that one “told apart” among many may be chance."
)


def _difference(regrets: Mapping[str, Mapping[int, Any]], first: str, second: str) -> tuple[str, ...] | None:
    """One line; None where no seed is common to both."""
    seeds = sorted(set(regrets[first]) & set(regrets[second]))
    if not seeds:
        return None
    a, b = (np.array([regrets[name][seed] for seed in seeds]) for name in (first, second))
    difference, *windows = paired_interval(a.mean(0), b.mean(0))
    both = crossed_interval(a - b)
    open_question = any(low <= 0 <= high for low, high in (windows, both))
    told = "no" if open_question else f"{first if difference < 0 else second} loses less"
    # Rounding of equal gradients must not look like a finding.
    if max(abs(end) for end in both) < 1e-4:
        told = "equal"
    intervals = [f"{_signed(low)} to {_signed(high)}" for low, high in (windows, both)]
    return (f"{first} − {second}", _signed(difference), *intervals, str(len(seeds)), str(a.shape[1]), told)


def crossed_interval(differences: Any, level: float = 0.95, resamples: int = 10_000) -> tuple[float, float]:
    """Percentile interval of the mean of (seeds, windows) differences when both are drawn with replacement.

    Example:
        >>> crossed_interval(np.array([[1.0, 1.0], [1.0, 1.0]]))
        (1.0, 1.0)
    """
    rng = np.random.default_rng(0)
    seeds, windows = differences.shape
    weights = [rng.multinomial(count, np.full(count, 1 / count), resamples) / count for count in (seeds, windows)]
    means = ((weights[0] @ differences) * weights[1]).sum(1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _signed(number: float) -> str:
    return f"{round(number, 2) + 0.0:+.2f}"


def _window_regrets(runs: Sequence[Run], lower: str | None = None) -> dict[int, Any]:
    """By seed, (K,) per cent: regret of each window over the mean of |best utility|."""
    found = {}
    for run in runs:
        regrets, best = run.metrics["regrets"], run.metrics["best"]
        if lower is not None:
            regrets, best = regrets[lower], best[lower]
        found[run.seed] = 100 * np.asarray(regrets) / np.abs(best).mean()
    return found


def _yardsticks(trained: Mapping[str, Sequence[Run]]) -> Mapping[str, Any]:
    """The same for every run on these prices."""
    for runs in trained.values():
        found: Mapping[str, Any] = runs[0].metrics["yardsticks"]
        return found
    return {}


def _lines(trained: Mapping[str, Sequence[Run]]) -> Lines | None:
    if not trained:
        return None
    values = {METHODS[name]: np.mean([run.metrics["value"] for run in runs], axis=0) for name, runs in trained.items()}
    some = next(iter(trained.values()))[0].metrics
    for name, numbers in some["yardsticks"].items():
        values[name] = np.asarray(numbers["value"])
    falls = deepest_drawdowns(torch.as_tensor(some["yardsticks"]["equal weight"]["value"]))
    return Lines({name: value.tolist() for name, value in values.items()}, tuple(falls), tuple(some["dates"]))
