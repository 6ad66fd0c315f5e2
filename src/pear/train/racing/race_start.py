"""``RaceStart``: the way to find the first weights of a race, which is the default training of ``fit`` (``Race``).

A linear model is fitted to the squared error in closed form, by ridge regression. A network is trained on the squared
error with weight decay, for a number of epochs that held-out samples choose. A model that is already trained keeps its
weights.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from torch import nn

from pear.losses.mse import MSELoss
from pear.train.fit_job import FitJob
from pear.train.model_weights import Weights
from pear.train.optimizer import make_optimizer
from pear.train.output_layer import fit_output_layer, standardise_output_layer, trains_output_layer_alone
from pear.train.racing.race_progress import RaceEndedError, RaceProgress
from pear.train.racing.trajectory import Trajectory
from pear.train.samples.memory_samples import MemorySamples
from pear.train.samples.sample_source import SampleSource

DECAY = 0.01
"""The weight decay of a network that is trained on the squared error, as a share of the learning rate."""


class RaceStart(Protocol):
    """A way to find the first weights of a race, for the training samples of any fold.

    Attributes:
        sentence: a sentence that says how the weights were found; "" if the model keeps its weights.
        epochs: the number of epochs on the squared error; 0 for a start without a training.
    """

    sentence: str
    epochs: int

    def weights(self, train: SampleSource) -> Weights:
        """Return the first weights for a training on these samples."""


@dataclass
class GivenRaceStart:
    """A start that keeps the weights that the model has."""

    model: nn.Module
    sentence: str = ""
    epochs: int = 0

    def weights(self, train: SampleSource) -> Weights:
        """Return a copy of the model's weights. The training samples are not used."""
        return copy.deepcopy(self.model.state_dict())


@dataclass
class RidgeRaceStart:
    """A start that fits the last layer, the only trained part of the model, by ridge regression."""

    model: nn.Module
    sentence: str = ""
    epochs: int = 0

    def weights(self, train: SampleSource) -> Weights:
        """Return the weights after the last layer is fitted to these samples in closed form."""
        model, look = copy.deepcopy(self.model), train.finite().look()
        strength = fit_output_layer(model, look.features, look.costs, look.weight)
        self.sentence = f"the model was fitted to the squared error in closed form: ridge of strength {strength:.3g}"
        return model.state_dict()


@dataclass
class NetworkRaceStart:
    """A start that trains all layers of the model on the squared error.

    Attributes:
        job: the untrained model, and the settings.
        progress: the clock of the race, and its reports to callbacks.
        epochs: the number of epochs; 0 before it is chosen.
        sentence: as in ``RaceStart``.
    """

    job: FitJob
    progress: RaceProgress | None = None
    epochs: int = 0
    sentence: str = field(default="", init=False)

    def trajectory(self, train: SampleSource) -> Trajectory:
        """Return a new training of the network on the squared error, on these samples."""
        train = train.finite()
        look = train.look()
        start = standardise_output_layer(self.job.model, look, typical=False)
        optimizer = partial(
            make_optimizer, features=look.features, costs=look.costs, config=self.job.config, keep=True, decay=DECAY
        )
        return Trajectory(self.job, MSELoss(), train, start, optimizer)

    def note_epochs(self, epochs: int) -> None:
        """Set the number of epochs to the one that was best on held-out samples."""
        self.epochs = epochs
        self.sentence = f"the model was trained on the squared error for {epochs} epochs first"

    def weights(self, train: SampleSource) -> Weights:
        """Return the weights after a training on these samples for the chosen number of epochs.

        Raises:
            RaceEndedError: the time cap is reached, or a callback ends the race.
        """
        assert self.progress is not None
        trajectory = self.trajectory(train)
        trajectory.train_to(self.epochs, self.progress.seconds_left(), self.progress.after_epoch)
        if not trajectory.finished:
            raise RaceEndedError("time_cap")
        return trajectory.average


def choose_race_start(job: FitJob, train: SampleSource) -> RaceStart:
    """Return the way to find the first weights: ridge regression for a linear model, a training for a network."""
    look = train.finite().look()
    if isinstance(train, MemorySamples) and trains_output_layer_alone(job.model, look.features, look.costs):
        return RidgeRaceStart(job.model)
    return NetworkRaceStart(job)
