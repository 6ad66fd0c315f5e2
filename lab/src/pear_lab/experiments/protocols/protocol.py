"""``Protocol``: the interface by which the runs of a task are set up, trained and measured."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from pear.losses.methods import METHODS, make_loss, method
from pear.tasks import Task
from pear.train import History, Progress
from pear_lab.experiments.catalogue import TASKS
from pear_lab.experiments.experiment_errors import RunError
from pear_lab.experiments.run_spec import RunSpec, Selection
from pear_lab.tasks import metrics
from pear_lab.tasks.worst_case import worst_case_regret

Listener = Callable[[Progress], None] | None
Say = Callable[[str], None]


@dataclass(frozen=True)
class TrainingResult:
    """A trained model and its history.

    Attributes:
        model: the model with its best weights.
        history: history of its training.
        test: function that returns the metrics on the test samples; a ratio such as 5 % is returned as 0.05.
        histories: histories of all trainings of the run, ``history`` included.
    """

    model: nn.Module
    history: History
    test: Callable[[], dict[str, Any]]
    histories: tuple[History, ...]


class Protocol(ABC):
    """How runs of a task are set up, trained and measured. ``PROTOCOLS`` assigns a protocol to each task."""

    def settings(self, selection: Selection, task: str) -> dict[str, Any]:
        """Return the settings that all trainings of a task share."""
        entry = TASKS[task]
        cap = {"time_cap": float(selection.time_cap)} if selection.time_cap else {}
        return {**entry.problem, **entry.budget, **(entry.quick if selection.quick else {}), **cap}

    def method_settings(self, method: str) -> dict[str, Any]:
        """Return the settings of one method; in this base class, the defaults of its loss.

        The record of a run contains them, because a later version may have other defaults.
        """
        left = {row.name: row.defaults for row in METHODS}.get(method)
        return {"options": left} if left else {}

    def check(self, run: RunSpec, say: Say = lambda line: None) -> None:  # noqa: B027 (synthetic tasks have nothing to read)
        """Read or make what a run needs, so that a missing file is reported before the first run.

        Args:
            run: what is to be trained.
            say: called with one line on what is being done.
        """

    @abstractmethod
    def train(self, run: RunSpec, progress: Listener = None) -> TrainingResult:
        """Do the training that a run specifies.

        Args:
            run: what to train.
            progress: called after every epoch.
        """

    @abstractmethod
    def model(self, run: RunSpec) -> nn.Module:
        """Make a model that the trained weights of a run can be loaded into."""

    def measure(self, run: RunSpec, model: nn.Module) -> dict[str, Any]:
        """Measure a trained model, and return the results. The variant of the run names what is measured.

        Raises:
            RunError: the variant cannot be measured on the task.
        """
        raise RunError(f"{run.variant} cannot be measured on {run.task}")


def make_published_loss(run: RunSpec, task: Task, **options: Any) -> nn.Module:
    """Return the loss of a run with the published settings, which are not adjusted to the unit of the costs.

    Args:
        run: the run. Its method and the options in its settings are used.
        task: the decision task.
        options: further options of the loss, which replace the published ones. They must not be among the options in
            the settings of the run.
    """
    unit = method(run.method).published_unit
    return make_loss(run.method, task, **unit, **run.settings.get("options", {}), **options)


def forecast_scores(task: Task, predicted: Tensor, true: Tensor, ties: bool = True) -> dict[str, Any]:
    """Return the scores of a forecast of linear costs.

    They are the normalised regret, the mean squared error, and the entries of ``RelaxationGap``. Regrets and the
    relaxation gap are shares of the sum of |best value|.

    Args:
        task: the decision task.
        predicted: (B, n) predicted costs.
        true: (B, n) true costs.
        ties: whether to add the regret of the worst decision among those that the forecast rates equally good. It
            needs a task that ``decide_worst`` supports.
    """
    gap = metrics.relaxation_gap_metric(task, predicted, true)
    found = {
        "normalized_regret": metrics.published_regret_metric(task.outcome(predicted, true)),
        "mse": metrics.mse_metric(predicted, true),
        "relaxation_gap": gap.gap,
        "relaxation_share": gap.share,
    }
    if ties:
        found["unambiguous_regret"] = worst_case_regret(task, predicted, true)
    return found
