"""``Trajectory``: a training that averages its weights, so that none of its epochs has to be chosen by a check."""

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
    """A training of a copy of the model, epoch by epoch.

    The last weights of a training jump about the best ones. Their average over the second half of the epochs, taken
    several times an epoch, lies closer to them, and needs no check to choose a lucky moment.

    Args:
        job: the settings; ``job.model`` is copied.
        loss: the loss. Trajectories may share it: each has the schedule of its guidance for itself, and all profit from
            the warm starts of the samples.
        train: the training samples.
        start: the first weights.
        make_optimizer: makes the optimizer of the copied model.
        schedule: the state of the loss at the first epoch, from ``save_loss_schedule``; None takes its state now.

    Attributes:
        epochs: the number of epochs done.
        average: the average weights of the second half of the epochs; the first weights before any epoch.
        finished: False where the time was up within an epoch.
        loss_value: the mean loss of the last epoch; NaN before the first.
        seconds_per_epoch: the mean time of an epoch; 0 before the first.
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
        """Train on until this many epochs are done, or the time is up.

        Args:
            epochs: the number of epochs in total.
            seconds: the time left; None for no limit.
            after_epoch: is called with the number of each epoch and its loss.
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
            if counts and not mean.count:  # a DataLoader with fewer batches than a part has
                mean.add(self.run.model)
            after_epoch(epoch, self.loss_value)
        if mean.count and self.finished:
            self.average = mean.weights()
        self._schedule = save_loss_schedule(self.loss)
        self.seconds_per_epoch = self.run.seconds() / max(self.epochs - first, 1)

    def train_at_least(self, epochs: int) -> None:
        """Train until this many epochs are done, whatever the time."""
        if self.epochs < epochs:
            self.train_to(epochs, None, lambda epoch, loss: None)

    @property
    def last(self) -> Weights:
        """A copy of the weights after the last step."""
        return copy.deepcopy(self.run.model.state_dict())

    def state(self) -> dict[str, Any]:
        """Everything that the next epoch depends on, but for the samples' warm starts."""
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
        """Go on from a result of ``state``."""
        load_model_weights(self.run.model, state["model"])
        self.run.optimizer.load_state_dict(state["optimizer"])
        self.run.generator.set_state(state["generator"])
        self._schedule, self.average = dict(state["schedule"]), dict(state["average"])
        self.epochs, self.seconds_per_epoch = int(state["epochs"]), float(state["seconds_per_epoch"])
