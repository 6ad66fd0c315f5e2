"""Estimates of the duration of runs, from similar runs in the database or from a table of rough guesses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from pear_lab.experiments.run_spec import RunSpec

ROUGH_SECONDS: dict[str, dict[str, float]] = {
    "shortest_path": {
        "mse": 2, "spo+": 6, "spo+relaxed": 30, "pfyl": 6, "dbb": 10, "lava": 8, "pear": 30, "pear-guided": 30,
    },
    "building": {"mse": 1, "spo+": 3, "pfyl": 4, "dbb": 4, "lava": 3, "pear": 30, "pear-guided": 6},
    "energy": {"mse": 2, "spo+": 10, "pfyl": 10, "dbb": 20, "lava": 10, "pear": 40, "pear-guided": 8},
    "knapsack": {
        "mse": 90, "spo+": 600, "spo+relaxed": 200, "pfyl": 600, "dbb": 600, "lava": 150, "pear": 150,
        "pear-guided": 150,
    },
    "portfolio": {"mse": 40, "layer": 300, "pear-mean": 300, "pear-exact": 300, "qpth": 400, "cvxpylayers": 600},
}  # fmt: skip
"""Rough seconds of one full training on one core of a small machine, by task and method."""

ROUGH_QUICK_SECONDS = 6.0
ROUGH_MEASURE_SECONDS = {"capacity-shift": 60.0, "stability": 10.0}
ROUGH_OTHER_SECONDS = 2.0

Timing = tuple[str, str, dict[str, Any], dict[str, float]]


class Estimate:
    """An estimate of the seconds that runs will take.

    Args:
        timings: task, method, settings and timings of runs that are done; see ``Database.timings``.

    Example:
        >>> from pear_lab.experiments import Selection, expand
        >>> runs = expand(["lp-degree"], Selection(["shortest_path"], ["mse"], seeds=[0]))
        >>> Estimate([]).seconds(runs[0]), Estimate([]).is_rough(runs)
        (2, True)
        >>> done = ("shortest_path", "mse", runs[0].settings, {"total": 2.5, "test": 0.5})
        >>> Estimate([done]).seconds(runs[0])
        3.0
    """

    def __init__(self, timings: Iterable[Timing]) -> None:
        self._seen: dict[tuple[object, ...], list[float]] = defaultdict(list)
        for task, method, settings, spent in timings:
            self._add(task, method, settings, spent)

    def add(self, run: RunSpec, spent: dict[str, float]) -> None:
        """Add the times of a run that has just ended to the data behind the estimate."""
        self._add(run.task, run.method, run.settings, spent)

    def seconds(self, run: RunSpec) -> float:
        """Estimate the seconds that one run takes on one core.

        The estimate is the mean over finished runs with the same task, method, variant, time cap, number of epochs
        and ``quick``. If some of them have the same degree and capacity, only those count. Without similar runs, the
        estimate is a rough guess.
        """
        for kind in _kinds_of_run(run.task, run.method, run.settings):
            if self._seen[kind]:
                return sum(self._seen[kind]) / len(self._seen[kind])
        return _rough_seconds(run)

    def is_rough(self, runs: Sequence[RunSpec]) -> bool:
        """Return whether the estimate of any of these runs is a rough guess."""
        return any(not self._seen[_kinds_of_run(run.task, run.method, run.settings)[-1]] for run in runs)

    def wall_seconds(self, runs: Sequence[RunSpec], jobs: int) -> float:
        """Estimate the wall time of all runs on ``jobs`` cores, in seconds: at least that of the longest run."""
        each = [self.seconds(run) for run in runs]
        return max([sum(each) / jobs, *each], default=0.0)

    def _add(self, task: str, method: str, settings: dict[str, Any], spent: dict[str, float]) -> None:
        if "total" in spent:
            for kind in _kinds_of_run(task, method, settings):
                self._seen[kind].append(spent["total"] + spent.get("test", 0.0))


def _kinds_of_run(task: str, method: str, settings: dict[str, Any]) -> list[tuple[object, ...]]:
    """Return the keys of the two groups of similar runs that a run belongs to, the narrower group first."""
    broad = (task, method, *(settings.get(name) for name in ("variant", "time_cap", "max_epochs", "quick")))
    return [(*broad, settings.get("degree"), settings.get("capacity")), broad]


def _rough_seconds(run: RunSpec) -> float:
    if run.variant is not None:
        full = ROUGH_MEASURE_SECONDS.get(run.variant, ROUGH_OTHER_SECONDS)
        return ROUGH_OTHER_SECONDS if run.settings.get("quick") else full
    full = ROUGH_QUICK_SECONDS if run.settings.get("quick") else ROUGH_SECONDS.get(run.task, {}).get(run.method, 60.0)
    candidates = max([1, *(len(values) for values in run.settings.get("tuned", {}).values())])
    return min(full, candidates * run.settings["time_cap"])


def duration_in_words(seconds: float) -> str:
    """Return a length of time in words.

    Example:
        >>> duration_in_words(42), duration_in_words(600), duration_in_words(9000)
        ('42 s', '10 min', '2 h 30 min')
    """
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
