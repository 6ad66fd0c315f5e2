"""``fit``: one training loop for every loss."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from pear.errors import ProblemError
from pear.train.checkpoint import Checkpoint
from pear.train.compiled import LinearEpochs
from pear.train.config import FitConfig
from pear.train.errors import TrainingError
from pear.train.flat import FlatRegret
from pear.train.history import Check, History, Progress, Reason
from pear.train.loss import KeyedLoss, keyed
from pear.train.order import Order, shuffled
from pear.train.rows import unusable_rows
from pear.train.start import is_fresh, make_optimizer
from pear.train.stopping import EarlyStopping

Metric = Callable[[Tensor, Tensor], float]


def fit(
    model: nn.Module,
    loss: Callable[..., Tensor],
    train: tuple[Any, Any],
    validation: tuple[Any, Any],
    metric: Metric,
    config: FitConfig = FitConfig(),
    *,
    optimizer: torch.optim.Optimizer | None = None,
    order: Order = shuffled,
    progress: Callable[[Progress], None] | None = None,
    checkpoint: str | Path | None = None,
) -> History:
    """Train ``model`` in place and leave it with the weights that did best on the validation samples.

    A loss of decisions trains a fresh model on the squared error first (``config.start``), and checks a model that has
    learnt already as it comes. Either way the result validates no worse than what the loss began with.

    The metric is taken after the first epoch, then every ``config.check_every`` epochs, and at the end. Ctrl-C ends
    the run early, with the best weights so far, or, before the first check, those that the model came with. No global
    random state is read or changed, unless the model does it (dropout).

    Args:
        model: maps features (B, p) to predicted costs (B, n).
        loss: called with predicted and true costs; with the samples' row numbers, where it takes ``keys``. Where it has
            a method ``calibrate``, that is called once with all true costs of ``train`` before the first epoch, and not
            when a run resumes: its state is in the checkpoint.
        train: features (N, p) and true costs (N, n): tensors or arrays, converted to the model's dtype and device.
        validation: the same, of samples held out.
        metric: (predicted, true) → float on the whole validation set, lower is better.
        config: how to train and when to stop.
        optimizer: Adam over all parameters, at the config's learning rate, where left out; ``config.start`` says how
            the last layer begins then.
        order: ``shuffled``, ``in_order``, or any function like them.
        progress: called after every epoch.
        checkpoint: a file that is written at every check; where it exists already, the run resumes from it, and ends
            as it would have without the break. The squared error that comes first has one of its own, with ``.mse``
            behind its name.

    Returns:
        What happened, check by check.

    Rows of ``train`` whose features are not finite, and from which the model predicts nothing finite, would make every
    weight NaN. They are refused, or, where the loss says ``on_failure="mask"``, left out with a warning.

    Raises:
        TrainingError: the loss or the metric is not a number; the model is left with its best weights, or, before the
            first check, with those that it came with.
        ProblemError: features of ``train`` are not finite, and the loss does not mask; names the rows.

    Example:
        >>> import pear, torch
        >>> task = pear.tasks.shortest_path((3, 3))
        >>> train, validation, test = task.split(task.samples(200, degree=2))
        >>> model = torch.nn.Linear(5, task.problem.n)
        >>> config = pear.FitConfig(max_epochs=2)
        >>> history = pear.fit(model, torch.nn.MSELoss(), train, validation, task.normalized_regret, config)
        >>> [check.epoch for check in history.checks]
        [1, 2]
    """
    pair, given = _as_pair(model, train, "train"), copy.deepcopy(model.state_dict())
    held_out, left_out = _as_pair(model, validation, "validation"), unusable_rows(model, loss, pair[0])
    before, was_training, decides = None, model.training, hasattr(loss, "problem")
    resuming = checkpoint is not None and Path(checkpoint).exists()
    if config.start == "mse" and optimizer is None and decides and not resuming:
        finite = pair[1].isfinite().all(1) if left_out is None else pair[1].isfinite().all(1) & ~left_out
        some = (pair[0][finite], pair[1][finite])
        before = _squared_error_first(model, some, held_out, metric, config, order, progress, checkpoint)
        model.train(was_training)
        if before.stopped in ("interrupted", "time_cap"):
            return before
    run = _Run(
        config=config,
        model=model,
        loss=keyed(loss),
        train=pair,
        validation=held_out,
        metric=metric,
        optimizer=optimizer or make_optimizer(model, *pair, config, resuming or before is not None, typical=decides),
        stopping=config.stopping(),
        given=given,
        left_out=left_out,
    )
    generator = config.generator()
    try:
        if checkpoint is not None:
            run.checkpoint = Checkpoint(Path(checkpoint), model, run.optimizer, loss, generator)
        if not run.resume():
            run.go_on_from(before)
            if hasattr(loss, "calibrate"):
                loss.calibrate(run.train[1])
        run.history.stopped = run.epochs(order, generator, progress)
    except KeyboardInterrupt:
        run.history.stopped = "interrupted"
    finally:
        run.restore()
        model.train(was_training)
        run.history.seconds = run.seconds()
        run.history.split = run.split()
    return run.history


def _squared_error_first(
    model: nn.Module,
    train: tuple[Tensor, Tensor],
    validation: tuple[Tensor, Tensor],
    metric: Metric,
    config: FitConfig,
    order: Order,
    progress: Callable[[Progress], None] | None,
    checkpoint: str | Path | None,
) -> History:
    """Train on the squared error, unless the model has learnt already; it is left with the best weights.

    Where nobody can tell whether it has, the weights that it came with count as well.
    """
    fresh, given, began = is_fresh(model, *train), copy.deepcopy(model.state_dict()), time.perf_counter()
    history = History(stopped="patience")
    if fresh is not True:
        model.eval()
        try:
            with torch.no_grad():
                value = float(metric(model(validation[0]), validation[1]))
        except KeyboardInterrupt:
            return History(stopped="interrupted")
        history.best = Check(0, time.perf_counter() - began, math.nan, value) if math.isfinite(value) else None
    if fresh is False or not len(train[0]):
        return history
    own = None if checkpoint is None else Path(checkpoint).with_name(Path(checkpoint).name + ".mse")
    config = replace(config, start="standardised")
    found = fit(model, nn.MSELoss(), train, validation, metric, config, order=order, progress=progress, checkpoint=own)
    if history.best is not None and (found.best is None or history.best.metric <= found.best.metric):
        model.load_state_dict(given)
        found.best = history.best
    return found


@dataclass
class _Run:
    """The state of one run."""

    config: FitConfig
    model: nn.Module
    loss: KeyedLoss
    train: tuple[Tensor, Tensor]
    validation: tuple[Tensor, Tensor]
    metric: Metric
    optimizer: torch.optim.Optimizer
    stopping: EarlyStopping
    given: dict[str, Any]
    left_out: Tensor | None
    history: History = field(default_factory=History)
    best_weights: dict[str, Any] | None = None
    start: float = field(default_factory=time.perf_counter)
    counted: dict[str, float] = field(default_factory=dict)
    checkpoint: Checkpoint | None = None
    linear: LinearEpochs | Literal[False] | None = None
    schedule: ReduceLROnPlateau | None = None

    def __post_init__(self) -> None:
        self.flat = FlatRegret(self.loss)
        self.counted = dict(getattr(self.loss, "seconds", {}))
        wait = self.config.halve_after
        if wait is not None:
            self.schedule = ReduceLROnPlateau(self.optimizer, factor=0.5, patience=wait, threshold=0.0)

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
        self.history, self.stopping, self.best_weights = state["history"], state["stopping"], state["best_weights"]
        self.start -= self.history.checks[-1].seconds if self.history.checks else 0.0
        if self.schedule is not None and state.get("schedule"):
            self.schedule.load_state_dict(state["schedule"])
        return True

    def go_on_from(self, before: History | None) -> None:
        """Count a run that came first in; its weights are kept until better ones are found."""
        if before is None:
            return
        self.start -= before.seconds
        self.history.before = before
        if before.best is not None:
            self.history.best, self.best_weights = replace(before.best, epoch=0), copy.deepcopy(self.model.state_dict())

    def seconds(self) -> float:
        return time.perf_counter() - self.start

    def over_time_cap(self) -> bool:
        return self.config.time_cap is not None and self.seconds() >= self.config.time_cap

    def epochs(self, order: Order, generator: torch.Generator, progress: Callable[[Progress], None] | None) -> Reason:
        """Train and check until there is a reason to stop."""
        if self.stopping.waited >= self.stopping.patience:
            return "patience"
        last = self.config.max_epochs
        for epoch in range(self.history.epochs + 1, last + 1):
            rows = order(len(self.train[0]), generator).to(self.train[0].device)
            rows = rows if self.left_out is None else rows[~self.left_out[rows]]
            loss = self.epoch(epoch, rows)
            over_time_cap, out_of_patience = self.over_time_cap(), False
            if over_time_cap or epoch == last or (epoch - 1) % self.config.check_every == 0:
                out_of_patience = self.check(epoch, loss)
            if progress is not None:
                progress(self.report(epoch, loss))
            if out_of_patience or over_time_cap:
                return "patience" if out_of_patience else "time_cap"
        return "max_epochs"

    def epoch(self, epoch: int, rows: Tensor) -> float:
        """One pass over the training samples, or as much of it as the time allows; the mean loss per sample."""
        self.model.train()
        if self.linear is None:
            self.linear = self.compiled()
        if self.linear:
            total, seen = self.linear.run(rows, self.step, self.over_time_cap)
        else:
            total, seen = self.steps(rows)
        self.flat.end(epoch, self.linear.flat if self.linear else 0.0, seen)
        if seen == len(rows):
            self.history.epochs = epoch
        return self.checked("loss", total / max(seen, 1), epoch)

    def steps(self, rows: Tensor) -> tuple[float, int]:
        """One step per batch, until the time is over; the sum of the losses and the samples it is taken over."""
        total, seen = torch.zeros((), dtype=torch.float64, device=rows.device), 0
        for some in rows.split(self.config.batch_size):
            # Summed on the device and read once an epoch: no step waits for the one before it.
            total += self.step(some) * len(some)
            seen += len(some)
            if self.over_time_cap():
                break
        return float(total), seen

    def step(self, rows: Tensor) -> Tensor:
        """One step on the samples ``rows``; their loss."""
        features, costs = self.train
        self.optimizer.zero_grad()
        value = self.loss(self.model(features[rows]), costs[rows], keys=rows)
        self.flat.step()
        value.backward()
        if self.config.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip_norm)
        self.optimizer.step()
        return value.detach()

    def compiled(self) -> LinearEpochs | Literal[False]:
        """Whole epochs in compiled code, where model, loss and optimiser allow it."""
        model, loss, optimizer = self.model, self.loss, self.optimizer
        if self.config.clip_norm is None and LinearEpochs.supports(model, loss, optimizer, *self.train):
            return LinearEpochs(model, loss, optimizer, *self.train, self.config.batch_size)  # type: ignore[arg-type]
        return False

    def check(self, epoch: int, loss: float) -> bool:
        """Take the metric, keep the weights where it is the best so far; True where patience has run out."""
        began = self.seconds()
        self.model.eval()
        features, costs = self.validation
        with torch.no_grad():
            value = self.checked("validation metric", float(self.metric(self.model(features), costs)), epoch)
        check = Check(epoch, self.seconds(), loss, value)
        self.history.checks.append(check)
        self.history.check_seconds += check.seconds - began
        if self.history.best is None or value < self.to_beat(self.history.best):
            self.best_weights = copy.deepcopy(self.model.state_dict())
            self.history.best = check
        out_of_patience = self.stopping.update(value)
        if self.schedule is not None:
            self.schedule.step(value)
        if self.checkpoint is not None:
            kept = {"history": self.history, "stopping": self.stopping, "best_weights": self.best_weights}
            self.checkpoint.save(**kept, schedule=self.schedule.state_dict() if self.schedule is not None else None)
        return out_of_patience

    def to_beat(self, best: Check) -> float:
        """What a check must be lower than to become the best.

        Weights that the run began with stay where few samples say that others are better: by a share of 1/√N at least,
        about the standard error of a mean of N numbers that vary as much as they are large.
        """
        doubt = len(self.validation[0]) ** -0.5 if best.epoch == 0 else 0.0
        return best.metric - doubt * abs(best.metric)

    def checked(self, what: str, value: float, epoch: int) -> float:
        if not math.isfinite(value):
            first = self.best_weights is None
            kept = "weights that it came with" if first else "best weights of the checks before it"
            raise TrainingError(
                f"the {what} is {value} in epoch {epoch}; lower the learning rate, or look for NaN and infinity in the "
                f"features and costs. The model has the {kept}"
            )
        return value

    def report(self, epoch: int, loss: float) -> Progress:
        last = self.history.checks[-1].metric if self.history.checks else math.nan
        best = math.nan if self.history.best is None else self.history.best.metric
        return Progress(epoch, self.config.max_epochs, self.seconds(), loss, last, best)

    def restore(self) -> None:
        """The best weights, or, before the first check, those that the model came with."""
        self.model.load_state_dict(self.given if self.best_weights is None else self.best_weights)


def _as_pair(model: nn.Module, pair: tuple[Any, Any], name: str) -> tuple[Tensor, Tensor]:
    """Features and costs in the dtype and on the device of the model."""
    like = next((p for p in model.parameters() if p.requires_grad), None)
    if like is None:
        raise ProblemError("the model has no parameter to train")
    features, costs = (torch.as_tensor(part).detach().to(like.device, like.dtype) for part in pair)
    if len(features) != len(costs) or not len(features):
        raise ProblemError(
            f"{name} must be features and costs of the same samples, at least one; got {len(features)} rows of "
            f"features and {len(costs)} of costs"
        )
    return features, costs
