"""``race_without_base``: compares the winner of a race of corrections with a model that does without the base."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from pear.train.checkpoint import CheckpointFile
from pear.train.correction import Correction
from pear.train.model_weights import Weights
from pear.train.racing.race import Race
from pear.train.racing.race_folds import RaceFold
from pear.train.racing.race_row import RaceRow
from pear.train.racing.race_start import NetworkRaceStart, choose_race_start
from pear.train.samples.memory_samples import MemorySamples
from pear.train.samples.sample_source import SampleSource
from pear.train.training_loss import load_loss_schedule

ALONE = "model without the base"
"""The name of the contender that does not use the base."""

_COMPLETE = "patience", "max_epochs"  # the reasons to stop of a race that was not ended early


def race_without_base(race: Race, loss: Callable[..., Tensor], train: SampleSource) -> Weights | None:
    """Run a second race, of the correction's network without the base, and let its winner compete in the first race.

    Both races have the same folds, and the base's forecasts of held-out samples in the first race are those of a copy
    that was not fitted to them. The comparison is therefore fair. A row is added to the first race.

    Args:
        race: the first race, after its end. There is no second race if the base may not be left out
            (``Correction.optional``), if the first race had no choice of forecasts, or if it was ended early.
        loss: the loss.
        train: all training samples.

    Returns:
        The weights of the network if the model without the base has won; None if the correction is kept.
    """
    model = race.job.model
    if not (isinstance(model, Correction) and model.optional and isinstance(train, MemorySamples) and train.offsets):
        return None
    if race.progress.stopped not in _COMPLETE or race.loss is None:
        return None
    load_loss_schedule(loss, race.first_schedule)
    job = replace(race.job, model=copy.deepcopy(model.network), file=CheckpointFile())
    start = choose_race_start(job, train.without_offset())
    folds = [_fold_without_base(fold, model) for fold in race.folds]
    other = Race(job, loss, folds, None if race.whole is None else race.whole.without_offset(), start, fresh=True)
    if isinstance(start, NetworkRaceStart):
        start.progress = other.progress
    weights, losses = other.run(), other.winner_losses
    if other.progress.stopped not in _COMPLETE or losses is None:
        race.progress.stopped = other.progress.stopped  # the user, a callback or the time cap has ended it
        return None
    found = losses.difference_from(race.starting)
    row = RaceRow(ALONE, other.epochs, 1.0, losses.metric, found.mean, found.standard_error, found.interval)
    race.rows.append(row)
    race.progress.judging_seconds += other.progress.judging_seconds
    if row != race.winner:
        return None
    race.epochs, race.start.sentence = other.epochs, start.sentence
    return weights


def _fold_without_base(fold: RaceFold, model: Correction) -> RaceFold:
    """Return the same fold for the network of a correction, which then corrects nothing."""
    samples = fold.without_offset()
    return RaceFold(samples.train, samples.corrections, fold.judge.without_offset(model.network))
