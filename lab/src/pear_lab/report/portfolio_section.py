"""The portfolio experiments compared with the paper: tables, differences with intervals, and the value over time."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import torch

from pear.pages.page import PageFigure, PageGrid, PageSection
from pear_lab.experiments.catalogue import EXPERIMENTS, LOWER_BOUNDS, PEER_METHODS, TASKS
from pear_lab.experiments.run_record import RunRecord
from pear_lab.experiments.table_spec import CONDITIONS, METRICS, TableSpec
from pear_lab.report.bootstrap import normalized_difference, paired_interval
from pear_lab.report.published_numbers import format_mean, mean_and_deviation, published, verdict
from pear_lab.report.report_figures import draw_portfolio_values
from pear_lab.report.table_cells import StoredRuns
from pear_lab.tasks.market import deepest_drawdowns

METHODS = TASKS["portfolio"].methods
_COLORS = {
    **{METHODS["mse"]: "mse", METHODS["layer"]: "spo", METHODS["pear-mean"]: "lava", METHODS["pear-exact"]: "pear"},
    **{METHODS["pear-mean-injected"]: "pfyl", METHODS["pear-exact-injected"]: "spo-relaxed"},
    **{METHODS["qpth"]: "dbb", METHODS["cvxpylayers"]: "pear-deep"},
    **{"equal weight": "ink", "minimum variance": "muted"},
}
_PAPER = {"mse": "mse", "qpth": "qpth", "cvxpylayers": "cvxpylayers", "pear-mean": "pear"}
_PRINTED = {"mse": "MSE", "qpth": "qpth", "cvxpylayers": "CvxpyLayers", "pear": "PEAR"}
_PLACES = {"within 1 sd": "within", "better": "below", "worse": "above", "not run": "not run"}
"""The words for each verdict. The markets differ, so that no mean is better or worse than the published one."""
_TABLE, _SHIFT = EXPERIMENTS["mvo"].table, EXPERIMENTS["lower-bound-shift"].table
_PAIRS = ("Pair", "difference", "over windows", "over windows and seeds", "seeds", "windows", "told apart")
_HOW_SURE = (
    "Percentage points of normalised regret, each pair on the same test windows and seeds. 95 % bootstrap intervals of "
    "the mean: windows resampled, and windows and seeds resampled. Two methods count as told apart where both leave "
    "zero out. Windows are taken as independent of each other, the scale (mean best utility) as known, and nothing is "
    "corrected for the number of pairs, so that one “told apart” among many may be chance."
)
_BESIDE = (
    "Whether our mean lies within one published standard deviation of the published mean, above or below. The names "
    "differ, and with them the market, so that none of these is better or worse: they are not comparable."
)
_OF_A_RUN = ("variant", "peer", "time_cap")
"""Settings that may differ within a section; slow methods may have a longer time cap, which their rows name."""
_RunsByMethod = Mapping[str, Sequence[RunRecord]]
_Regrets = Mapping[str, Mapping[int, Any]]


def portfolio_sections(runs: StoredRuns) -> list[PageSection]:
    """Return a section for each set of portfolio runs with the same prices and settings. Reduced runs come last."""
    groups: dict[str, list[RunRecord]] = defaultdict(list)
    for run in runs.done:
        if run.task == "portfolio":
            settings = {name: value for name, value in run.settings.items() if name not in _OF_A_RUN}
            groups[json.dumps(settings, sort_keys=True)].append(run)
    ordered = sorted(groups.values(), key=lambda group: bool(group[0].settings.get("quick")))
    return [_portfolio_section(group, f"portfolio{place or ''}") for place, group in enumerate(ordered)]


def _portfolio_section(group: Sequence[RunRecord], name: str) -> PageSection:
    """Return the section of runs that have the same prices and settings."""
    settings = group[0].settings
    trained = _runs_by_method(run for run in group if "variant" not in run.settings)
    shifted = _runs_by_method(run for run in group if run.settings.get("variant") == "lower-bound-shift")
    grids = [
        _portfolio_grid(trained),
        *_portfolio_difference_grids("Differences between methods", _regret_difference_rows(trained)),
    ]
    figures: tuple[PageFigure, ...] = ()
    if shifted:
        rows = [
            (f"{lower:g}: {row[0]}", *row[1:])
            for lower in LOWER_BOUNDS
            for row in _pairwise_difference_rows(
                {METHODS[name]: _window_regrets(runs, lower) for name, runs in shifted.items()}
            )
        ]
        grids += [
            _lower_bound_grid(shifted),
            *_portfolio_difference_grids("Differences between methods by lower bound", rows),
        ]
    if trained:
        figure, falls = _value_figure(trained)
        grids.append(PageGrid("Drawdowns of the market", caption=falls))
        figures = (figure,)
    grids.append(_beside_published(trained, shifted))
    reduced = ", a reduced run" if settings.get("quick") else ""
    title = f"Portfolios: {settings['assets']} names of {settings['data']}{reduced}"
    return PageSection(name, title, _differences_to_paper(settings), tuple(grids), figures)


def _runs_by_method(runs: Iterable[RunRecord]) -> dict[str, list[RunRecord]]:
    """Return, for each method, one run of each seed in the order of seeds: the run with the longest time cap."""
    found: dict[str, dict[int, RunRecord]] = defaultdict(dict)
    for run in sorted(runs, key=lambda run: run.settings["time_cap"]):
        found[run.method][run.seed] = run
    return {name: [found[name][seed] for seed in sorted(found[name])] for name in METHODS if name in found}


def _differences_to_paper(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Return sentences on how these portfolio experiments differ from those of the paper."""
    span = f"{settings['first']} to {settings['last']}"
    sentences = [
        f"Ours: {settings['assets']} names, {settings['days']:,} days, {span}. The paper trades S&P 100 names over "
        "2010 to 2024 and does not list them, so that regrets and returns of the two are of different markets; only "
        "the order of the methods can be compared.",
        f"{_survivorship(settings['data'])} companies that failed are not among them (survivorship), which flatters "
        "every return here, the yardsticks' included.",
        "“Layer (ours)” is pear.DecisionLayer with exact derivatives, trained as qpth and CvxpyLayers are. Its "
        "gradient and that of “PEAR, exact” are the same gradient, computed in two ways. “PEAR, mean” is the paper's "
        "PEAR: it takes the predicted covariance for the true one.",
        "qpth and CvxpyLayers decide and differentiate the training portfolios, each in a process of its own "
        "environment; its start and the transport of the numbers are not in the training time. Everything else is the "
        "same for all methods: forecaster, batches, their order, optimiser, early stopping, and our exact solver for "
        "the true portfolios, the validation and the test.",
        "The annual return is 252 times the mean daily return; costs of 0.1 % of the turnover are taken off, the first "
        "purchase included.",
    ]
    if settings.get("quick"):
        sentences.append(
            f"A reduced run: the last {settings['last_days']:,} days, every {settings['stride']}th training window and "
            f"{settings['max_epochs']} epochs at most. Its numbers show that everything works, and nothing else."
        )
    return tuple(sentences)


