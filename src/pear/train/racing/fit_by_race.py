"""``fit_by_race``: the default training, a race between the squared error and trainings on the loss."""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from pear.clock import read_clock
from pear.errors import ProblemError
from pear.losses.mse import MSELoss
from pear.train.blocked_folds import blocked_folds
from pear.train.checkpoint import load_weights
from pear.train.fit_job import FitJob
from pear.train.history import CAUTION, Check, History
from pear.train.loss_interface import calibrate_loss, problem_of_loss
from pear.train.racing.feature_units import FeatureUnits
from pear.train.racing.judge import Judge, Losses
from pear.train.racing.race import STAGE, Fold, Race
from pear.train.racing.screen import is_search
from pear.train.racing.squared_error_start import GivenStart, NetworkStart, RidgeStart, Start
from pear.train.samples import SampleSource
from pear.train.samples.loader_samples import LoaderSamples
from pear.train.samples.memory_samples import MemorySamples
from pear.train.samples.stream_samples import StreamSamples
from pear.train.training_labels import training_labels
from pear.train.training_start import is_fresh, is_linear
from pear.train.validation import Score, rows_of_share

logger = logging.getLogger("pear")

FOLDS = 5
"""The number of folds of a cross-validation."""

BEWARE = "Beware"
"""The first word of the sentence that warns of a model that decides worse than a constant forecast."""

FEW_FOLDS = 3
"""The number of these folds in which trainings that take long are judged; see ``count_folds``."""

ENOUGH = 1000
"""Held-out samples that are enough to judge by; where few folds have as many, the others are left out."""

FOLD_SHARE = 0.1
"""The share of a time cap after which no further fold is made: its best decisions have to be found, and every judgement
takes about as long again."""


def fit_by_race(
    job: FitJob,
    loss: Callable[..., Tensor],
    train: SampleSource,
    validation: SampleSource | float | None,
    score: Score | None,
) -> History:
    """Train a model by a race, and leave it with the winner's weights.

    Args:
        job: the model, the settings and the callbacks; its validation samples and score are not used.
        loss: the loss.
        train: the training samples.
        validation: samples to judge by; or the share of ``train`` to hold out, or None for cross-validation. In the
            last two cases the winner is trained again on all samples.
        score: the user's own metric; None for the regret.
    """
    ended = _ended_race(job)
    if ended is not None:
        return ended
    labelled = training_labels(train, job.config, job.model)
    calibrate_loss(loss, labelled)
    counted, model = dict(getattr(loss, "seconds", {})), job.model
    look = labelled.finite().look()
    fresh = False if getattr(model, "begins_at_zero", False) else is_fresh(model, look.features, look.costs)
    units = None if isinstance(validation, (LoaderSamples, StreamSamples)) else FeatureUnits.of(model, train)
    if units is not None:
        train = units.standardise(train)
        validation = units.standardise(validation) if isinstance(validation, MemorySamples) else validation
        job = replace(job, model=copy.deepcopy(model))
        if not fresh:
            load_weights(job.model, units.enter(model.state_dict()))
    folds, whole = _make_folds(job, loss, train, validation, score)
    if fresh is None:
        fresh = not _decides_better_than_constant(job.model, folds)
        if fresh and units is not None:
            load_weights(job.model, model.state_dict())  # drawn for features of size one, which it gets
    start = _find_start(job, train) if fresh else GivenStart(job.model)
    contest = None if isinstance(loss, MSELoss) else loss  # the start is the squared error itself
    race = Race(job, contest, folds, whole, start, fresh=not isinstance(start, GivenStart))
    if isinstance(start, NetworkStart):
        start.progress = race.progress
    weights = race.run()
    load_weights(model, weights if units is None else units.leave(weights))
    history = _write_history(race, loss, counted)
    if history.stopped in ("patience", "max_epochs"):
        race.save_end(dict(model.state_dict()), history.as_dict())
    return history


def _ended_race(job: FitJob) -> History | None:
    """Load the end of a race from the checkpoint; None where there is none, or where more epochs are allowed now."""
    found = job.ranks.content_of_rank_0("the end of the race", lambda: job.file.content(STAGE).get("end", {}))
    if not found or (found["history"]["stopped"] == "max_epochs" and found["max_epochs"] < job.config.max_epochs):
        return None
    load_weights(job.model, found["weights"])
    return History.from_dict(found["history"])


def _make_folds(
    job: FitJob,
    loss: Callable[..., Tensor],
    train: SampleSource,
    validation: SampleSource | float | None,
    score: Score | None,
) -> tuple[list[Fold], SampleSource | None]:
    """Make the folds, and say on which samples the winner is trained again; None where it is not."""
    if validation is not None and not isinstance(validation, (bool, int, float)):
        labelled = training_labels(train, job.config, job.model)
        return [Fold(labelled, Judge(job.model, loss, score, validation))], None
    assert isinstance(train, MemorySamples)
    folds: list[Fold] = []
    layers = [part for part in job.model.modules() if any(one.requires_grad for one in part.parameters(recurse=False))]
    most = count_folds(len(layers), problem_of_loss(loss))
    for kept, held_out in islice(_split_rows(len(train), validation, job.config.gap), most):
        left_out = torch.ones(len(train), dtype=torch.bool, device=train.costs.device)
        left_out[kept] = False
        judged = held_out.to(train.costs.device)
        if train.left_out is not None:
            left_out, judged = left_out | train.left_out, judged[~train.left_out[judged]]
        if len(judged) and not bool(left_out.all()):
            judge = Judge(job.model, loss, score, MemorySamples(train.at(judged)))
            labelled = training_labels(replace(train, left_out=left_out), job.config, job.model)
            folds.append(Fold(labelled, judge))
        if sum(len(fold.judge.held_out) for fold in folds) >= ENOUGH or (folds and _takes_too_long(job)):
            break
    if not folds:
        raise ProblemError("two usable samples at least are needed, one to train on and one to validate")
    return folds, training_labels(train, job.config, job.model)


