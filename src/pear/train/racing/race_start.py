"""The starts of a race: the best model by the squared error that is known for an architecture, or a model as it came.

A linear model is fitted in closed form, by ridge regression. A network is trained on the squared error with weight
decay; held-out samples choose the number of epochs. A model that has learnt already is taken as it is.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Protocol

from torch import nn, optim

from pear.losses.mse import MSELoss
from pear.train.fit_job import FitJob
from pear.train.model_weights import Weights
from pear.train.optimizer import make_optimizer
from pear.train.output_layer import fit_output_layer, standardise_output_layer
from pear.train.racing.race_progress import RaceEndedError, RaceProgress
from pear.train.racing.trajectory import Trajectory
from pear.train.samples.sample_source import SampleSource

DECAY = 0.01
"""The weight decay of a network that is trained on the squared error: of each step's size, the share by which weights
shrink."""


class RaceStart(Protocol):
    """The first weights of a training, for any part of the samples.

    Attributes:
        sentence: says how the weights were found.
    """

    sentence: str

    def weights(self, train: SampleSource) -> Weights:
        """Return the first weights of a training on these samples."""


@dataclass
class GivenRaceStart:
    """The weights that the model came with."""

    model: nn.Module
    sentence: str = ""

    def weights(self, train: SampleSource) -> Weights:
        """Return a copy of the model's weights."""
        return copy.deepcopy(self.model.state_dict())


@dataclass
class RidgeRaceStart:
    """A ridge regression instead of the last layer, which is all that the model trains."""

    model: nn.Module
    sentence: str = ""

    def weights(self, train: SampleSource) -> Weights:
        """Fit the last layer to these samples in closed form."""
        model, look = copy.deepcopy(self.model), train.finite().look()
        strength = fit_output_layer(model, look.features, look.costs, look.weight)
        self.sentence = f"the model was fitted to the squared error in closed form: ridge of strength {strength:.3g}"
        return model.state_dict()


@dataclass
class NetworkRaceStart:
    """A training of all layers on the squared error.

    Attributes:
        job: the model, fresh, and the settings.
        progress: the clock and the reports of the race.
        epochs: the number of epochs, once it is chosen.
    """

    job: FitJob
    progress: RaceProgress | None = None
    epochs: int = 0
    sentence: str = field(default="", init=False)

    def trajectory(self, train: SampleSource) -> Trajectory:
        """Begin a training on these samples."""
        train = train.finite()
        look, config = train.look(), self.job.config
        start = standardise_output_layer(self.job.model, look, typical=False)

        def optimizer(model: nn.Module) -> optim.Optimizer:
            return make_optimizer(model, look.features, look.costs, config, keep=True, decay=DECAY)

        return Trajectory(self.job, MSELoss(), train, start, optimizer)

    def note_epochs(self, epochs: int) -> None:
        """Note the number of epochs that is best on held-out samples."""
        self.epochs = epochs
        self.sentence = f"the model was trained on the squared error for {epochs} epochs first"

    def weights(self, train: SampleSource) -> Weights:
        """Train on these samples for the chosen number of epochs."""
        assert self.progress is not None
        trajectory = self.trajectory(train)
        trajectory.train_to(self.epochs, self.progress.seconds_left(), self.progress.after_epoch)
        if not trajectory.finished:
            raise RaceEndedError("time_cap")
        return trajectory.average
