"""``Contender``: a way of training that takes part in a race, with its state in every fold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pear.train.model_weights import Weights
from pear.train.racing.trajectory import Trajectory

PATIENCE = 2
"""A contender leaves after this many stages in a row that do not improve on its best one."""


@dataclass
class Contender:
    """A way of training, with its state in every fold.

    Attributes:
        name: "squared error", "correction" or "fresh model".
        trajectories: the training in each fold.
        best: the lowest value of its stages.
        best_epochs: the number of epochs of that stage.
        best_weights: the average weights of that stage in each fold.
        waited: stages in a row that did not improve.
    """

    name: str
    trajectories: list[Trajectory]
    best: float = math.inf
    best_epochs: int = 0
    best_weights: list[Weights] = field(default_factory=list)
    waited: int = 0

    @property
    def epochs(self) -> int:
        """The number of epochs that all folds have done."""
        return min(one.epochs for one in self.trajectories)

    @property
    def is_out(self) -> bool:
        """Whether further epochs have not helped."""
        return self.waited >= PATIENCE

    @property
    def weights(self) -> list[Weights]:
        """The average weights in each fold."""
        return [one.average for one in self.trajectories]

    def note_stage(self, value: float, least: float) -> None:
        """Note the value of a stage, which counts as better from an improvement by the share ``least`` on."""
        if math.isinf(self.best) or value < self.best - least * abs(self.best):
            self.best, self.best_epochs, self.best_weights, self.waited = value, self.epochs, self.weights, 0
        else:
            self.waited += 1

    def state(self) -> dict[str, Any]:
        """Everything that its next stage depends on."""
        plain = {name: getattr(self, name) for name in ("best", "best_epochs", "best_weights", "waited")}
        return {**plain, "trajectories": [one.state() for one in self.trajectories]}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a result of ``state``."""
        for name in ("best", "best_epochs", "best_weights", "waited"):
            setattr(self, name, state[name])
        for one, said in zip(self.trajectories, state["trajectories"], strict=True):
            one.restore(said)
