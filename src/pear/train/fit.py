"""``fit``: trains a model on any loss, with validation, early stopping and checkpoints."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pear.clock import read_clock
from pear.errors import ProblemError
from pear.problem.sample_keys import count_keyed_samples
from pear.train.checkpoint import CheckpointFile
from pear.train.correction import Correction, fit_correction
from pear.train.fit_config import FitConfig
from pear.train.fit_job import FitJob
from pear.train.history import Callback, History
from pear.train.parallel_ranks import ParallelRanks
from pear.train.racing.fit_by_race import fit_by_race
from pear.train.run_identity import run_identity
from pear.train.sample_order import Order, shuffled
from pear.train.samples.loader_samples import LoaderSamples
from pear.train.samples.memory_samples import MemorySamples
from pear.train.samples.sample_rows import Keys, check_sample_weight_rows
from pear.train.samples.sample_source import SampleSource, read_sample_source, weigh_sample_source
from pear.train.samples.stream_samples import StreamSamples
from pear.train.samples.usable_samples import check_usable_costs
from pear.train.squared_error_first import train_squared_error_first
from pear.train.time_order import describe_time_order, sort_samples_by_time
from pear.train.training_labels import check_label_settings, training_labels
from pear.train.training_loss import check_loss_takes_weight, problem_of_loss, training_loss_counts
from pear.train.validation import check_validation_rows, describe_validation, find_validation_samples
from pear.train.validation_score import Metric, Score, default_validation_score

logger = logging.getLogger("pear")


def fit(
    model: nn.Module,
    loss: Callable[..., Tensor],
    train: Any,
    validation: Any = None,
    metric: Metric | None = None,
    config: FitConfig = FitConfig(),
    *,
    optimizer: torch.optim.Optimizer | None = None,
    order: Order = shuffled,
    progress: Callback | Sequence[Callback] | None = None,
    checkpoint: str | Path | None = None,
    base: Any = None,
    sample_weight: Any = None,
    validation_weight: Any = None,
) -> History:
    """Train ``model`` in place, and leave it with the weights that decide best on samples it was not trained on.

    Under a loss of decisions this is a race (``config.start``). The start is the squared error: a ridge regression in
    closed form for a linear model, a training with weight decay for a network; a model that has learnt already is taken
    as it comes. From there, and from fresh weights, the model is trained on the loss for 8, 16, 32, … epochs, and the
    weights are averaged. What decides clearly better than the start on held-out samples is trained again on all of
    them; else the start is kept. ``History.choice`` says in a sentence what has won and by how much, ``History.race``
    lists all that was tried.

    Other losses, an optimizer of your own, and other starts are trained once. The metric is then computed after the
    first epoch, every ``config.check_every`` epochs and at the end, and the best weights are kept.

    Ctrl-C ends the run early; the model then has the best weights so far, or, before any were judged, those that it
    came with. Global random state is read and changed only by a model that draws numbers (dropout), or by a DataLoader
    without a generator.

    Where ``torch.distributed`` is initialised with several ranks, all of them must call ``fit`` with the same
    arguments. They share every batch and take the same steps as one process would. Rank 0 validates, reports and writes
    the checkpoint.

    Args:
        model: maps features (B, p) to predicted costs (B, n). Where features are a tuple it is called as ``model(*x)``,
            where they are a dict as ``model(**x)``.
        loss: called with predicted and true costs. Where it has an argument ``keys``, it also gets the samples' ids: by
            default their row numbers in ``train``; None where a DataLoader shuffles and gives no ids. Where it has a
            method ``calibrate``, that is called with all true costs of ``train`` before the first epoch. A run that
            resumes does not call it again, because its result is in the checkpoint.
        train: a pair of features (N, p) and true costs (N, n), each a tensor, an array or a DataFrame; or a ``Dataset``
            of such pairs, a ``DataLoader`` or ``pear.ParquetSamples``. A third entry of the pair holds sample ids. All
            tensors are converted to the model's dtype and device; where a model has several inputs, integers among them
            stay integers (for an embedding). A Dataset is read into memory. A DataLoader is read once before the first
            epoch to collect all costs and ids, and the features of the first 4,096 samples, which show whether the
            model is untrained. It brings its own batches, so that ``config.batch_size`` and ``order`` are not used. Of
            ``ParquetSamples`` only ``buffer`` samples are kept in memory; ``calibrate`` and the training on the squared
            error use these instead of all samples.
        validation: held-out samples in one of these forms; or the share of ``train`` to hold out, which are its last
            rows. By default a race cross-validates over blocks of consecutive rows, and other trainings hold out 0.2.
            DataLoaders and ``ParquetSamples`` need validation samples. ``History.note`` says what was done.
        metric: a function of predicted and true costs of the whole validation set that returns a number, lower is
            better. The default is the normalised regret on the problem of the loss, with its integers; for a loss
            without a problem, the loss itself.
        config: how to train and when to stop.
        optimizer: Adam over all parameters, at the config's learning rate, if omitted; ``config.start`` says how
            the last layer begins then.
        order: ``shuffled``, ``in_order``, or any function like them.
        progress: one function or several, called after every epoch; one that returns True ends the run.
        checkpoint: a file that is written at every check. Where it exists already, the run resumes from it. On the same
            machine it then ends with the same bits as an undisturbed run, dropout included; only a DataLoader with a
            generator of its own may draw another order. A file that is damaged, or of another model, optimizer, loss,
            metric, order, config or data, is refused with a ``TrainingError``, and nothing changes. ``max_epochs``,
            ``patience`` and ``time_cap`` may differ.
        base: a forecaster of your own that is corrected: has ``predict``, or is a torch module or a function of the
            features. The model becomes the correction, so that forecasts are ``base(x) + model(x)``: its last layer,
            an ``nn.Linear``, begins at zero, and stays there unless a correction clearly pays. Samples are in memory.
        sample_weight: (N,) how much each sample of ``train`` counts: in the loss, in the squared error that comes first
            and in the default metric on samples held out of ``train``. Only ratios matter; samples of weight 0 are left
            out. Equal if omitted. A metric of your own gets no weights; samples must be in memory.
        validation_weight: the same for samples given as ``validation``.

    Returns:
        What happened, check by check.

    Rows of DataFrames with an index of dates are held out in the order of their dates, however they are sorted.

    Rows of ``train`` whose features are not finite, and from which the model predicts nothing finite, would make every
    weight NaN. They are refused, or, where the loss says ``on_failure="mask"``, left out with a warning. Costs that are
    missing are refused unless the loss says so.

    Raises:
        TrainingError: the loss or the metric is not a number; the model is left with its best weights, or, before the
            first check, with those that it came with. Another rank has failed, or is given something else.
        ProblemError: the samples are not what they must be, and the message says how; features or costs of ``train``
            are not finite, and the loss does not mask; names the rows.

    Example:
        >>> import pear, torch
        >>> task = pear.tasks.shortest_path((3, 3))
        >>> X, C = task.samples(200, degree=2)
        >>> model = torch.nn.Linear(5, task.problem.n)
        >>> history = pear.fit(model, pear.PEARLoss(task.problem), (X, C), config=pear.FitConfig(max_epochs=4))
        >>> [str(row) for row in history.race[:3]]
        ['the start', 'the correction (4 epochs)', 'the fresh model (4 epochs)']
    """
    _check_fit_arguments(model, loss)
    check_sample_weight_rows(train, sample_weight, "sample_weight")
    check_sample_weight_rows(validation, validation_weight, "validation_weight")
    numbered = count_keyed_samples(problem_of_loss(loss)) is not None
    train, sample_weight, moved = sort_samples_by_time(train, numbered, sample_weight)
    if base is not None:
        options = {"optimizer": optimizer, "order": order, "progress": progress, "checkpoint": checkpoint}
        options |= {"sample_weight": sample_weight, "validation_weight": validation_weight}

        def fit_corrected(corrected: Correction, train: MemorySamples, validation: Any) -> History:
            return fit(corrected, loss, train, validation, metric, config, **options)  # type: ignore[arg-type]

        return _note_order(fit_correction(base, model, train, validation, fit_corrected), moved)
    began = read_clock()
    with ParallelRanks.of(model, config.data_parallel) as ranks:
        ranks.check_same_start(model, loss, config)
        problem, before = problem_of_loss(loss), training_loss_counts(loss)
        samples = weigh_sample_source(
            read_sample_source(train, "train", model, number=True), sample_weight, "sample_weight"
        )
        if sample_weight is not None:
            check_loss_takes_weight(loss)
        races = config.start == "race" and optimizer is None and problem is not None
        samples, held_out, taken = _choose_fit_validation(samples, validation, validation_weight, model, problem, races)
        ranks.check_same_samples(samples)
        check_usable_costs(samples.costs, "train", loss)
        _check_fit_keys(samples, problem)
        check_label_settings(config, problem, samples.keys)
        samples = samples.usable(model, loss)
        callbacks, checked = _read_fit_callbacks(progress), ranks.check_same_order(order)
        score = None if metric is None else _fit_score_without_keys(metric)
        note = _note_on_fit_samples(samples, taken, config, order, ranks.first)
        path = Path(checkpoint) if checkpoint is not None and ranks.first else None
        if races:
            file = CheckpointFile.open(
                path, lambda: run_identity(model, loss, None, samples, held_out, metric, config, order)
            )
            job = FitJob(model, samples, _no_fit_score, config, checked, callbacks, ranks, file, began)
            history = fit_by_race(job, loss, samples, held_out, score)
        else:
            assert isinstance(held_out, SampleSource)
            check_seconds = getattr(metric, "check_seconds", 0.0)
            if score is None:
                before_score = read_clock()
                held_out, score = (
                    default_validation_score(model, loss, held_out) if ranks.first else (held_out, _no_fit_score)
                )
                check_seconds = read_clock() - before_score  # for the best decisions: a check takes as long
            said = (model, loss, optimizer, samples, held_out, metric, config, order)
            file = CheckpointFile.open(path, lambda: run_identity(*said))
            job = FitJob(model, held_out, score, config, checked, callbacks, ranks, file, began, check_seconds)
            history = train_squared_error_first(job, loss, training_labels(samples, config, model), optimizer)
        ranks.add_loss_counts(loss, before)
        ranks.copy_weights(model)
    history.held_out, history.note = max(history.held_out, taken), note
    return _note_order(history, moved)


def _choose_fit_validation(
    samples: SampleSource, validation: Any, weight: Any, model: nn.Module, problem: Any, races: bool
) -> tuple[SampleSource, SampleSource | float | None, int]:
    """Choose the samples to judge by.

    Args:
        samples: all training samples.
        validation: samples of their own, the share to hold out, or None, as of ``fit``.
        weight: (N,) how much each sample of ``validation`` counts, or None.
        model: the model.
        problem: the problem of the loss, or None.
        races: whether the training is a race, which splits samples in memory by itself.

    Returns:
        The samples to train on; those to judge by, or what a race holds out; and how many were taken from ``samples``.
    """
    if races and isinstance(samples, MemorySamples) and (validation is None or isinstance(validation, (int, float))):
        check_validation_rows(samples, problem)
        return samples, validation, 0
    samples, held_out, taken = find_validation_samples(samples, validation, model, problem)
    return samples, weigh_sample_source(held_out, weight, "validation_weight"), taken


def _note_order(history: History, moved: bool) -> History:
    """Say in the history where rows were put in the order of their dates."""
    history.note = "; ".join(filter(None, (describe_time_order(moved), history.note)))
    return history


def _check_fit_keys(samples: SampleSource, problem: Any) -> None:
    """Raise ProblemError where a problem has fields per sample, and the samples do not say which is which."""
    rows = count_keyed_samples(problem)
    if not isinstance(samples, MemorySamples) and samples.keys is None and rows is not None:
        what = "a DataLoader that shuffles" if isinstance(samples, LoaderSamples) else "ParquetSamples"
        raise ProblemError(
            f"the problem has fields of its own for {rows} samples, and {what} does not say which "
            "sample is which; let the batches of a DataLoader be (features, costs, ids) with the row numbers as ids"
        )


def _check_fit_arguments(model: Any, loss: Any) -> None:
    """Raise if the model is not a module, or the loss cannot be called."""
    if not isinstance(model, nn.Module):
        raise ProblemError(f"model must be a torch.nn.Module, as torch.nn.Linear(p, n); got a {type(model).__name__}")
    if not callable(loss):
        raise ProblemError(
            f"loss must be a function of predicted and true costs, as pear.PEARLoss(problem) or "
            f"pear.losses.make_loss(name, problem); got a {type(loss).__name__}"
        )


def _read_fit_callbacks(progress: Callback | Sequence[Callback] | None) -> tuple[Callback, ...]:
    """Return the progress callbacks as a tuple; raise if one cannot be called."""
    if progress is None:
        return ()
    several = (progress,) if callable(progress) else tuple(progress)
    for one in several:
        if not callable(one):
            raise ProblemError(f"progress must be a function, or several in a list; got {one!r}")
    return several


def _note_on_fit_samples(samples: SampleSource, taken: int, config: FitConfig, order: Order, first: bool) -> str:
    """Describe in a sentence what ``fit`` decided about the samples; rank 0 logs it."""
    level = logging.INFO
    if isinstance(samples, LoaderSamples):
        if config.batch_size == FitConfig.batch_size and order is shuffled:
            return ""
        level = logging.WARNING
        note = "the DataLoader's own batches and order are used; config.batch_size and order do not apply to it"
    elif isinstance(samples, StreamSamples):
        note = samples.note
    elif taken:
        note = describe_validation(taken, len(samples))
    else:
        return ""
    if first:
        logger.log(level, note)
    return note


def _no_fit_score(predicted: Tensor, true: Tensor, keys: Keys | None) -> float:
    raise AssertionError("rank 0 alone validates")


def _fit_score_without_keys(metric: Metric) -> Score:
    return lambda predicted, true, keys: metric(predicted, true)
