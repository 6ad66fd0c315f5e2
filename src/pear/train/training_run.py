"""The state of a training run, and the loop over its epochs."""

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
from pear.train.config import FitConfig
from pear.train.errors import TrainingError
from pear.train.flat import FlatRegret
from pear.train.history import Callback, Check, History, Progress, Reason
from pear.train.keyed_loss import KeyedLoss
from pear.train.order import Order
from pear.train.ranks import Ranks, fingerprint
from pear.train.samples import SampleSource
from pear.train.samples.features import call
from pear.train.samples.in_memory import MemorySamples, SampleBatch
from pear.train.samples.unusable import masks
from pear.train.validation import Score, evaluate


@dataclass
class TrainingRun:
    """The state of one run.

    Attributes:
        config, model, loss, optimizer: what is trained, and how.
        train, validation: the samples; score: what the model is judged by on the second.
        given: the weights that the model came with.
        ranks: who trains with this process; checkpoint: of the run.
        summed: True where the loss adds the samples of a batch up, and does not take their mean.
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
        """Where the time went; what the loss does not count is part of the rest."""
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

    def go_on_from(self, before: History | None) -> None:
        """Count a run that came first in; its weights are kept until better ones are found."""
        if before is None:
            return
        self.start -= before.seconds
        self.history.before = before
        if before.best is not None:
            self.history.best, self.best_weights = replace(before.best, epoch=0), copy.deepcopy(self.model.state_dict())

    def share(self) -> None:
        """Give the state of rank 0 to all ranks."""
        checkpoint = self.checkpoint
        if self.ranks.size == 1 or checkpoint is None:
            return

        def content() -> dict[str, Any]:
            history, best = self.history.as_dict(), self.best_weights
            return {"states": checkpoint.states(), "history": history, "best_weights": best}

        said = self.ranks.copied("the state of the run", content)
        if not self.ranks.first:
            checkpoint.restore(said["states"])
            self.history, self.best_weights = History.from_dict(said["history"]), said["best_weights"]

    def seconds(self) -> float:
        """Since the start, with what came before it."""
        return time.perf_counter() - self.start

    def over_time_cap(self) -> bool:
        """Whether the time is up, by the clock of rank 0."""
        cap = self.config.time_cap
        return cap is not None and self.ranks.once("the time cap", lambda: self.seconds() >= cap)

    def epochs(self, order: Order, generator: torch.Generator, callbacks: Sequence[Callback]) -> Reason:
        """Train and check until there is a reason to stop."""
        if self.stopping.waited >= self.stopping.patience:
            return "patience"
        last = self.config.max_epochs
        for epoch in range(self.history.epochs + 1, last + 1):
            loss = self.epoch(epoch, order, generator)
            over_time_cap, out_of_patience = self.over_time_cap(), False
            if over_time_cap or epoch == last or (epoch - 1) % self.config.check_every == 0:
                out_of_patience = self.check(epoch, loss)
            asked = self.told(epoch, loss, callbacks)
            if out_of_patience or over_time_cap:
                return "patience" if out_of_patience else "time_cap"
            if asked:
                return "callback"
        return "max_epochs"

    def epoch(self, epoch: int, order: Order, generator: torch.Generator) -> float:
        """One pass over the training samples, or as much of it as the time allows; the mean loss per sample."""
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
        return self.checked("loss", total / max(seen, 1), epoch)

    def steps(self, epoch: int, batches: Iterator[SampleBatch]) -> tuple[float, int, bool]:
        """One step per batch, until the time is over.

        Args:
            epoch: its number.
            batches: whole ones, of which each rank takes its part.

        Returns:
            The sum of the losses, the samples it is taken over, and whether all batches were done.
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
        """One step on these samples; their loss.

        Args:
            batch: of all ranks together.
            what: which step it is, the same on all ranks.
        """
        self.optimizer.zero_grad()
        part = self.ranks.part(batch)
        value, weight = self.gradient(part) if len(part.costs) else self.pause(batch)
        if self.ranks.size > 1 and not isinstance(self.train, MemorySamples):
            what += f" ({fingerprint(batch.costs)})"  # the batches come from elsewhere, on each rank for itself
        value = self.ranks.mean(what, value, weight, self.parameters, self.summed)
        if self.config.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip_norm)
        self.optimizer.step()
        return value

    def gradient(self, batch: SampleBatch) -> tuple[Tensor, int]:
        """Take the gradient of the loss of these samples; its value, and how many samples it is the mean of."""
        value = self.loss(call(self.model, batch.features), batch.costs, keys=batch.keys)
        self.flat.step()
        value.backward()
        loss, count = self.loss, len(batch.costs)
        if self.ranks.size > 1 and isinstance(loss, PEARLoss) and masks(loss) and loss.last is not None:
            count = int((loss.last.status == 0).sum())
        return value.detach(), count

    def pause(self, batch: SampleBatch) -> tuple[Tensor, int]:
        """A step of the other ranks, in a batch of fewer samples than ranks: what counts steps here counts it, too."""
        if isinstance(self.loss, PEARLoss):
            self.loss.guided(1)
        return torch.zeros((), dtype=batch.costs.dtype, device=batch.costs.device), 0

    def compiled(self) -> LinearEpochs | Literal[False]:
        """Whole epochs in compiled code, where model, loss and optimiser allow it."""
        train, parts = self.train, (self.model, self.loss, self.optimizer)
        if self.config.clip_norm is not None or not isinstance(train, MemorySamples) or not train.numbered:
            return False
        if self.ranks.size > 1:
            return False
        if isinstance(train.features, Tensor) and LinearEpochs.supports(*parts, train.features, train.costs):
            return LinearEpochs(*parts, train.features, train.costs, self.config.batch_size)  # type: ignore[arg-type]
        return False

    def check(self, epoch: int, loss: float) -> bool:
        """Take the metric, keep the weights where it is the best so far; True where patience has run out."""
        began = self.seconds()
        value, seconds, better = self.ranks.once(f"the check of epoch {epoch}", self.judged)
        check = Check(epoch, seconds, loss, self.checked("validation metric", value, epoch))
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

    def judged(self) -> tuple[float, float, bool]:
        """The metric, the time, and whether it is the best so far."""
        value, best = evaluate(self.model, self.validation, self.score), self.history.best
        return value, self.seconds(), best is None or value < self.to_beat(best)

    def to_beat(self, best: Check) -> float:
        """What a check must be lower than to become the best.

        Weights that the run began with stay where few samples say that others are better: by a share of 1/√N at least,
        about the standard error of a mean of N numbers that vary as much as they are large.
        """
        doubt = len(self.validation) ** -0.5 if best.epoch == 0 else 0.0
        return best.metric - doubt * abs(best.metric)

    def checked(self, what: str, value: float, epoch: int) -> float:
        """The value, which must be finite.

        Args:
            what: it is, for the error; value: of it.
            epoch: in which it came.
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
        """What the callbacks get after an epoch with this loss."""
        last = self.history.checks[-1].metric if self.history.checks else math.nan
        best = math.nan if self.history.best is None else self.history.best.metric
        return Progress(epoch, self.config.max_epochs, self.seconds(), loss, last, best)

    def told(self, epoch: int, loss: float, callbacks: Sequence[Callback]) -> bool:
        """Have rank 0 tell all callbacks of an epoch with this loss; whether one of them says that the run ends."""

        def tell() -> bool:
            answers = [callback(self.report(epoch, loss)) for callback in callbacks]
            return any(answer is True for answer in answers)

        return self.ranks.once(f"the callbacks of epoch {epoch}", tell)

    def restore(self) -> None:
        """The best weights, or, before the first check, those that the model came with."""
        load_weights(self.model, self.given if self.best_weights is None else self.best_weights)
