"""Which runs belong to a cell of a table, and what they come to."""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pear.report.compare import Verdict, mean_and_deviation, verdict
from pear.report.database import Run, Runs
from pear.report.published import SEEDS, Published

PAPER: Mapping[str, Mapping[str, Any]] = {
    "shortest_path": {"grid": [5, 5], "samples": 2000},
    "knapsack": {"items": 100, "dimensions": 5, "capacity_ratio": 0.5, "samples": 2000},
}
"""What the paper's problems have in common, by task; a run with anything else is of a reduced problem."""

TIME_CAP, MAX_EPOCHS = 600.0, 10_000
"""The paper's budget of a training."""

_DEFAULTS = {"noise": 0.0, "smoothing": 0.1, "injection": 0.1}
_OURS = {
    "noise": "noise", "degree": "degree", "lambda": "smoothing", "beta": "injection",
    "batch": "instance_size", "budget": "budget", "limit": "capacity",
}  # fmt: skip
_VERSIONS = {"building_investment": "inequality", "building_equality": "equality"}
_FOLDS = 5
_VARIANTS: Mapping[str, tuple[str | None, ...]] = {
    "direction_shift": ("direction-shift",),
    "capacity_shift": ("capacity-shift",),
    "stability": ("stability",),
    "accuracy": ("accuracy", None),  # every training measures it, too
}
_TRAINING = (None,)


@dataclass(frozen=True)
class Cell:
    """Ours beside the published number.

    Attributes:
        published: what the paper prints; its mean is None in a cell that only we have.
        values: one per seed, in the unit of the table; empty where nothing was run.
        mean, std: of the values; None where there are none, and no std for a single seed.
        verdict: how the two compare.
        notes: what a reader must know, such as missing seeds or a shorter budget.
        failed: runs of this cell that ended in an error.
        place, published_place: 1 for the best of its column, 2 for the second best, 0 for all others.
    """

    published: Published
    values: Mapping[int, float]
    mean: float | None
    std: float | None
    verdict: Verdict
    notes: tuple[str, ...] = ()
    failed: int = 0
    place: int = 0
    published_place: int = 0


def cell(runs: Runs, wanted: Published, ddof: int) -> Cell:
    """Fill one cell with what the database holds."""
    group = runs_of(runs, wanted)
    values = _by_seed(group, wanted)
    failed = sum(matches(run, wanted) for run in runs.failed)
    if not values:
        return Cell(wanted, {}, None, None, Verdict.NOT_RUN, failed=failed)
    mean, std = mean_and_deviation([values[seed] for seed in sorted(values)], ddof)
    outcome = verdict(mean, wanted.mean, wanted.std, wanted.decimals)
    if reduced(group[0]):
        outcome = Verdict.REDUCED
    return Cell(wanted, values, mean, std, outcome, _notes(group, len(values)), failed)


def _by_seed(group: list[Run], wanted: Published) -> dict[int, float]:
    """One number a seed. A key is made of settings and seed, so a seed comes once, or once for each of its folds."""
    found: dict[int, list[Run]] = defaultdict(list)
    for run in group:
        found[run.seed].append(run)
    return {seed: _together(runs, wanted) for seed, runs in found.items()}


def _together(runs: list[Run], wanted: Published) -> float:
    """Folds are pooled: what was lost on all test instances over what could be earned."""
    instances = [kept for run in runs if (kept := run.metrics.get("instances"))]
    if wanted.metric == "normalized_regret_pct" and len(instances) == len(runs) > 1:
        lost, best = (math.fsum(number for one in instances for number in one[what]) for what in ("lost", "best"))
        return 100.0 * lost / best
    return statistics.fmean(number for run in runs if (number := value(run, wanted)) is not None)


def runs_of(runs: Runs, wanted: Published) -> list[Run]:
    """The finished runs that fill a cell, all of the same settings."""
    return _best_group(run for run in runs.done if matches(run, wanted) and value(run, wanted) is not None)


def matches(run: Run, wanted: Published) -> bool:
    """Whether a run is one of a cell's: task, method, what is measured, and every condition."""
    if (run.task, run.method) != (wanted.task, wanted.method):
        return False
    if run.settings.get("variant") not in _VARIANTS.get(wanted.table, _TRAINING):
        return False
    condition = {ours: wanted.condition[name] for name, ours in _OURS.items() if name in wanted.condition}
    if wanted.table == "stability":
        condition = {"degree": 8.0}  # the paper names none; its stress tests are at the highest
    expected: dict[str, Any] = {**_DEFAULTS, **condition}
    if wanted.table in _VERSIONS:
        expected["version"] = _VERSIONS[wanted.table]
    return all(run.settings.get(name, _DEFAULTS.get(name)) == number for name, number in expected.items())


def value(run: Run, wanted: Published) -> float | None:
    """What a run says about a cell, in the unit of the table; None where it says nothing."""
    if wanted.metric == "train_seconds":
        return run.timings.get("total")
    if wanted.table == "direction_shift":
        return _percent(shifted(run).get("cross"))
    if wanted.table == "capacity_shift":
        return _percent(shifted(run).get(f"{wanted.condition['capacity']:g}"))
    if wanted.metric == "mse":
        return run.metrics.get("mse")
    if wanted.table == "stability":
        return _percent(run.metrics.get("active_change_rate"))
    return _percent(run.metrics.get("normalized_regret"))


def shifted(run: Run) -> dict[str, float]:
    """Regret by what was changed after training: ``"forward"`` and ``"cross"``, or capacities such as ``"0.3"``."""
    return dict(run.metrics.get("shift") or {})


def reduced(run: Run) -> bool:
    """Whether the problem is smaller than the paper's, so that the numbers cannot be compared."""
    if run.settings.get("quick"):
        return True
    return any(run.settings.get(name, expected) != expected for name, expected in PAPER.get(run.task, {}).items())


def _percent(share: float | None) -> float | None:
    return None if share is None else 100.0 * share


def _best_group(runs: Iterable[Run]) -> list[Run]:
    """The runs of the same settings, folds aside: the paper's problem first, then most seeds, then most time."""
    groups = defaultdict(list)
    for run in runs:
        shared = {name: setting for name, setting in run.settings.items() if name != "fold"}
        groups[json.dumps(shared, sort_keys=True)].append(run)
    return max(groups.values(), key=_worth, default=[])


def _worth(group: list[Run]) -> tuple[bool, int, float, str]:
    budget = float(group[0].settings.get("time_cap", TIME_CAP))
    return not reduced(group[0]), len(group), budget, max(run.created for run in group)


def _notes(group: list[Run], seeds: int) -> tuple[str, ...]:
    run, notes = group[0], []
    if seeds < SEEDS:
        notes.append(f"{seeds} of {SEEDS} seeds")
    elif seeds > SEEDS:
        notes.append(f"{seeds} seeds, published {SEEDS}")
    if reduced(run):
        return (*notes, "reduced problem")
    if "fold" in run.settings and len(group) < _FOLDS * seeds:
        notes.append(f"{len(group)} of {_FOLDS * seeds} folds")
    if run.task not in PAPER:
        return tuple(notes)
    cap, epochs = run.settings.get("time_cap", TIME_CAP), run.settings.get("max_epochs", MAX_EPOCHS)
    if cap != TIME_CAP:
        notes.append(f"time cap {cap:g} s, published {TIME_CAP:g} s")
    if epochs != MAX_EPOCHS:
        notes.append(f"at most {epochs:,} epochs, published {MAX_EPOCHS:,}")
    return tuple(notes)
