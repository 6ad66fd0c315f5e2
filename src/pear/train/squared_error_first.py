"""``train_squared_error_first``: trains on the squared error, then on the loss, and keeps the better weights."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from pear.clock import read_clock
from pear.losses.mse import MSELoss
from pear.train.fit_job import FitJob
from pear.train.history import Callback, Check, History, join_history_notes
from pear.train.output_layer import has_fresh_output_layer
from pear.train.samples.sample_source import SampleSource
from pear.train.training_run import run_training_on_loss
from pear.train.validation_score import score_on_validation


def train_squared_error_first(
    job: FitJob,
    loss: Callable[..., Tensor],
    train: SampleSource,
    optimizer: torch.optim.Optimizer | None,
) -> History:
    """Train the model on the squared error, then on the loss, and return the history.

    The model is trained on the loss alone if ``FitConfig.start`` is not "mse", if the loss has no problem, or if the
    user passes an optimizer. It is trained on the squared error alone if that training is interrupted, or ended by the
    time cap or a callback.

    Args:
        job: the inputs that both trainings share.
        loss: the loss.
        train: the training samples.
        optimizer: the optimizer of the user, or None.
    """
    given, before, resuming = copy.deepcopy(job.model.state_dict()), None, job.resumes("loss")
    if job.config.start == "mse" and optimizer is None and hasattr(loss, "problem") and not resuming:
        before = _train_on_squared_error(job, train.finite())
        if before.stopped in ("interrupted", "time_cap", "callback"):
            return before
    return run_training_on_loss(job, loss, train, optimizer, "loss", given, before)


def _train_on_squared_error(job: FitJob, train: SampleSource) -> History:
    """Train on the squared error, leave the model with its best weights, and return the history.

    A model that is already trained is only validated, and keeps its weights. If the last layer does not show whether
    the model is already trained, the model is validated and then trained. It gets its first weights back unless the
    metric is lower after this training.
    """
    model, look, began = job.model, train.look(), read_clock()
    fresh, given = has_fresh_output_layer(model, look.features, look.costs), copy.deepcopy(model.state_dict())
    if job.resumes("mse") and fresh is False:
        fresh = True  # the model has the weights of the interrupted training
    history = History(stopped="patience")
    if fresh is not True:
        try:
            value = job.ranks.from_rank_0(
                "the first check", lambda: score_on_validation(model, job.validation, job.score)
            )
        except KeyboardInterrupt:
            return History(stopped="interrupted")
        history.best = Check(0, read_clock() - began, math.nan, value) if math.isfinite(value) else None
    if fresh is False or not len(look):
        return history
    callbacks = tuple(_mark_squared_error_part(callback) for callback in job.callbacks)
    job = replace(job, config=replace(job.config, start="standardised"), callbacks=callbacks)
    found = run_training_on_loss(job, MSELoss(), train, None, "mse", given, None)
    if history.best is not None and (found.best is None or history.best.metric <= found.best.metric):
        model.load_state_dict(given)
        found.best, found.start = history.best, "the model begins as it came, which beats training on the squared error"
        return found
    found.start = join_history_notes(found.start, "the model was trained on the squared error first")
    return found


def _mark_squared_error_part(callback: Callback) -> Callback:
    """Return a function that passes a ``Progress`` on to the callback, with "mse" as the part of the run."""
    return lambda now: callback(replace(now, part="mse"))
