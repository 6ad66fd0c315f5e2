"""``TrainingRun``: the loop over epochs and batches, with its checks and its state."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from pear.losses import PEARLoss
from pear.train.checkpoint import Checkpoint, load_weights
from pear.train.compiled import LinearEpochs
from pear.train.fit_config import FitConfig
from pear.train.flat_regret import FlatRegret
from pear.train.history import Callback, Check, History, Progress, Reason
from pear.train.keyed_loss import KeyedLoss, step_guidance
from pear.train.ranks import Ranks, fingerprint
from pear.train.sample_order import Order
from pear.train.samples import SampleSource
from pear.train.samples.features import call_model
from pear.train.samples.in_memory import MemorySamples, SampleBatch
from pear.train.samples.unusable import masks_failures
from pear.train.training_error import TrainingError
from pear.train.validation import Score, evaluate


@dataclass
class TrainingRun:
    """The training of one model on one loss.

    Attributes:
        config: the settings.
        model: the model.
        loss: the loss.
        train: the training samples.
        validation: the validation samples.
        score: the metric on the validation samples.
        optimizer: the optimizer.
        given: the weights that the model gets back if the run fails before its first check.
        ranks: the processes that train together.
        checkpoint: the file of the run; None before it is opened.
        summed: True where the loss is the sum over the samples of a batch, and not their mean.
        history: the record of the run so far.
        best_weights: the weights of the best check; None before the first check.
        start: the time when the run began, by ``time.perf_counter``.
        counted: the seconds that the loss had counted before the run.
        linear: the compiled epochs; False where they cannot be used, None before that is known.
        schedule: the schedule of the learning rate; None where the rate is constant.
    """

    config: FitConfig
    model: nn.Module
    loss: KeyedLoss
    train: SampleSource
    validation: SampleSource
    score: Score
    optimizer: torch.optim.Optimizer
    given: dict[str, Any]
    ranks: Ranks = field(default_factory=Ranks)
    checkpoint: Checkpoint | None = None
    summed: bool = False
    history: History = field(default_factory=History)
    best_weights: dict[str, Any] | None = None
    start: float = field(default_factory=time.perf_counter)
    counted: dict[str, float] = field(default_factory=dict)
    linear: LinearEpochs | Literal[False] | None = None
    schedule: ReduceLROnPlateau | None = None

    def __post_init__(self) -> None:
        self.flat, self.stopping = FlatRegret(self.loss), self.config.stopping()
        self.counted = dict(getattr(self.loss, "seconds", {}))
        wait = self.config.halve_after
        if wait is not None:
            self.schedule = ReduceLROnPlateau(self.optimizer, factor=0.5, patience=wait, threshold=0.0)
        trained = [*self.model.parameters(), *(one for group in self.optimizer.param_groups for one in group["params"])]
        self.parameters = [one for one in dict.fromkeys(trained) if one.requires_grad]

    def split(self) -> dict[str, float]:
        """Return the seconds of the run by part: those of the loss, "validation" and the "rest"."""
        now = getattr(self.loss, "seconds", {})
        names = dict.fromkeys(("solve", "gradient", *now))
        parts = {name: now.get(name, 0.0) - self.counted.get(name, 0.0) for name in names}
        parts["validation"] = self.history.check_seconds
        return {**parts, "rest": max(0.0, self.history.seconds - sum(parts.values()))}

    def resume(self) -> bool:
        """Restore the checkpoint; False where there is none."""
        state = None if self.checkpoint is None else self.checkpoint.load()
        if state is None:
            return False
        self.history, self.best_weights = state
        self.start -= self.history.checks[-1].seconds if self.history.checks else 0.0
        return True

    def continue_from(self, before: History | None) -> None:
        """Include an earlier run, whose best weights the model has now; they stay until better ones are found."""
        if before is None:
            return
        self.start -= before.seconds
        self.history.before = before
        if before.best is not None:
            self.history.best, self.best_weights = replace(before.best, epoch=0), copy.deepcopy(self.model.state_dict())

    def share(self) -> None:
        """Copy the state of rank 0 to all ranks."""
        checkpoint = self.checkpoint
        if self.ranks.size == 1 or checkpoint is None:
            return

        def content() -> dict[str, Any]:
            history, best = self.history.as_dict(), self.best_weights
            return {"states": checkpoint.states(), "history": history, "best_weights": best}

        said = self.ranks.content_of_rank_0("the state of the run", content)
        if not self.ranks.first:
            checkpoint.restore(said["states"])
            self.history, self.best_weights = History.from_dict(said["history"]), said["best_weights"]

    def seconds(self) -> float:
        """Return the seconds since the start, including an earlier run."""
        return time.perf_counter() - self.start

    def over_time_cap(self) -> bool:
        """Return whether the time cap is reached, by the clock of rank 0."""
        cap = self.config.time_cap
        return cap is not None and bool(self.ranks.meet("the time cap", float(self.seconds() >= cap))[0][0])

    def epochs(self, order: Order, generator: torch.Generator, callbacks: Sequence[Callback]) -> Reason:
        """Train and validate until there is a reason to stop; returns the reason."""
        if self.stopping.waited >= self.stopping.patience:
            return "patience"
        last = self.config.max_epochs
        for epoch in range(self.history.epochs + 1, last + 1):
            loss = self.epoch(epoch, order, generator)
            over_time_cap, out_of_patience = self.over_time_cap(), False
            if over_time_cap or epoch == last or (epoch - 1) % self.config.check_every == 0:
                out_of_patience = self.check(epoch, loss)
            asked = self.call_callbacks(epoch, loss, callbacks)
            if out_of_patience or over_time_cap:
                return "patience" if out_of_patience else "time_cap"
            if asked:
                return "callback"
        return "max_epochs"

    def epoch(self, epoch: int, order: Order, generator: torch.Generator) -> float:
        """Train on every sample once, or until the time is up; returns the mean loss per sample."""
        self.model.train()
        if self.linear is None:
            self.linear = self.compiled()
        if self.linear and isinstance(self.train, MemorySamples):
            rows, at = self.train.rows(order, generator), self.train.at
            total, seen = self.linear.run(rows, lambda some: self.step(at(some)), self.over_time_cap)
            finished = seen == len(rows)
        else:
            total, seen, finished = self.steps(epoch, self.train.epoch(self.config.batch_size, order, generator))
        self.flat.end(epoch, self.linear.flat if self.linear else 0.0, seen, self.ranks)
        if finished:
            self.history.epochs = epoch
        return self.check_finite("loss", total / max(seen, 1), epoch)

    def steps(self, epoch: int, batches: Iterator[SampleBatch]) -> tuple[float, int, bool]:
        """Take one step per batch, until the time is up.

        Args:
            epoch: the number of the epoch.
            batches: of all ranks together.

        Returns:
            The sum of the losses, the number of samples in it, and whether all batches were done.
        """
        total, seen = torch.zeros((), dtype=torch.float64, device=self.train.costs.device), 0
        for number, batch in enumerate(batches):
            # Summed on the device and read once an epoch: no step waits for the one before it.
            total += self.step(batch, f"epoch {epoch}, batch {number}") * len(batch.costs)
            seen += len(batch.costs)
            if self.over_time_cap():
                break
        return float(total), seen, next(batches, None) is None

    def step(self, batch: SampleBatch, what: str = "") -> Tensor:
        """Take one step on these samples; returns their loss.

        Args:
            batch: of all ranks together.
            what: the place in the training, in words, for ``Ranks.meet``.
        """
        self.optimizer.zero_grad()
        part = self.ranks.part_of_batch(batch)
        value, weight = self.gradient(part) if len(part.costs) else self.pause(batch)
        if self.ranks.size > 1 and not isinstance(self.train, MemorySamples):
            what += f" ({fingerprint(batch.costs)})"  # the batches come from elsewhere, on each rank for itself
        value = self.ranks.mean(what, value, weight, self.parameters, self.summed)
        if self.config.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip_norm)
        self.optimizer.step()
        step_guidance(self.loss)
        return value

    def gradient(self, batch: SampleBatch) -> tuple[Tensor, int]:
        """Compute the gradient of the loss; returns its value, and the number of samples that it is the mean of."""
        value = self.loss(call_model(self.model, batch.features), batch.costs, keys=batch.keys)
        self.flat.step()
        value.backward()
        loss, count = self.loss, len(batch.costs)
        if self.ranks.size > 1 and isinstance(loss, PEARLoss) and masks_failures(loss) and loss.last is not None:
            count = int((loss.last.status == 0).sum())
        return value.detach(), count

    def pause(self, batch: SampleBatch) -> tuple[Tensor, int]:
        """The loss and the number of samples of a rank that has no sample of the batch."""
        return torch.zeros((), dtype=batch.costs.dtype, device=batch.costs.device), 0

    def compiled(self) -> LinearEpochs | Literal[False]:
        """The compiled epochs; False where model, loss, optimizer or samples do not allow them."""
        train, parts = self.train, (self.model, self.loss, self.optimizer)
        if self.config.clip_norm is not None or not isinstance(train, MemorySamples) or not train.numbered:
            return False
        if self.ranks.size > 1:
            return False
        if isinstance(train.features, Tensor) and LinearEpochs.supports(*parts, train.features, train.costs):
            return LinearEpochs(*parts, train.features, train.costs, self.config.batch_size)  # type: ignore[arg-type]
        return False

    def check(self, epoch: int, loss: float) -> bool:
        """Validate the model after an epoch, and record the result. The weights are kept if they are the best so far.

        Returns:
            True if the run should stop because its patience has run out.
        """
        began = self.seconds()
        value, seconds, better = self.ranks.from_rank_0(f"the check of epoch {epoch}", self.validate)
        check = Check(epoch, seconds, loss, self.check_finite("validation metric", value, epoch))
        self.history.checks.append(check)
        self.history.check_seconds += check.seconds - began
        if better:
            self.best_weights = copy.deepcopy(self.model.state_dict())
            self.history.best = check
        out_of_patience = self.stopping.update(value)
        if self.schedule is not None:
            self.schedule.step(value)
        if self.checkpoint is not None:
            self.checkpoint.save(self.history, self.best_weights)
        return out_of_patience

    def validate(self) -> tuple[float, float, bool]:
        """Compute the metric; returns it with the time, and whether it is the best so far."""
        value, best = evaluate(self.model, self.validation, self.score), self.history.best
        return value, self.seconds(), best is None or value < self.to_beat(best)

    def to_beat(self, best: Check) -> float:
        """The value that a check must stay below to become the best.

        The weights that the run began with are only replaced by weights that are better by a share of 1/√N, for N
        validation samples. That is about the standard error of a mean of N numbers whose deviation equals their mean.
        """
        doubt = len(self.validation) ** -0.5 if best.epoch == 0 else 0.0
        return best.metric - doubt * abs(best.metric)

    def check_finite(self, what: str, value: float, epoch: int) -> float:
        """Return the value, or raise a ``TrainingError`` where it is not finite.

        Args:
            what: the name of the value, in words.
            value: the loss or the metric.
            epoch: the epoch in which it was computed.
        """
        if not math.isfinite(value):
            first = self.best_weights is None
            kept = "weights that it came with" if first else "best weights of the checks before it"
            raise TrainingError(
                f"the {what} is {value} in epoch {epoch}; lower the learning rate, or look for NaN and infinity in the "
                f"features and costs. The model has the {kept}"
            )
        return value

    def report(self, epoch: int, loss: float) -> Progress:
        """The progress that callbacks get after an epoch with this loss."""
        last = self.history.checks[-1].metric if self.history.checks else math.nan
        best = math.nan if self.history.best is None else self.history.best.metric
        return Progress(epoch, self.config.max_epochs, self.seconds(), loss, last, best)

    def call_callbacks(self, epoch: int, loss: float, callbacks: Sequence[Callback]) -> bool:
        """Call all callbacks on rank 0 after an epoch with this loss; True where one of them ends the run."""

        def tell() -> bool:
            answers = [callback(self.report(epoch, loss)) for callback in callbacks]
            return any(answer is True for answer in answers)

        return self.ranks.from_rank_0(f"the callbacks of epoch {epoch}", tell)

    def restore(self) -> None:
        """Load the best weights or, before the first check, the initial weights."""
        load_weights(self.model, self.given if self.best_weights is None else self.best_weights)
