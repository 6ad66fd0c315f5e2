"""``FitConfig``: the settings of a training run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch

from pear.errors import ProblemError
from pear.setting_checks import check_count_setting, check_number_setting, check_share_setting, is_real_number
from pear.train.early_stopping import EarlyStopping

Mixing = Literal["mean", "each"]
Start = Literal["race", "mse", "standardised", "given"]


@dataclass(frozen=True)
class FitConfig:
    """The settings of ``fit``: how it trains, and when it stops.

    Attributes:
        learning_rate: the learning rate of the Adam optimizer that ``fit`` makes if the user passes no optimizer.
        batch_size: the number of samples in a step; the last batch of an epoch may be smaller.
        max_epochs: the largest number of epochs.
        check_every: the number of epochs from one check of the validation metric to the next.
        patience: the number of checks in a row without a sufficient improvement after which training stops.
        min_improvement: the least sufficient improvement, as a share of the metric at the last sufficient improvement;
            0.01 is 1 %.
        time_cap: the number of seconds after which training stops, even within an epoch; None sets no limit. The time
            of checks counts, and the first check is always made. In ``tune``, all candidates together have this time.
        seed: the seed of the order of the samples, or a generator that draws the order.
        clip_norm: the largest norm of the gradient of all parameters together. A larger gradient is scaled down to this
            norm; None sets no limit.
        halve_after: the learning rate is halved after more than this many checks in a row without a better metric; None
            never halves the rate.
        start: how a run begins if the user passes no optimizer.

            "race": several trainings compete, and the one that decides best on held-out samples wins (``pear.fit``). A
            race does not use ``check_every``, ``patience`` and ``halve_after``. Other starts train on the loss once. If
            the loss has no decision problem, there is no race, and an untrained last layer is rescaled as by
            "standardised".

            "mse": an untrained model is first trained on the squared error. Its weights are then kept unless the
            training on the loss finds weights whose validation metric is lower by a share of 1/√N, for N validation
            samples.

            "standardised": an untrained last layer is rescaled. Its first outputs have the mean of the costs and a
            tenth of their standard deviation. The learning rate of this layer is multiplied by the standard deviation
            of the costs, so that training does not depend on their unit.

            "given": the model begins with the weights that it has.
        gap: in a race, the number of rows before and after the held-out rows that are not trained on. It is needed if
            the costs of neighbouring rows overlap, as sums over several days do.
        data_parallel: whether several ranks of ``torch.distributed``, if there are any, share every batch. All of them
            must then call ``fit``. False trains on this rank alone.
        label_neighbours: k, the number of neighbours that training mixes into the costs of a sample; 0 mixes nothing.
            Training then sees the costs ``w c + (1 − w) m`` instead of the sample's costs c, where m is the mean of the
            costs of the k samples with the nearest features (Schutte, Postek and Yorke-Smith, 2024). Noise in the costs
            then misleads less. Validation always uses the true costs.
        label_own_weight: w, the weight of the sample's costs in the mixture, from 0 to 1.
        label_mixing: "mean" mixes the costs with the mean m of the neighbours' costs. "each" replaces each sample by k
            samples with the costs ``w c + (1 − w) c_j``, one for each neighbour j, whose costs are c_j. An epoch is
            then k times as long. "each" needs samples without ids and a problem that all samples share.
        normalise_costs: whether training scales the costs of every sample to the same norm, so that samples with large
            costs count no more than others. The decisions of a linear objective do not depend on this norm. Validation
            always uses the true costs.

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
        check_number_setting("learning_rate", self.learning_rate, least=0.0)
        for name, least in (("batch_size", 1), ("max_epochs", 1), ("check_every", 1), ("gap", 0)):
            # a frozen instance; whole floats such as 10.0 become integers
            object.__setattr__(self, name, check_count_setting(name, getattr(self, name), least))
        if self.clip_norm is not None and not (is_real_number(self.clip_norm) and self.clip_norm > 0):
            raise ProblemError(f"clip_norm must be a positive number, or None; got {self.clip_norm!r}")
        if self.time_cap is not None and not (is_real_number(self.time_cap) and self.time_cap > 0):
            raise ProblemError(f"time_cap must be a positive number of seconds, or None; got {self.time_cap!r}")
        if self.start not in get_args(Start):
            raise ProblemError(f"start must be one of {', '.join(map(repr, get_args(Start)))}; got {self.start!r}")
        check_count_setting("label_neighbours", self.label_neighbours, least=0)
        check_share_setting("label_own_weight", self.label_own_weight)
        if self.label_mixing not in get_args(Mixing):
            raise ProblemError(f"label_mixing must be 'mean' or 'each'; got {self.label_mixing!r}")
        self.stopping()  # checks patience and min_improvement

    def stopping(self) -> EarlyStopping:
        """Return a new rule of early stopping with these settings."""
        return EarlyStopping(self.patience, self.min_improvement)

    def generator(self) -> torch.Generator:
        """Return the generator that draws the order of the samples."""
        return self.seed if isinstance(self.seed, torch.Generator) else torch.Generator().manual_seed(self.seed)