def _survivorship(data: str) -> str:
    """Return the first words of the sentence on survivorship bias. They depend on the source of the prices."""
    if data in ("skfolio", "sp100"):
        return "The names are those that still mattered at the end of the history:"
    return "Where the names of a file were chosen by what they are at its end,"


def _portfolio_grid(trained: _RunsByMethod) -> PageGrid:
    """Return the main table: all metrics of every method, and of every portfolio without a forecast."""
    columns = [(metric, 0.0) for metric in _TABLE.metrics]
    rows = _method_rows(_TABLE, trained, columns)
    for name, numbers in _portfolio_yardsticks(trained).items():
        known = [(METRICS[metric], numbers.get(METRICS[metric].source)) for metric in _TABLE.metrics]
        rows.append((name, "yardstick", *("–" if x is None else f"{m.factor * x:.{m.decimals}f}" for m, x in known)))
    header = ("Method", "", *(METRICS[metric].title for metric in _TABLE.metrics))
    return PageGrid(_TABLE.title, header, tuple(rows), _TABLE.caption)


def _lower_bound_grid(shifted: _RunsByMethod) -> PageGrid:
    """Return the table of the methods' regrets under other lower bounds on the weights than in training."""
    rows = _method_rows(_SHIFT, shifted, [(_SHIFT.metrics[0], lower) for lower in LOWER_BOUNDS])
    header = ("Method", "", *(CONDITIONS["lower_bound"].label.format(lower) for lower in LOWER_BOUNDS))
    return PageGrid(_SHIFT.title, header, tuple(rows), _SHIFT.caption)


