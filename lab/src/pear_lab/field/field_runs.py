"""The runs of the comparison: all tasks, methods and seeds, with the common budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from pear_lab.experiments.experiment_errors import ExperimentError
from pear_lab.experiments.run_spec import RunSpec, check_known
from pear_lab.field.field_methods import FieldMethod, chosen_field_methods
from pear_lab.field.field_protocol import FieldProtocol
from pear_lab.field.field_tasks import QUICK_TASKS, field_tasks, has_field_task_data
from pear_lab.tasks.public import PUBLIC_TASKS, PublicTask

NAME = "field"
"""The name of the comparison, as in ``pear reproduce field``."""

TITLE = "every method on every public task, one setting of five chosen by validation"

SEEDS, QUICK_SEEDS = tuple(range(10)), (0, 1)
TIME_CAP, QUICK_TIME_CAP = 0.8, 0.5
TRY_SHARE = 0.2
"""The time limit of a try, as a share of the time cap."""

BUDGET: dict[str, Any] = {
    "batch_size": 32, "check_every": 4, "patience": 4, "min_improvement": 0.01, "try_epochs": 5, "max_epochs": 41,
    "learning_rate": 0.03, "most": [100, 100, 400], "clock": "processor",
}  # fmt: skip
"""The settings that all trainings share.

``learning_rate`` is the rate of Adam for methods that do not try several rates. For the last layer it is multiplied by
the standard deviation of the costs, as in ``pear.fit``. ``most`` has the largest numbers of samples for training,
validation and test. ``clock`` says that times are processor time, so that other processes on the machine do not
shorten a training.
"""

QUICK_BUDGET: dict[str, Any] = BUDGET | {"try_epochs": 1, "max_epochs": 2, "check_every": 1, "quick": True}
QUICK_METHODS = ("mse", "spo+", "pfyl", "pear-guided", "pear-default", "pear-fit")


@dataclass(frozen=True)
class FieldSelection:
    """The part of the comparison to run.

    Attributes:
        tasks: the names of the tasks; None for all tasks with data or, if ``quick``, for two tiny tasks.
        methods: the names of the methods; None for all or, if ``quick``, for a few.
        seeds: the seeds; None for ``SEEDS`` or, if ``quick``, for ``QUICK_SEEDS``.
        time_cap: the time limit in seconds for the training of the chosen setting, including its try; None for the
            default.
        quick: whether to run briefly, as a test.
    """

    tasks: Sequence[str] | None = None
    methods: Sequence[str] | None = None
    seeds: Sequence[int] | None = None
    time_cap: float | None = None
    quick: bool = False

    def __post_init__(self) -> None:
        if self.time_cap is not None and not self.time_cap > 0:
            raise ExperimentError(f"the time cap must be a positive number of seconds; got {self.time_cap!r}")
        if any(seed < 0 for seed in self.seeds or ()):
            raise ExperimentError(f"seeds must be whole numbers of at least 0; got {list(self.seeds or ())}")


def expand_field_runs(selection: FieldSelection) -> list[RunSpec]:
    """Return the selected runs, seed by seed, so that a stopped comparison has all methods on fewer seeds.

    Tasks whose data is missing are left out, unless the selection names them.

    Raises:
        ExperimentError: a name of a task or a method is unknown, or there is nothing to run.

    Example:
        >>> runs = expand_field_runs(FieldSelection(["quick-paths"], ["mse", "spo+"], [0], quick=True))
        >>> [str(run) for run in runs]
        ['quick-paths, mse, seed 0', 'quick-paths, spo+, seed 0']
    """
    methods = chosen_field_methods(
        QUICK_METHODS if selection.quick and selection.methods is None else selection.methods
    )
    seeds = selection.seeds if selection.seeds is not None else (QUICK_SEEDS if selection.quick else SEEDS)
    tasks = _tasks_of_field_runs(selection)
    protocol = FieldProtocol()
    return [
        RunSpec(NAME, task.name, row.name, seed, field_run_settings(row, selection), protocol)
        for seed, task, row in product(seeds, tasks, methods)
    ]


def count_field_runs() -> int:
    """Return the number of runs of the full comparison."""
    return len(PUBLIC_TASKS) * len(chosen_field_methods(None)) * len(SEEDS)


def field_run_settings(row: FieldMethod, selection: FieldSelection) -> dict[str, Any]:
    """Return the settings of a method's runs. Together with task, method and seed they determine the result."""
    cap = selection.time_cap or (QUICK_TIME_CAP if selection.quick else TIME_CAP)
    budget = QUICK_BUDGET if selection.quick else BUDGET
    caps = {"time_cap": float(cap), "try_cap": TRY_SHARE * float(cap)}
    return {**budget, **caps, "loss": row.loss, "way": row.way, "tries": [dict(one) for one in row.tries]}


def _tasks_of_field_runs(selection: FieldSelection) -> list[PublicTask]:
    """Return the tasks that the selection names; without names, all tasks with data, or those of ``--quick``."""
    rows = field_tasks()
    if selection.tasks is not None:
        for name in selection.tasks:
            check_known("task", name, rows)
        return [rows[name] for name in dict.fromkeys(selection.tasks)]
    chosen = [task for task in (QUICK_TASKS if selection.quick else PUBLIC_TASKS) if has_field_task_data(task)]
    if not chosen:
        raise ExperimentError("there is no public task yet; name tasks with --tasks, or pass --quick")
    return chosen
