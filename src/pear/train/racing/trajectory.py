"""``Trajectory``: a training whose result is the average of its weights, so that no check has to choose an epoch."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from pear.train.fit_job import FitJob
from pear.train.model_weights import ModelWeightAverage, Weights, load_model_weights
from pear.train.samples.sample_source import SampleSource
from pear.train.training_loss import load_loss_schedule, save_loss_schedule
from pear.train.training_run import TrainingRun


class Trajectory:
    """A training of a copy of the model, whose result is the average of its weights.

    The weights after each step of a training vary around the best weights. The average over the second half of the
    epochs, to which several points of each epoch contribute, is closer to the best weights, and no check has to choose
    an epoch.

    Args:
        job: the model, of which a copy is trained, and the settings.
        loss: the loss, which several trainings may share. Each training keeps its own schedule, by which the guidance
            fades; all use the same warm starts of the samples.
        train: the training samples.
        start: the first weights.
        make_optimizer: a function that makes the optimizer of the copy.
        schedule: the state of the loss before the first epoch, from ``save_loss_schedule``; None stands for its present
            state.

    Attributes:
        epochs: the number of epochs done.
        average: the average weights after the last ``train_to`` that was completed; before that, the first weights.
        finished: whether the last epoch was completed; False if the time cap was reached in the middle of an epoch.
        loss_value: the mean loss of the last epoch; NaN before the first epoch.
        seconds_per_epoch: the mean seconds of an epoch; 0 before the first epoch.
    """

    def __init__(
        self,
        job: FitJob,
        loss: Callable[..., Tensor],
        train: SampleSource,
        start: Weights,
        make_optimizer: Callable[[nn.Module], torch.optim.Optimizer],
        schedule: dict[str, Any] | None = None,
    ) -> None:
        model = copy.deepcopy(job.model)
        load_model_weights(model, start)
        self.run = TrainingRun(replace(job, model=model), loss, train, make_optimizer(model))
        self.loss = loss
        self._schedule = save_loss_schedule(loss) if schedule is None else copy.deepcopy(schedule)
        self.epochs, self.average, self.finished = 0, copy.deepcopy(start), True
        self.loss_value, self.seconds_per_epoch = math.nan, 0.0

    def train_to(self, epochs: int, seconds: float | None, after_epoch: Callable[[int, float], None]) -> None:
        """Continue the training until it has done a number of epochs since its beginning, or the time is over.

        The average is then taken over the epochs of this call, without those in the first half of all epochs since the
        beginning. If the time is over, the average does not change.

        Args:
            epochs: the number of epochs, counted from the beginning of the training.
            seconds: the time in seconds; None for no limit.
            after_epoch: a function that is called with the number and the mean loss of each epoch.
        """
        load_loss_schedule(self.loss, self._schedule)
        self.run.begin(seconds)
        first, mean = self.epochs, ModelWeightAverage()
        for epoch in range(first + 1, epochs + 1):
            counts = epoch > epochs // 2
            self.loss_value = self.run.epoch(epoch, partial(mean.add, self.run.model) if counts else None)
            self.finished = self.run.history.epochs == epoch
            if not self.finished:
                break
            self.epochs = epoch
            if counts and not mean.count:  # the DataLoader has fewer batches than a part of an epoch
                mean.add(self.run.model)
            after_epoch(epoch, self.loss_value)
        if mean.count and self.finished:
            self.average = mean.weights()
        self._schedule = save_loss_schedule(self.loss)
        self.seconds_per_epoch = self.run.seconds() / max(self.epochs - first, 1)

    def train_at_least(self, epochs: int) -> None:
        """Continue the training, without a time limit, until it has done a number of epochs since its beginning."""
        if self.epochs < epochs:
            self.train_to(epochs, None, lambda epoch, loss: None)

    @property
    def last(self) -> Weights:
        """A copy of the weights after the last step."""
        return copy.deepcopy(self.run.model.state_dict())

    def state(self) -> dict[str, Any]:
        """Return everything that the next epoch depends on, by name, except the warm starts of the samples."""
        run = self.run
        return {
            "model": dict(run.model.state_dict()),
            "optimizer": run.optimizer.state_dict(),
            "generator": run.generator.get_state(),
            "schedule": dict(self._schedule),
            "average": self.average,
            "epochs": self.epochs,
            "seconds_per_epoch": self.seconds_per_epoch,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Set the training to a state that ``state`` returned."""
        load_model_weights(self.run.model, state["model"])
        self.run.optimizer.load_state_dict(state["optimizer"])
        self.run.generator.set_state(state["generator"])
        self._schedule, self.average = dict(state["schedule"]), dict(state["average"])
        self.epochs, self.seconds_per_epoch = int(state["epochs"]), float(state["seconds_per_epoch"])
