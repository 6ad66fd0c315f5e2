"""The tasks of the comparison: the public tasks, and two tiny tasks for ``--quick``."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from pear.tasks import random_knapsack, shortest_path
from pear_lab.data.data_files import VARIABLE
from pear_lab.tasks.public import PUBLIC_TASKS, Drawing, PublicTask

_OWN = "Drawn by pear.tasks, for a quick look; not a task of the literature."


def _draw_field_paths(samples: int, seed: int) -> Drawing:
    """Draw shortest paths through a 3×3 grid."""
    task = shortest_path((3, 3))
    return Drawing(task.problem, task.split(task.samples(samples, degree=6, seed=seed)))


def _draw_field_knapsacks(samples: int, seed: int) -> Drawing:
    """Draw knapsacks of eight items in two dimensions."""
    task = random_knapsack(8, 2, 0.5, seed=seed)
    return Drawing(task.problem, task.split(task.samples(samples, degree=6, seed=seed)))


QUICK_TASKS: tuple[PublicTask, ...] = (
    PublicTask("quick-paths", "Paths through a grid of 3 × 3", "pear.tasks", _OWN, partial(_draw_field_paths, 120)),
    PublicTask("quick-knapsacks", "Knapsacks of 8 items", "pear.tasks", _OWN, partial(_draw_field_knapsacks, 120)),
)
"""The tasks of ``--quick``."""


def field_tasks() -> dict[str, PublicTask]:
    """Return all tasks by name, including those of ``--quick``.

    Example:
        >>> list(field_tasks())[-2:]
        ['quick-paths', 'quick-knapsacks']
    """
    return {task.name: task for task in (*PUBLIC_TASKS, *QUICK_TASKS)}


def has_field_task_data(task: PublicTask) -> bool:
    """Return whether the data of a task is under ``$PEAR_DATA``; True if the task reads no data."""
    return task.needs_data is None or (Path(os.environ.get(VARIABLE, "")) / task.needs_data).exists()
