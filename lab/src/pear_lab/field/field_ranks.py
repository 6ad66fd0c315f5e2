"""``FieldRanks``: the mean ranks of the methods, and the lists of methods and tasks that cannot be ranked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pear_lab.field.field_methods import DEFAULT
from pear_lab.field.rank_statistics import (
    MeanRankStatistics,
    SignTest,
    complete_rank_block,
    mean_rank_statistics,
    sign_test_statistics,
)
from pear_lab.field.task_results import TaskResults

LEAST_METHODS, LEAST_TASKS = 3, 2


@dataclass(frozen=True)
class FieldRanks:
    """The mean ranks of methods. Only tasks on which all ranked methods have a result are counted.

    Attributes:
        found: the ranks; None if there are too few methods or tasks.
        against_default: by method, the sign test against PEAR's defaults; empty if PEAR's defaults are not ranked.
        tasks: the titles of the ranked tasks.
        tasks_left_out: the titles of the other tasks.
        methods_left_out: the names of the methods that are not ranked.
    """

    found: MeanRankStatistics | None
    against_default: Mapping[str, SignTest]
    tasks: tuple[str, ...]
    tasks_left_out: tuple[str, ...]
    methods_left_out: tuple[str, ...]

    @classmethod
    def of(cls, results: Sequence[TaskResults]) -> FieldRanks:
        """Return the ranks of the methods by their mean test regret on each task."""
        by_task = {one.task.name: one for one in results}
        every = list(dict.fromkeys(name for one in results for name in one.done))
        has = {name: frozenset(task for task, one in by_task.items() if name in one.methods) for name in every}
        methods, tasks = complete_rank_block(has, list(by_task))
        enough = len(methods) >= LEAST_METHODS and len(tasks) >= LEAST_TASKS
        values = {name: [by_task[task].mean(name) for task in tasks] for name in methods}
        return cls(
            mean_rank_statistics(values) if enough else None,
            sign_test_statistics(values, DEFAULT) if enough and DEFAULT in methods else {},
            tuple(by_task[task].task.title for task in tasks),
            tuple(one.task.title for task, one in by_task.items() if task not in tasks),
            tuple(name for name in every if name not in methods),
        )