def _method_rows(
    table: TableSpec, groups: _RunsByMethod, columns: Sequence[tuple[str, float]]
) -> list[tuple[str, ...]]:
    """Return table rows for each method: a row of our numbers and, if the paper has the method, a row of the paper's.

    A method without runs has no rows, unless it needs another library. Our numbers in its row are then dashes.

    Args:
        table: the description of the table.
        groups: the runs of each method.
        columns: the metric and the lower bound of each column.
    """
    printed = {(row.method, row.metric, row.condition["lower_bound"]): row for row in published("published_portfolio")}
    rows = []
    for method in METHODS:
        runs, cells = groups.get(method, ()), []
        if not runs and method not in PEER_METHODS:
            continue
        for metric, lower in columns if runs else ():
            values = [table.value(run, metric, {"lower_bound": lower}) for run in runs]
            known = mean_and_deviation([value for value in values if value is not None], table.ddof)
            cells.append(format_mean(*known, table.decimals_of(metric)))
        rows.append((METHODS[method], f"ours, n = {len(runs)}{_time_cap_note(runs)}", *(cells or ["–"] * len(columns))))
        if name := _PAPER.get(method):
            texts = (printed[name, *at].text if (name, *at) in printed else "–" for at in columns)
            rows.append(("", f"paper: {_PRINTED[name]}", *texts))
    return rows


def _beside_published(trained: _RunsByMethod, shifted: _RunsByMethod) -> PageGrid:
    """Return a table that compares our means with the published means.

    A cell says whether our mean lies within one published standard deviation of the published mean, above or below.
    ``trained`` has the runs of trainings by method, and ``shifted`` the runs that measure trained models under other
    lower bounds on the weights.
    """
    found: dict[str, dict[str, str]] = {name: {} for name in _PAPER.values()}
    for row in published("published_portfolio"):
        method = next(name for name, printed in _PAPER.items() if printed == row.method)
        shift = row.table == _SHIFT.name
        table, runs = (_SHIFT, shifted) if shift else (_TABLE, trained)
        values = [table.value(run, row.metric, row.condition) for run in runs.get(method, ())]
        known = [value for value in values if value is not None]
        ours = mean_and_deviation(known, table.ddof)[0] if known else None
        column = CONDITIONS["lower_bound"].label.format(row.condition["lower_bound"])
        place = _PLACES[verdict(ours, row.mean, row.std, row.decimals).value]
        found[row.method][column if shift else METRICS[row.metric].title] = place
    header = dict.fromkeys(column for cells in found.values() for column in cells)
    rows = (
        (f"{METHODS[method]} (paper: {_PRINTED[name]})", *(found[name].get(column, "–") for column in header))
        for method, name in _PAPER.items()
    )
    return PageGrid("Beside the published cells", ("Method", *header), tuple(rows), _BESIDE)


def _time_cap_note(runs: Sequence[RunRecord]) -> str:
    """Return words on unusual time caps, and on how many trainings a time cap has ended; "" if there are none."""
    entry = TASKS["portfolio"]
    usual = {entry.budget["time_cap"], entry.quick["time_cap"]}
    others = sorted({run.settings["time_cap"] for run in runs} - usual)
    spent = [run.timings.get("total", 0.0) + run.timings.get("transport", 0.0) for run in runs]
    ended = sum(seconds >= run.settings["time_cap"] for run, seconds in zip(runs, spent, strict=True))
    words = [f"time cap {cap:g} s" for cap in others] + ([f"{ended} ended by the time cap"] if ended else [])
    return "".join(f", {word}" for word in words)


def _regret_difference_rows(trained: _RunsByMethod) -> list[tuple[str, ...]]:
    """Return table rows of differences in regret.

    They compare every two methods, and every method with every portfolio without a forecast.
    """
    regrets = {METHODS[name]: _window_regrets(runs) for name, runs in trained.items()}
    rows = _pairwise_difference_rows(regrets)
    for name, numbers in _portfolio_yardsticks(trained).items():
        some = next(iter(trained.values()))[0].metrics
        values = 100 * np.asarray(numbers["regrets"]) / np.abs(some["best"]).mean()
        seeds = {run.seed: values for runs in trained.values() for run in runs}
        rows += [
            row for method in regrets if (row := _portfolio_difference_row({**regrets, name: seeds}, method, name))
        ]
    return rows


