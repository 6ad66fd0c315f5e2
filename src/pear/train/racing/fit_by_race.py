"""``fit_by_race``: trains a model by a race between a fit to the squared error and trainings on the loss."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from pear.losses.mse import MSELoss
from pear.train.correction import Correction
from pear.train.fit_job import FitJob
from pear.train.history import History
from pear.train.model_weights import load_model_weights
from pear.train.output_layer import has_fresh_output_layer
from pear.train.racing.feature_units import FeatureUnits
from pear.train.racing.race import Race
from pear.train.racing.race_checkpoint import STAGE
from pear.train.racing.race_folds import FOLD_SHARE, decides_better_than_constant, make_race_folds
from pear.train.racing.race_history import write_race_history
from pear.train.racing.race_samples import has_time_for_nested_copies
from pear.train.racing.race_start import GivenRaceStart, NetworkRaceStart, choose_race_start
from pear.train.racing.race_without_base import race_without_base
from pear.train.samples.loader_samples import LoaderSamples
from pear.train.samples.memory_samples import MemorySamples
from pear.train.samples.sample_source import SampleSource
from pear.train.samples.stream_samples import StreamSamples
from pear.train.training_labels import training_labels
from pear.train.training_loss import calibrate_training_loss, training_loss_seconds
from pear.train.validation_score import Score


def fit_by_race(
    job: FitJob,
    loss: Callable[..., Tensor],
    train: SampleSource,
    validation: SampleSource | float | None,
    score: Score | None,
) -> History:
    """Train a model by a race, and leave the model with the weights of the winner.

    Args:
        job: the model, the settings and the callbacks. Its validation samples and its score are not used.
        loss: the loss.
        train: the training samples.
        validation: the samples to judge by; the share of ``train`` to hold out; or None for a cross-validation. If
            samples are held out of ``train``, the winner is trained again on all samples.
        score: the metric of the user; None for the regret.
    """
    ended = _load_ended_race(job)
    if ended is not None:
        return ended
    labelled = training_labels(train, job.config, job.model)
    calibrate_training_loss(loss, labelled)
    counted, model = training_loss_seconds(loss), job.model
    look = labelled.finite().look()
    fresh = False if isinstance(model, Correction) else has_fresh_output_layer(model, look.features, look.costs)
    units = None if isinstance(validation, (LoaderSamples, StreamSamples)) else FeatureUnits.of(model, train)
    if units is not None:
        train = units.standardise(train)
        validation = units.standardise(validation) if isinstance(validation, MemorySamples) else validation
        job = replace(job, model=copy.deepcopy(model))
        if not fresh:
            load_model_weights(job.model, units.enter(model.state_dict()))
    nested = job.ranks.from_rank_0("the copies of the base", lambda: _nests_copies(job, train))
    folds, whole = make_race_folds(job, loss, train, validation, score, nested)
    if fresh is None:
        fresh = not decides_better_than_constant(job.model, folds)
        if fresh and units is not None:
            load_model_weights(job.model, model.state_dict())  # first weights are drawn for standardised features
    start = choose_race_start(job, train) if fresh else GivenRaceStart(job.model)
    contest = None if isinstance(loss, MSELoss) else loss  # the start has the least squared error already
    race = Race(job, contest, folds, whole, start, not isinstance(start, GivenRaceStart), nested)
    if isinstance(start, NetworkRaceStart):
        start.progress = race.progress
    weights = race.run()
    alone = race_without_base(race, loss, train)
    if alone is not None and isinstance(model, Correction):
        model.leave_base_out(alone)
    else:
        load_model_weights(model, weights if units is None else units.leave(weights))
    history = write_race_history(race, loss, counted)
    if history.stopped in ("patience", "max_epochs"):
        race.save_end(dict(model.state_dict()), history.as_dict())
    return history


def _load_ended_race(job: FitJob) -> History | None:
    """If the checkpoint holds a race that has ended, load its weights into the model, and return its history.

    The result is None if the file holds no such race, or if the race may now go on for more epochs.
    """
    found = job.ranks.content_of_rank_0("the end of the race", lambda: job.file.content(STAGE).get("end", {}))
    if not found or (found["history"]["stopped"] == "max_epochs" and found["max_epochs"] < job.config.max_epochs):
        return None
    load_model_weights(job.model, found["weights"])
    return History.from_dict(found["history"])


def _nests_copies(job: FitJob, train: SampleSource) -> bool:
    """Return whether the race fits nested copies of a base (``CorrectionOffsets.in_fold``), as its checkpoint says.

    Without a checkpoint, nested copies are fitted if there is time for them.
    """
    return bool(job.file.content(STAGE).get("nested", has_time_for_nested_copies(job, train, FOLD_SHARE)))
