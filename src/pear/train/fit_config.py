"""``FitConfig``: the settings of a training run; ``EarlyStopping``: the rule that ends it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch

from pear.errors import ProblemError
from pear.setting_checks import check_count_setting, check_share_setting
from pear.train.early_stopping import EarlyStopping

Mixing = Literal["mean", "each"]
Start = Literal["race", "mse", "standardised", "given"]


@dataclass(frozen=True)
class FitConfig:
    """The settings of ``fit``: how it trains, and when it stops.

    Attributes:
        learning_rate: the learning rate of Adam, which ``fit`` uses unless the user passes an optimizer.
        batch_size: samples per step; the last batch of an epoch may be smaller.
        max_epochs: the largest number of epochs.
        check_every: epochs between checks of the validation metric.
        patience: training stops after this many checks in a row without a sufficient improvement.
        min_improvement: the least sufficient improvement, as a share of the last sufficient metric; 0.01 is 1 %.
        time_cap: seconds after which to stop, even within an epoch; None sets no limit. Checks and judgements count;
            the first of them is always made. In ``tune`` it is the time of all candidates together.
        seed: the seed of the order of the samples, or a generator to draw the order from.
        clip_norm: the largest norm of the gradient over all parameters; a longer one is scaled down. None: no limit.
        halve_after: the learning rate is halved after more than this many checks in a row without a better metric; None
            keeps it.
        start: how a run begins, where ``fit`` makes the optimizer. With "race", several trainings compete, and the one
            that decides best on held-out samples wins (``pear.fit``); ``check_every``, ``patience`` and ``halve_after``
            play no part in it. The others train once. With "mse", a fresh model is trained on the squared error first;
            the resulting weights are kept unless the loss leads to weights that validate better by a share of 1/√N, for
            N validation samples. With "standardised", a fresh last layer is rescaled: its outputs begin at the mean of
            the costs with a tenth of their deviation, and its learning rate is multiplied by the deviation, so that
            training does not depend on the unit of the costs. With "given", the model begins with its own weights.
        gap: in a race, the number of rows before and after held-out rows that are not trained on; for targets that
            overlap, such as sums over several days.
        data_parallel: where ``torch.distributed`` is initialised with several ranks, all of them share every batch, and
            all must call ``fit``. False trains on this rank alone.
        label_neighbours: k; where it is not 0, training sees the costs ``w c + (1 − w) m`` instead of each
            sample's own costs c, where m is the mean of the costs of its k nearest neighbours in the features (Schutte,
            Postek and Yorke-Smith, 2024). Noise in the costs then misleads less. Validation sees the costs themselves.
        label_own_weight: w, from 0 to 1.
        label_mixing: "mean" mixes costs with the mean of the neighbours'. "each" trains on k samples instead of
            one, ``w c + (1 − w) c_j`` for each neighbour j, so that an epoch is k times as long; samples have no ids
            then, and share the problem.
        normalise_costs: whether training sees costs of the same norm for all samples, so that those with large costs
            count no more than others. Decisions of a linear objective do not depend on it. Validation sees the costs
            themselves.

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
    start: Start = "race"
    gap: int = 0
    data_parallel: bool = True
    label_neighbours: int = 0
    label_own_weight: float = 0.5
    label_mixing: Mixing = "mean"
    normalise_costs: bool = False

    def __post_init__(self) -> None:
        for name in ("batch_size", "max_epochs", "check_every"):
            if getattr(self, name) < 1:
                raise ProblemError(f"{name} must be at least 1; got {getattr(self, name)!r}")
        if self.gap < 0:
            raise ProblemError(f"gap must be at least 0; got {self.gap!r}")
        if self.clip_norm is not None and not self.clip_norm > 0:
            raise ProblemError(f"clip_norm must be a positive number, or None; got {self.clip_norm!r}")
        if self.time_cap is not None and not self.time_cap > 0:
            raise ProblemError(f"time_cap must be a positive number of seconds, or None; got {self.time_cap!r}")
        if self.start not in get_args(Start):
            raise ProblemError(f"start must be one of {', '.join(map(repr, get_args(Start)))}; got {self.start!r}")
        check_count_setting("label_neighbours", self.label_neighbours, least=0)
        check_share_setting("label_own_weight", self.label_own_weight)
        if self.label_mixing not in get_args(Mixing):
            raise ProblemError(f"label_mixing must be 'mean' or 'each'; got {self.label_mixing!r}")
        self.stopping()  # checks patience and min_improvement

    def stopping(self) -> EarlyStopping:
        """Make a new rule of early stopping from these settings."""
        return EarlyStopping(self.patience, self.min_improvement)

    def generator(self) -> torch.Generator:
        """Return the generator that the order of the samples is drawn from."""
        return self.seed if isinstance(self.seed, torch.Generator) else torch.Generator().manual_seed(self.seed)
