"""``TrainingRun``: one training of a model on one loss, from the first weights to the best weights."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from pear.clock import read_clock
from pear.errors import SolveError, TrainingError
from pear.losses import PEARLoss
from pear.train.checkpoint import Checkpoint
from pear.train.compiled import LinearEpochs
from pear.train.fit_job import FitJob
from pear.train.flat_regret import FlatRegret
from pear.train.history import Check, History, Progress, Reason, split_history_seconds
from pear.train.model_weights import load_model_weights
from pear.train.optimizer import STANDARDISED, make_optimizer
from pear.train.run_identity import identity_digest
from pear.train.samples.features import call_on_features
from pear.train.samples.memory_samples import MemorySamples
from pear.train.samples.sample_batch import SampleBatch, join_batch_keys
from pear.train.samples.sample_source import SampleSource
from pear.train.samples.usable_samples import masks_unusable_samples
from pear.train.training_loss import (
    calibrate_training_loss,
    call_training_loss,
    loss_with_keys,
    step_training_loss,
    training_loss_seconds,
)
from pear.train.validation_score import score_on_validation
from pear.train.validation_time import seconds_left_to_validate, validate_in_time

PARTS = 8
"""The number of parts of an epoch; a training that averages its weights adds them to the average after each part."""


def run_training_on_loss(
    job: FitJob,
    loss: Callable[..., Tensor],
    train: SampleSource,
    optimizer: torch.optim.Optimizer | None,
    stage: str,
    given: dict[str, Any],
    before: History | None,
) -> History:
    """Train the model of a job on one loss, leave the model with its best weights, and return the history.

    Args:
        job: the model, the validation samples, the settings and the callbacks.
        loss: the loss that is minimised.
        train: the training samples.
        optimizer: the optimizer of the user, or None for the result of ``make_optimizer``.
        stage: the name of this training in the checkpoint file. If the file holds this stage, the training resumes.
        given: the weights that the model gets if the training ends before its first check.
        before: the history of a first training on the squared error, or None.
    """
    model, look, was_training = job.model, train.finite().look(), job.model.training
    start = "" if before is None else before.start
    if optimizer is None:
        keep, decides = before is not None or job.resumes(stage), hasattr(loss, "problem")
        weights = [parameter.detach().clone() for parameter in model.parameters()]
        optimizer = make_optimizer(model, look.features, look.costs, job.config, keep, typical=decides)
        if not all(map(torch.equal, weights, model.parameters())):
            start = STANDARDISED
    run = TrainingRun(job, loss, train, optimizer)
    try:
        run.start(stage, before, start)
        run.history.stopped = run.epochs()
    except KeyboardInterrupt:
        run.history.stopped = "interrupted"
    finally:
        load_model_weights(model, given if run.best_weights is None else run.best_weights)
        model.train(was_training)
        run.history.seconds = run.seconds()
        run.history.split = split_history_seconds(run.history, run.loss_seconds, training_loss_seconds(loss))
    return run.history


class TrainingRun:
    """One training of a model on one loss.

    Args:
        job: the model, the validation samples, the settings and the callbacks.
        loss: the loss that is minimised.
        train: the training samples.
        optimizer: the optimizer of the model.

    Attributes:
        history: the record of the run so far.
        best_weights: the weights of the best check; None before the first check.
        schedule: the schedule that halves the learning rate; None if the rate is constant.
        linear: the epochs in compiled code; False if they do not support this training, None before that is known.
    """

    def __init__(
        self, job: FitJob, loss: Callable[..., Tensor], train: SampleSource, optimizer: torch.optim.Optimizer
    ) -> None:
        self.job, self.model, self.config, self.ranks = job, job.model, job.config, job.ranks
        self.loss, self.train, self.optimizer, self.flat = loss, train, optimizer, FlatRegret(loss)
        self.keyed_loss, self.loss_is_sum = loss_with_keys(loss), getattr(loss, "reduction", "mean") == "sum"
        self.generator, self.stopping = self.config.generator(), self.config.stopping()
        self.schedule: ReduceLROnPlateau | None = None
        if (wait := self.config.halve_after) is not None:
            self.schedule = ReduceLROnPlateau(optimizer, factor=0.5, patience=wait, threshold=0.0)
        trained = [*self.model.parameters(), *(one for group in optimizer.param_groups for one in group["params"])]
        self.parameters = [one for one in dict.fromkeys(trained) if one.requires_grad]
        self.history = History()
        self.best_weights: dict[str, Any] | None = None
        self.linear: LinearEpochs | Literal[False] | None = None
        self._began, self._check_seconds = job.began, job.check_seconds
        self.loss_seconds = training_loss_seconds(loss)  # before the run

    def start(self, stage: str, before: History | None, start: str) -> None:
        """Resume the run from its checkpoint. If the file does not hold this stage, calibrate the loss for a new run.

        Args:
            stage: the name of this training in the checkpoint file.
            before: the history of a first training on the squared error, or None. The model has the best weights of
                that training, and keeps them until a check finds better weights.
            start: the sentence for ``History.start``.
        """
        states = (self.model, self.optimizer, self.loss, self.generator, self.stopping, self.schedule)
        self.checkpoint = Checkpoint(self.job.file, stage, *states)
        if not self.ranks.from_rank_0("the checkpoint's content", self._resume):
            self.history.before, self.history.start = before, start
            if before is not None:
                self._began = min(self._began, read_clock() - before.seconds)
            if before is not None and before.best is not None:
                self.history.best = replace(before.best, epoch=0)
                self.best_weights = copy.deepcopy(self.model.state_dict())
            calibrate_training_loss(self.loss, self.train)
        if self.ranks.size > 1:
            self._copy_from_rank_0()

    def _resume(self) -> bool:
        """Restore the checkpoint, and return whether the file holds this stage."""
        state = self.checkpoint.load()
        if state is None:
            return False
        self.history, self.best_weights = state
        self.job.unsolved.count = self.history.left_out
        if self.history.checks:
            self._began -= self.history.checks[-1].seconds
            self._check_seconds = self.history.check_seconds / len(self.history.checks)
        return True

    def _copy_from_rank_0(self) -> None:
        """Copy the state of the run from rank 0 to all ranks."""

        def content() -> dict[str, Any]:
            """Return the state of this run as values that a file can hold."""
            history, best = self.history.as_dict(), self.best_weights
            return {"states": self.checkpoint.states(), "history": history, "best_weights": best}

        said = self.ranks.content_of_rank_0("the state of the run", content)
        if not self.ranks.first:
            self.checkpoint.restore(said["states"])
            self.history, self.best_weights = History.from_dict(said["history"]), said["best_weights"]

    def begin(self, time_cap: float | None) -> None:
        """Set the clock of the run to 0 and the time cap to this number of seconds; None sets no limit."""
        self._began, self.config = read_clock(), replace(self.config, time_cap=time_cap)

    def seconds(self) -> float:
        """Return the seconds since ``fit`` or ``begin`` was called, plus those of the run before an interruption."""
        return read_clock() - self._began

    def over_time_cap(self) -> bool:
        """Return whether no more than the time of one check is left until the time cap, by the clock of rank 0."""
        cap = self.config.time_cap
        if cap is None:
            return False
        return bool(self.ranks.meet("the time cap", float(self.seconds() + self._check_seconds >= cap))[0][0])

    def epochs(self) -> Reason:
        """Train and validate until there is a reason to stop, and return the reason."""
        if self.stopping.waited >= self.stopping.patience:
            return "patience"
        last = self.config.max_epochs
        for epoch in range(self.history.epochs + 1, last + 1):
            loss = self.epoch(epoch)
            over_time_cap, out_of_patience = self.over_time_cap(), False
            if over_time_cap or epoch == last or (epoch - 1) % self.config.check_every == 0:
                out_of_patience = self.check(epoch, loss)
                over_time_cap = over_time_cap or self.over_time_cap()  # there is no time for another check
            asked = self._call_callbacks(epoch, loss)
            if out_of_patience or over_time_cap:
                return "patience" if out_of_patience else "time_cap"
            if asked:
                return "callback"
        return "max_epochs"

    def epoch(self, epoch: int, after_part: Callable[[], None] | None = None) -> float:
        """Train on every sample once, or until the time cap is reached.

        Args:
            epoch: the number of the epoch, from 1.
            after_part: a function that is called after each of several equal parts of the epoch (``PARTS``), or None.

        Returns:
            The mean loss per sample.
        """
        self.model.train()
        if self.linear is None:
            self.linear = self._compiled_epochs()
        if self.linear and isinstance(self.train, MemorySamples):
            rows, at = self.train.rows(self.job.order, self.generator), self.train.at
            total, seen, flat = 0.0, 0, 0.0
            size = self._batches_in_part(len(rows)) * self.config.batch_size if after_part else max(len(rows), 1)
            for part in rows.split(size):
                found, count = self.linear.run(part, lambda some: self.step(at(some)), self.over_time_cap)
                total, seen, flat = total + found, seen + count, flat + self.linear.flat
                if count < len(part):
                    break
                if after_part:
                    after_part()
            finished = seen == len(rows)
        else:
            batches = self.train.epoch(self.config.batch_size, self.job.order, self.generator)
            flat, (total, seen, finished) = 0.0, self.steps(epoch, batches, after_part)
        self.flat.end(epoch, flat, seen, self.ranks)
        if finished:
            self.history.epochs = epoch
        return self._check_finite("loss", total / max(seen, 1), epoch)

    def _batches_in_part(self, samples: int) -> int:
        """Return the number of batches in each part of an epoch with this number of samples."""
        return max(1, -(-samples // (self.config.batch_size * PARTS)))

    def steps(
        self, epoch: int, batches: Iterator[SampleBatch], after_part: Callable[[], None] | None
    ) -> tuple[float, int, bool]:
        """Take a step for each batch, until the time cap is reached.

        Args:
            epoch: the number of the epoch.
            batches: the batches of the epoch, before they are split over the ranks.
            after_part: as in ``epoch``.

        Returns:
            Three values: the sum of the losses of all samples seen, the number of these samples, and whether all
            batches were done.
        """
        total, seen = torch.zeros((), dtype=torch.float64, device=self.train.costs.device), 0
        part = self._batches_in_part(len(self.train))
        for number, batch in enumerate(batches):
            # the sum stays on the device and is read once an epoch, so that no step waits for the step before it
            total += self.step(batch, f"epoch {epoch}, batch {number}") * len(batch.costs)
            seen += len(batch.costs)
            if self.over_time_cap():
                break
            if after_part and (number + 1) % part == 0:
                after_part()
        return float(total), seen, next(batches, None) is None

    def step(self, batch: SampleBatch, place: str = "") -> Tensor:
        """Take one step of the optimizer on a batch, and return the loss of the batch.

        Args:
            batch: the batch, before it is split over the ranks.
            place: the place in the training, in words, for ``ParallelRanks.meet``.
        """
        self.optimizer.zero_grad()
        part = self.ranks.part_of_batch(batch)
        value, weight = self._gradient(part) if len(part.costs) else (batch.costs.new_zeros(()), 0)
        if self.ranks.size > 1 and not isinstance(self.train, MemorySamples):
            place += f" ({identity_digest(batch.costs)})"  # every rank reads the batches itself: they may differ
        value = self.ranks.mean(place, value, weight, self.parameters, self.loss_is_sum)
        if self.config.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip_norm)
        self.optimizer.step()
        step_training_loss(self.loss)
        return value

    def _gradient(self, batch: SampleBatch) -> tuple[Tensor, int]:
        """Compute the gradient of the loss of a batch, in the ``grad`` of the parameters.

        Returns:
            Two values: the loss, and the number of samples over which it is the mean. With several ranks, failed
            samples are not counted if the loss masks them.
        """
        try:
            value = call_training_loss(
                self.keyed_loss, call_on_features(self.model, batch.features), batch, self.loss_is_sum
            )
        except SolveError as error:
            count, keys = len(batch.costs), None if batch.keys is None else join_batch_keys([batch.keys])
            rest = self.job.unsolved.solved_rows(self.loss, error, count, keys)
            self.history.left_out = self.job.unsolved.count
            return self._gradient(batch.only(rest)) if len(rest) else (batch.costs.new_zeros(()), 0)
        self.flat.step()
        value.backward()
        loss, count = self.loss, len(batch.costs)
        if (
            self.ranks.size > 1
            and isinstance(loss, PEARLoss)
            and masks_unusable_samples(loss)
            and loss.last is not None
        ):
            count = int((loss.last.status == 0).sum())
        return value.detach(), count

    def _compiled_epochs(self) -> LinearEpochs | Literal[False]:
        """Return the epochs in compiled code; False if they do not support this training, for example several ranks."""
        train, parts = self.train, (self.model, self.loss, self.optimizer)
        if self.ranks.size > 1 or self.config.clip_norm is not None:
            return False
        if not isinstance(train, MemorySamples) or not train.numbered or train.weight is not None:
            return False
        if not isinstance(train.features, Tensor) or not LinearEpochs.supports(*parts, train.features, train.costs):
            return False
        return LinearEpochs(*parts, train.features, train.costs, self.config.batch_size)  # type: ignore[arg-type]

    def check(self, epoch: int, loss: float) -> bool:
        """Validate the model after an epoch with the mean ``loss``, record the check, and keep the best weights.

        If a time cap ends the search of integer programs during a check, nothing is recorded. The first check has no
        time cap.

        Returns:
            Whether early stopping ends the run.
        """
        began = self.seconds()
        found = self.ranks.from_rank_0(f"the check of epoch {epoch}", self._validate)
        if found is None:
            return False
        value, seconds, better = found
        check = Check(epoch, seconds, loss, self._check_finite("validation metric", value, epoch))
        self.history.checks.append(check)
        self.history.check_seconds += check.seconds - began
        self._check_seconds = max(self._check_seconds, check.seconds - began)
        if better:
            self.best_weights = copy.deepcopy(self.model.state_dict())
            self.history.best = check
        out_of_patience = self.stopping.update(value)
        if self.schedule is not None:
            self.schedule.step(value)
        self.checkpoint.save(self.history, self.best_weights)
        return out_of_patience

    def _validate(self) -> tuple[float, float, bool] | None:
        """Compute the metric of the present weights, and compare it with the best one.

        As long as the best weights are those from before the first step, other weights must be clearly better: their
        metric must be lower by a share of 1/√N, for N validation samples. That is about the relative standard error of
        a mean of N numbers whose standard deviation equals their mean.

        Returns:
            Three values: the metric, the seconds of the run at the end of the check, and whether the weights are the
            best so far. If the time cap has ended the check, the result is None.
        """
        best = self.history.best
        left = None if self.best_weights is None else seconds_left_to_validate(self.config.time_cap, self.seconds())
        value = validate_in_time(left, lambda: score_on_validation(self.model, self.job.validation, self.job.score))
        if value is None or best is None:
            return None if value is None else (value, self.seconds(), True)
        share = len(self.job.validation) ** -0.5 if best.epoch == 0 else 0.0
        return value, self.seconds(), value < best.metric - share * abs(best.metric)

    def _check_finite(self, what: str, value: float, epoch: int) -> float:
        """Return the value unchanged, and raise TrainingError if it is not finite.

        Args:
            what: "loss" or "validation metric", the name of the value.
            value: the value.
            epoch: the number of the epoch.
        """
        if not math.isfinite(value):
            first = self.best_weights is None
            kept = "weights that it came with" if first else "best weights of the checks before it"
            raise TrainingError(
                f"the {what} is {value} in epoch {epoch}; lower the learning rate, or look for NaN and infinity in the "
                f"features and costs. The model has the {kept}"
            )
        return value

    def _call_callbacks(self, epoch: int, loss: float) -> bool:
        """Call all callbacks on rank 0 after an epoch with this mean loss; return whether one of them ends the run."""

        def call_all() -> bool:
            """Call all callbacks, and return whether one of them returns True."""
            last = self.history.checks[-1].metric if self.history.checks else math.nan
            best = math.nan if self.history.best is None else self.history.best.metric
            now = Progress(epoch, self.config.max_epochs, self.seconds(), loss, last, best)
            answers = [callback(now) for callback in self.job.callbacks]
            return any(answer is True for answer in answers)

        return self.ranks.from_rank_0(f"the callbacks of epoch {epoch}", call_all)