def _takes_too_long(job: FitJob) -> bool:
    """Whether the time of another fold is better spent on training: a share of the time cap has gone by."""
    cap = job.config.time_cap
    if cap is None:
        return False
    return job.ranks.meet("the time for folds", read_clock() - job.began)[0][0] > FOLD_SHARE * cap


def count_folds(layers: int, problem: Any) -> int:
    """The number of folds that are trained and judged.

    A network of several layers takes longer than one layer, and a large sparse problem with integers takes longer than
    others: each of its decisions is a search.

    Args:
        layers: the number of layers that are trained.
        problem: the decision problem, or None where the loss has none.
    """
    return FEW_FOLDS if layers != 1 or is_search(problem) else FOLDS


def _split_rows(count: int, share: float | None, gap: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield rows to train on and rows to hold out: the last share of them, or the folds of a cross-validation."""
    if share is None:
        yield from blocked_folds(count, FOLDS, gap)
        return
    first = count - rows_of_share(count, share)
    yield torch.arange(max(first - gap, 1)), torch.arange(first, count)


def _find_start(job: FitJob, train: SampleSource) -> Start:
    """Choose how a fresh model is fitted to the squared error: in closed form if it is linear, else by training."""
    look = train.finite().look()
    if isinstance(train, MemorySamples) and is_linear(job.model, look.features, look.costs):
        return RidgeStart(job.model)
    return NetworkStart(job)


def _decides_better_than_constant(model: nn.Module, folds: list[Fold]) -> bool:
    """Whether a model surely decides better than a constant forecast, and thus has learnt something."""
    own = Losses.join([fold.judge(model.state_dict()) for fold in folds])
    constant = Losses.join([fold.of_constant() for fold in folds])
    found = own.less(constant)
    return found.mean + CAUTION * found.standard_error < 0


def _write_history(race: Race, loss: Any, counted: dict[str, float]) -> History:
    """Write down what happened in a race."""
    progress, start = race.progress, race.start
    history = History(
        checks=race.checks,
        epochs=race.epochs,
        seconds=progress.seconds(),
        check_seconds=progress.judging,
        stopped=progress.stopped,
        start=start.sentence,
        race=tuple(race.rows),
        held_out=0 if race.whole is None else race.judged,
    )
    now = getattr(loss, "seconds", {})
    parts = {name: now.get(name, 0.0) - counted.get(name, 0.0) for name in dict.fromkeys(("solve", "gradient", *now))}
    parts["validation"] = history.check_seconds
    history.split = {**parts, "rest": max(0.0, history.seconds - sum(parts.values()))}
    if race.rows:
        winner, first = race.winner, race.rows[0]
        history.best = Check(winner.epochs, history.seconds, math.nan, winner.metric)
        epochs = start.epochs if isinstance(start, NetworkStart) else 0
        history.before = History(epochs=epochs, stopped="patience", best=Check(0, 0.0, math.nan, first.metric))
        history.choice = describe_race(race)
        if race.job.ranks.first:
            logger.log(logging.WARNING if BEWARE in history.choice else logging.INFO, history.choice)
    return history


def describe_race(race: Race) -> str:
    """Say in a few sentences who has won, by how much, and what else was tried."""
    judged = [row for row in race.rows if not row.screened]
    winner, first, tried = race.winner, judged[0], judged[1:]
    where = f"on {race.judged} held-out samples" + (f" in {len(race.folds)} folds" if len(race.folds) > 1 else "")
    if winner.contender != "start":
        low, high = winner.interval
        said = (
            f"{winner} won a race of {len(judged)}: {winner.metric:.4g} {where}, against {first.metric:.4g} of the "
            f"start (difference {winner.difference:.3g}, 95 % interval {low:.3g} to {high:.3g})"
        )
    elif tried:
        best = min(tried, key=lambda row: row.bound)
        said = (
            f"the start won a race of {len(judged)}: {first.metric:.4g} {where}. Nothing was clearly better; next "
            f"was {best}, with a difference of {best.difference:.3g} ± {best.standard_error:.2g}"
        )
    else:
        said = f"the start has {first.metric:.4g} {where}"
    if len(judged) < len(race.rows):
        said += f". They were chosen among {len(race.rows) - len(judged)} trained models by their relaxed decisions"
    if race.constant < winner.metric:
        said += (
            f". {BEWARE}: a constant forecast, the mean of the training costs, decides better ({race.constant:.4g}); "
            "the model has learnt nothing that helps"
        )
    return said
