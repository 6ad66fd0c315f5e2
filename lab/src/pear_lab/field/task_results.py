"""``TaskResults``: the results of all methods on one task, for common seeds, from the records of the database."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pear_lab.experiments.run_record import RunRecord
from pear_lab.field.field_methods import field_methods
from pear_lab.field.field_protocol import NOT_APPLICABLE
from pear_lab.field.field_runs import NAME
from pear_lab.field.field_tasks import field_tasks
from pear_lab.report.bootstrap import Interval, paired_interval
from pear_lab.tasks.public import PublicTask

NOT_ENDED = "its run has not ended"
"""The reason of a missing run, if other methods have a run of the task and the seed."""

NEAR = 0.1
"""A regret is near the best if it exceeds the best by at most this share."""


@dataclass(frozen=True)
class TaskResults:
    """The results of one task.

    Attributes:
        task: the task.
        seeds: the seeds that are compared, which ``counted_task_seeds`` chooses.
        done: the finished runs of these seeds, by method and seed.
        failed: the reasons of failed and of missing runs, by method and seed.
        incomplete: the number of runs of other seeds, which are not shown.
    """

    task: PublicTask
    seeds: tuple[int, ...]
    done: Mapping[str, Mapping[int, RunRecord]]
    failed: Mapping[str, Mapping[int, str]]
    incomplete: int

    @property
    def methods(self) -> list[str]:
        """The names of the methods with finished runs of all seeds, in the order of ``field_methods``."""
        return [name for name, runs in self.done.items() if len(runs) == len(self.seeds)]

    def regrets(self, method: str) -> np.ndarray:
        """Return the test regret of each finished run of a method, multiplied by ``factor``."""
        return self.factor * np.array([run.metrics["regret"] for run in self._runs(method)])

    def start_regrets(self) -> np.ndarray:
        """Return the test regret of the common start, multiplied by ``factor``, in the order of the seeds."""
        found = {run.seed: run.metrics["start_regret"] for runs in self.done.values() for run in runs.values()}
        return self.factor * np.array([found[seed] for seed in sorted(found)])

    def mean(self, method: str) -> float:
        """Return the mean test regret of a method over the seeds, multiplied by ``factor``."""
        return float(self.regrets(method).mean())

    def seconds(self, method: str) -> float:
        """Return the mean seconds of a method's trainings over the seeds. All tries of a run count."""
        return float(np.mean([run.timings["total"] for run in self._runs(method)]))

    @property
    def factor(self) -> float:
        """100 if the regret is normalised and shown in percent, otherwise 1."""
        return 100.0 if self.task.measure == "normalized" else 1.0

    @cached_property
    def best(self) -> str:
        """The method with the lowest mean test regret."""
        return min(self.methods, key=self.mean)

    @cached_property
    def differences(self) -> dict[str, Interval]:
        """The regret of each method less that of the best method, paired by seed, with its bootstrap interval."""
        return {name: paired_interval(self.regrets(name), self.regrets(self.best)) for name in self.methods}

    def is_shared_best(self, method: str) -> bool:
        """Return whether the method is the best, or the interval of its difference from the best includes zero."""
        return method == self.best or self.differences[method].low <= 0

    def seconds_to_near_best(self) -> dict[str, list[float | None]]:
        """Return, for each method and each seed, the seconds until the validation regret is near the best.

        The best regret for a seed is the lowest one that any method reaches at a check. A regret is near the best if it
        exceeds the best one by at most the share ``NEAR``. If a run never comes near the best, its seconds are None.
        """
        found: dict[str, list[float | None]] = {name: [] for name in self.methods}
        for seed in self.seeds:
            ends = [self.done[name][seed].metrics["validation_regret"] for name in self.methods]
            target = min(ends) + NEAR * abs(min(ends))
            for name in self.methods:
                checks = self.done[name][seed].history
                found[name].append(next((float(check[1]) for check in checks if check[3] <= target), None))
        return found

    def start_kept(self, method: str) -> int:
        """Return the number of seeds in which no check has a lower validation regret than the start."""
        kept = 0
        for run in self._runs(method):
            lowest = min((check[3] for check in run.history if check[0] > 0), default=math.inf)
            kept += bool(run.history) and run.history[0][0] == 0 and run.history[0][3] <= lowest
        return kept

    def _runs(self, method: str) -> list[RunRecord]:
        """Return the finished runs of a method, in the order of the seeds."""
        return [self.done[method][seed] for seed in self.seeds if seed in self.done[method]]


