"""``Contender``: one of the trainings that compete in a race, with its state in every fold."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pear.train.model_weights import Weights
from pear.train.racing.trajectory import Trajectory

PATIENCE = 2
"""A contender is no longer trained after this number of stages in a row that are not better than its best stage."""


@dataclass
class Contender:
    """One of the trainings that compete in a race, with its state in every fold.

    The training proceeds in stages (``contender_stages``). After each stage, its weights are judged on held-out
    samples, which gives the stage a value; lower is better.

    Attributes:
        name: "squared error" for the training of a network whose best weights become the start of the race; for a
            training on the loss the name in its rows (``RaceRow.contender``).
        trajectories: the training in each fold.
        best: the value of the best stage; infinite before the first stage.
        best_epochs: the number of epochs from the beginning to the end of the best stage.
        best_weights: the average weights of the best stage in each fold.
        waited: the number of stages since the best one.
    """

    name: str
    trajectories: list[Trajectory]
    best: float = math.inf
    best_epochs: int = 0
    best_weights: list[Weights] = field(default_factory=list)
    waited: int = 0

    @property
    def epochs(self) -> int:
        """The number of epochs that the training has done in every fold."""
        return min(one.epochs for one in self.trajectories)

    @property
    def is_out(self) -> bool:
        """Whether the contender is no longer trained, because further epochs have not helped."""
        return self.waited >= PATIENCE

    @property
    def weights(self) -> list[Weights]:
        """The average weights of the training in each fold, as in ``Trajectory.average``."""
        return [one.average for one in self.trajectories]

    def note_stage(self, value: float, least: float) -> None:
        """Record the value of a stage.

        The stage becomes the best one if its value is lower than the best value so far, by more than the share
        ``least`` of that best value.

        Args:
            value: for a training on the loss, the bound of its row (``RaceRow.bound``); for a network that is trained
                on the squared error, the metric.
            least: the share.
        """
        if math.isinf(self.best) or value < self.best - least * abs(self.best):
            self.best, self.best_epochs, self.best_weights, self.waited = value, self.epochs, self.weights, 0
        else:
            self.waited += 1

    def state(self) -> dict[str, Any]:
        """Return everything that the next stage depends on, by name."""
        plain = {name: getattr(self, name) for name in ("best", "best_epochs", "best_weights", "waited")}
        return {**plain, "trajectories": [one.state() for one in self.trajectories]}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Set the contender to a state that ``state`` returned."""
        for name in ("best", "best_epochs", "best_weights", "waited"):
            setattr(self, name, state[name])
        for one, said in zip(self.trajectories, state["trajectories"], strict=True):
            one.restore(said)


FIRST_STAGE = 8
"""The number of epochs of the first stage. After each further stage, a training has done twice as many in total."""


def contender_stages(max_epochs: int) -> Iterator[int]:
    """Yield, for each stage, the number of epochs from the beginning of the training to the end of the stage.

    Example:
        >>> list(contender_stages(50))
        [8, 16, 32, 50]
    """
    epochs = FIRST_STAGE
    while epochs < max_epochs:
        yield epochs
        epochs *= 2
    yield max_epochs
