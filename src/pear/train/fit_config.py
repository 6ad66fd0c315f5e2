"""The settings of a training run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch

from pear.errors import ProblemError
from pear.train.early_stopping import EarlyStopping

Start = Literal["mse", "standardised", "given"]


@dataclass(frozen=True)
class FitConfig:
    """How ``fit`` trains, and when it stops.

    Attributes:
        learning_rate: of the Adam that ``fit`` makes where it is given no optimizer.
        batch_size: samples per step; the last batch of an epoch may be smaller.
        max_epochs: at most so many.
        check_every: epochs between checks of the validation metric.
        patience: stop after so many checks in a row that improve the reference too little.
        min_improvement: how little: 0.01 is 1 % of the reference.
        time_cap: seconds after which to stop, even within an epoch; None sets no limit.
        seed: of the order of the samples, or a generator to draw it from.
        clip_norm: gradients with a longer norm, over all parameters together, are shortened to it; None clips nothing.
        halve_after: halve the learning rate after more than so many checks in a row without a better metric; None keeps
            it.
        start: how a run begins, where ``fit`` makes the optimizer. "standardised": a fresh last layer (as ``nn.Linear``
            draws it, and no better than the mean of the costs) begins at that mean with a tenth of the costs'
            deviation, and its learning rate is multiplied by the deviation, so that a model learns alike in any unit.
            "mse": such a model is trained on the squared error first, by the same rules, and those weights are kept
            unless the loss leads to ones that are better by a share of 1/√N, N validation samples. "given": the model
            begins as it comes.
        data_parallel: where ``torch.distributed`` is initialised with several ranks, all of them share every batch, and
            all must call ``fit``. False trains on this rank alone.

    Raises:
        ProblemError: a setting is out of its range.

    Example:
        >>> FitConfig(max_epochs=5, time_cap=60.0).batch_size
        32
    """

    learning_rate: float = 1e-2
    batch_size: int = 32
    max_epochs: int = 10_000
    check_every: int = 10
    patience: int = 10
    min_improvement: float = 0.01
    time_cap: float | None = None
    seed: int | torch.Generator = 0
    clip_norm: float | None = None
    halve_after: int | None = None
    start: Start = "mse"
    data_parallel: bool = True

    def __post_init__(self) -> None:
        for name in ("batch_size", "max_epochs", "check_every"):
            if getattr(self, name) < 1:
                raise ProblemError(f"{name} must be at least 1; got {getattr(self, name)!r}")
        if self.clip_norm is not None and not self.clip_norm > 0:
            raise ProblemError(f"clip_norm must be a positive number, or None; got {self.clip_norm!r}")
        if self.time_cap is not None and not self.time_cap > 0:
            raise ProblemError(f"time_cap must be a positive number of seconds, or None; got {self.time_cap!r}")
        if self.start not in get_args(Start):
            raise ProblemError(f"start must be one of {', '.join(map(repr, get_args(Start)))}; got {self.start!r}")
        self.stopping()  # which checks patience and min_improvement

    def stopping(self) -> EarlyStopping:
        """A fresh rule of early stopping."""
        return EarlyStopping(self.patience, self.min_improvement)

    def generator(self) -> torch.Generator:
        """The generator that the order of the samples is drawn from."""
        return self.seed if isinstance(self.seed, torch.Generator) else torch.Generator().manual_seed(self.seed)