def _pairwise_difference_rows(regrets: _Regrets) -> list[tuple[str, ...]]:
    """Return a table row of differences for every two methods that have a common seed."""
    return [row for pair in combinations(regrets, 2) if (row := _portfolio_difference_row(regrets, *pair))]


def _portfolio_difference_grids(title: str, rows: Sequence[tuple[str, ...]]) -> list[PageGrid]:
    """Return a list with one table of the given rows; an empty list if there are no rows."""
    return [PageGrid(title, _PAIRS, tuple(rows), _HOW_SURE)] if rows else []


def _portfolio_difference_row(regrets: _Regrets, first: str, second: str) -> tuple[str, ...] | None:
    """Return the table row of the difference between two methods; None if they have no common seed."""
    seeds = sorted(set(regrets[first]) & set(regrets[second]))
    if not seeds:
        return None
    a, b = (np.array([regrets[name][seed] for seed in seeds]) for name in (first, second))
    windows = paired_interval(a.mean(0), b.mean(0))
    both = normalized_difference(list(a), list(b), list(np.ones_like(a)), shared=True)
    told = f"{first if windows.estimate < 0 else second} loses less" if windows.clear and both.clear else "no"
    # Rounding of equal gradients must not look like a finding.
    if max(abs(both.low), abs(both.high)) < 1e-4:
        told = "equal"
    intervals = [f"{_format_signed(found.low)} to {_format_signed(found.high)}" for found in (windows, both)]
    return (f"{first} − {second}", _format_signed(windows.estimate), *intervals, str(len(seeds)), str(a.shape[1]), told)


def _format_signed(value: float) -> str:
    """Return a number as text, with its sign and two decimals. −0.00 becomes +0.00."""
    return f"{round(value, 2) + 0.0:+.2f}"


def _window_regrets(runs: Sequence[RunRecord], lower: float | None = None) -> dict[int, Any]:
    """Return the regrets (K,) of the K windows, by seed, in percent of the mean of |best utility|.

    ``lower`` selects the results under one lower bound on the weights. It is None for runs with a single lower bound.
    """
    found = {}
    for run in runs:
        regrets, best = run.metrics["regrets"], run.metrics["best"]
        if lower is not None:
            regrets, best = regrets[f"{lower:g}"], best[f"{lower:g}"]
        found[run.seed] = 100 * np.asarray(regrets) / np.abs(best).mean()
    return found


def _portfolio_yardsticks(trained: _RunsByMethod) -> Mapping[str, Any]:
    """Return the results of the portfolios without a forecast, by name. They are the same in all runs."""
    return next((runs[0].metrics["yardsticks"] for runs in trained.values()), {})


def _value_figure(trained: _RunsByMethod) -> tuple[PageFigure, str]:
    """Return the figure of the value over time, and a sentence on it.

    The figure shades the deepest falls of the portfolio with equal weights, and the sentence lists them.
    """
    values = {METHODS[name]: np.mean([run.metrics["value"] for run in runs], axis=0) for name, runs in trained.items()}
    some = next(iter(trained.values()))[0].metrics
    values |= {name: np.asarray(numbers["value"]) for name, numbers in some["yardsticks"].items()}
    falls = deepest_drawdowns(torch.as_tensor(some["yardsticks"]["equal weight"]["value"]))
    # The value after day d stands at position d − 1. Day 0 is the start.
    words = "; ".join(
        f"days {fall.peak + 1} to {fall.end + 1}, {100 * fall.depth:.1f} % at day {fall.trough + 1}" for fall in falls
    )
    sentence = "{} to {}, mean over the seeds, costs taken off.".format(*some["dates"]) + (
        f" Shaded: the deepest falls of equal weights, from the height until it is reached again ({words})."
        if falls
        else " Equal weights never fell."
    )
    legend = {name: _COLORS.get(name, "ink") for name in values}
    draw = partial(draw_portfolio_values, values, legend, [(fall.peak + 1, fall.end + 1) for fall in falls])
    return PageFigure("Value of one unit of money over the test", sentence, draw, legend), sentence
