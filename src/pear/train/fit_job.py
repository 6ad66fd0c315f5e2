"""``FitJob``: the inputs that all trainings of one call of ``fit`` share."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import nn

from pear.clock import read_clock
from pear.train.checkpoint import CheckpointFile
from pear.train.fit_config import FitConfig
from pear.train.history import Callback
from pear.train.parallel_ranks import ParallelRanks
from pear.train.sample_order import Order
from pear.train.samples.sample_source import SampleSource
from pear.train.unsolved_samples import UnsolvedSamples
from pear.train.validation_score import Score


@dataclass(frozen=True)
class FitJob:
    """The inputs that all trainings of one call of ``fit`` share.

    Attributes:
        model: the model that is trained.
        validation: the validation samples; not used in a race.
        score: the metric on the validation samples; not used in a race.
        config: the settings.
        order: the function that orders the training samples in an epoch.
        callbacks: the functions that are called after every epoch.
        ranks: the processes that train together.
        file: the checkpoint file of the run. Only rank 0 reads and writes it.
        began: the time at which the call began, from ``read_clock``. The time cap counts from here.
        check_seconds: the seconds that one check is expected to take; 0 if that is not known.
        unsolved: the count of samples that were left out because no verified solution was found.
    """

    model: nn.Module
    validation: SampleSource
    score: Score
    config: FitConfig
    order: Order
    callbacks: tuple[Callback, ...]
    ranks: ParallelRanks
    file: CheckpointFile = field(default_factory=CheckpointFile)
    began: float = field(default_factory=read_clock)
    check_seconds: float = 0.0
    unsolved: UnsolvedSamples = field(default_factory=UnsolvedSamples)

    def resumes(self, stage: str) -> bool:
        """Return whether the checkpoint file of rank 0 holds this stage."""
        return self.ranks.from_rank_0("the checkpoint", lambda: self.file.stage == stage)