def read_task_results(records: Iterable[RunRecord]) -> list[TaskResults]:
    """Group the records of the comparison by task. Records of ``--quick`` and of earlier settings are ignored.

    Args:
        records: the records of a database, the oldest first.

    Returns:
        The results of each task with a finished method, in the order of the tasks.
    """
    rows, tasks = field_methods(), field_tasks()
    groups: dict[str, dict[str, list[RunRecord]]] = {}
    for record in records:
        known = record.experiment == NAME and record.task in tasks and record.method in rows
        if known and not record.settings.get("quick"):
            groups.setdefault(record.task, {}).setdefault(record.method, []).append(record)
    order = [name for name in rows if any(name in methods for methods in groups.values())]
    found = [_task_results(tasks[name], groups[name], order) for name in tasks if name in groups]
    return [one for one in found if one.methods]


def counted_task_seeds(ended: Mapping[str, frozenset[int]]) -> tuple[int, ...]:
    """Choose the seeds of a task: as many as possible, for as many methods as possible.

    Seeds are sorted by their number of ended runs, the largest first. The candidates are the first seed, the first two
    seeds, the first three and so on. The chosen candidate has the largest product of the number of its seeds and the
    number of methods with all these seeds; among equal products, it has the most seeds. The values of the results have
    no effect on the choice.

    Args:
        ended: by method, the seeds whose runs have finished or failed.

    Example:
        >>> counted_task_seeds({"a": frozenset({0, 1, 2}), "b": frozenset({0, 1}), "c": frozenset()})
        (0, 1)
    """
    every = sorted({seed for seeds in ended.values() for seed in seeds})
    every.sort(key=lambda seed: -sum(seed in seeds for seeds in ended.values()))
    best: tuple[int, ...] = ()
    most = 0
    for count in range(1, len(every) + 1):
        chosen = frozenset(every[:count])
        pairs = count * sum(chosen <= seeds for seeds in ended.values())
        if pairs >= most:
            best, most = tuple(sorted(chosen)), pairs
    return best


def _task_results(task: PublicTask, groups: Mapping[str, list[RunRecord]], order: list[str]) -> TaskResults:
    """Return the results of a task, from the records of each method in ``groups``. ``order`` lists all methods."""
    latest = {name: _latest_task_runs(groups[name]) if name in groups else [] for name in order}
    seeds = counted_task_seeds({name: frozenset(run.seed for run in runs) for name, runs in latest.items()})
    shown = {name: [run for run in runs if run.seed in seeds] for name, runs in latest.items()}
    done = {name: {run.seed: run for run in runs if run.status == "done"} for name, runs in shown.items()}
    failed = {name: {run.seed: run.reason for run in runs if run.status != "done"} for name, runs in shown.items()}
    for name, runs in shown.items():
        failed[name].update(dict.fromkeys(set(seeds) - {run.seed for run in runs}, NOT_ENDED))
    incomplete = sum(run.seed not in seeds for runs in latest.values() for run in runs)
    return TaskResults(task, seeds, done, failed, incomplete)


def _latest_task_runs(runs: list[RunRecord]) -> list[RunRecord]:
    """Return those runs that have the same settings as the newest run."""
    latest = json.dumps(max(runs, key=lambda run: run.created).settings, sort_keys=True)
    return [run for run in runs if json.dumps(run.settings, sort_keys=True) == latest]


def describe_task_failure(reasons: Mapping[int, str], seeds: int) -> str:
    """Return why a method has no result: that it does not apply, or how often it failed, with one of the reasons.

    Example:
        >>> describe_task_failure({0: "does not apply: it is curved", 1: "does not apply: it is curved"}, 2)
        'does not apply: it is curved'
        >>> describe_task_failure({3: "no solution"}, 10)
        'failed in 1 of 10 seeds: no solution'
    """
    first = next(iter(reasons.values()))
    if first.startswith(NOT_APPLICABLE) and len(reasons) == seeds:
        return first
    return f"failed in {len(reasons)} of {seeds} seeds: {first}"
