"""``fit``: trains a model on a loss, with validation, early stopping and checkpoints."""

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
from pear.train.history import Callback, History, join_history_notes
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
    """Train a model in place, and leave it with the weights that decide best on samples that it was not trained on.

    If the loss has a decision problem, the training is by default a race (``FitConfig.start``). The race begins with a
    start: the model fitted to the squared error. A linear model is fitted in closed form, by ridge regression; a
    network is trained with weight decay; a model that is already trained is itself the start. From the start, and if
    the model is untrained also from its untrained weights, the model is trained on the loss for 8, 16, 32, … epochs,
    and the weights of the second half of the epochs are averaged. Weights between those of the start and those of a
    training that began with the start compete, too. The start wins unless another contender decides clearly better on
    held-out samples. The winner is trained again on all samples, unless the user gives validation samples.
    ``History.choice`` is a sentence about the winner, and ``History.race`` lists all results.

    If the loss has no decision problem, if ``FitConfig.start`` is not "race", or if the user passes an optimizer, the
    model is trained on the loss once. The metric is then computed after the first epoch, every
    ``FitConfig.check_every`` epochs and at the end, and the weights with the best metric are kept.

    Ctrl-C ends the run early. The model then has the best weights so far, or its first weights if no weights were
    compared yet. ``fit`` does not use torch's global random generators. Only a model that draws random numbers (as
    dropout does) and a DataLoader without a generator use them.

    If ``torch.distributed`` is initialised with several ranks, all of them must call ``fit`` with the same arguments.
    The ranks share every batch and take the same steps as one process would. Rank 0 validates, reports progress and
    writes the checkpoint.

    A sample for which a ``PEARLoss`` finds no verified solution in a step (INACCURATE) is left out of the step, with a
    warning the first time. ``History.left_out`` counts such samples. Samples with other failures raise an error.

    Rows of DataFrames with an index of dates are held out in the order of their dates, however the rows are sorted.

    A sample whose features are not finite, and for which the model predicts a value that is not finite, would make
    every weight NaN. Such samples are refused; with a loss that has ``on_failure="mask"`` they are left out with a
    warning. Samples whose costs are not finite are refused, too, unless the loss has ``on_failure="mask"``.

    Args:
        model: maps p features (B, p) to predicted costs (B, n). If the features x are a tuple, the call is
            ``model(*x)``; if they are a dict, ``model(**x)``.
        loss: a function of predicted and true costs. If the loss has an argument ``keys``, it also gets the ids of the
            samples: by default their row numbers in ``train``, and None for a DataLoader that shuffles and gives no
            ids. If the loss has a method ``calibrate``, ``fit`` calls it with all true costs of ``train`` before the
            first epoch. A resumed run does not call ``calibrate`` again, because its result is in the checkpoint.
        train: a pair of features (N, p) and true costs (N, n), each a tensor, an array or a DataFrame; or a ``Dataset``
            of such pairs, a ``DataLoader`` or ``pear.ParquetSamples``. A third entry of the pair holds the ids of the
            samples. All tensors are converted to the dtype and the device of the model; if a model has several inputs,
            integers among them stay integers (for an embedding). A Dataset is read into memory. A DataLoader is read
            once before the first epoch, to collect all costs and ids and the features of the first 4,096 samples, which
            show whether the model is untrained. Its batches are used, and not ``FitConfig.batch_size`` and ``order``.
            Of ``ParquetSamples`` only ``buffer`` samples are kept in memory; ``calibrate`` and the training on the
            squared error use these samples instead of all.
        validation: held-out samples in one of the forms of ``train``; or the share of ``train`` to hold out, from its
            last rows. By default a race cross-validates over blocks of consecutive rows, and other trainings hold out a
            share of 0.2. DataLoaders and ``ParquetSamples`` need validation samples. ``History.note`` says which
            samples were held out.
        metric: a function of the predicted and the true costs of all validation samples that returns a number; lower is
            better. The default is the normalised regret on the problem of the loss, including its integers, or the loss
            itself if the loss has no problem.
        config: how the model is trained, and when the training stops.
        optimizer: the optimizer. By default an Adam over all parameters with the learning rate of the config;
            ``FitConfig.start`` then says how the last layer begins.
        order: the order of the samples in an epoch: ``shuffled``, ``in_order``, or a function with the same arguments.
        progress: one function, or several, that are called with a ``Progress`` after every epoch. If one of them
            returns True, the run ends.
        checkpoint: the path of a file that is written at every check. If the file exists already, the run resumes from
            it. On the same machine the resumed run ends with the same bits as a run without interruption, also with
            dropout; only a DataLoader with a generator may then draw another order. A file that is damaged, or that
            belongs to another model, optimizer, loss, metric, order, config or data, is refused with a
            ``TrainingError``, and nothing changes. ``max_epochs``, ``patience``, ``time_cap`` and ``data_parallel`` may
            differ.
        base: a forecaster that the model corrects: an object with ``predict``, a torch module, or a function of the
            features. The forecasts are then ``base(x) + model(x)``. The last layer of the model, an ``nn.Linear``,
            begins at zero, and stays there unless a correction clearly pays. The samples must be in memory.
        sample_weight: (N,) how much each sample of ``train`` counts in the loss, in the squared error, and in the
            default metric on samples held out of ``train``; equal by default. Only ratios matter, and samples of weight
            0 are left out. A metric of the user gets no weights. The samples must be in memory.
        validation_weight: how much each sample of ``validation`` counts, in the same way.

    Returns:
        The record of the training: its checks, or the results of its race.

    Raises:
        TrainingError: the loss or the metric is not finite, or another rank fails or has other arguments. The model
            then has its best weights, or its first weights if that happens before the first check.
        ProblemError: the samples do not have the required form, or features or costs are not finite and the loss does
            not mask failed samples. The message names the rows.

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
            """Train a correction with the arguments of this call."""
            return fit(corrected, loss, train, validation, metric, config, **options)  # type: ignore[arg-type]

        history = fit_correction(base, model, train, validation, fit_corrected, config.gap)
        history.note = join_history_notes(describe_time_order(moved), history.note)
        return history
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
        if not races and isinstance(train, MemorySamples) and train.offsets is not None:
            note = join_history_notes(note, train.offsets.note)
        check_seconds = getattr(metric, "check_seconds", 0.0)
        if not races and score is None:
            assert isinstance(held_out, SampleSource)
            score, before_score = _no_fit_score, read_clock()
            if ranks.first:
                held_out, score = default_validation_score(model, loss, held_out)
            check_seconds = read_clock() - before_score  # for the best decisions: a check takes as long
        path = Path(checkpoint) if checkpoint is not None and ranks.first else None
        said = model, loss, optimizer, samples, held_out, metric, config, order
        file = CheckpointFile.open(path, lambda: run_identity(*said))
        if races:
            job = FitJob(model, samples, _no_fit_score, config, checked, callbacks, ranks, file, began)
            history = fit_by_race(job, loss, samples, held_out, score)
        else:
            assert isinstance(held_out, SampleSource)
            assert score is not None
            job = FitJob(model, held_out, score, config, checked, callbacks, ranks, file, began, check_seconds)
            history = train_squared_error_first(job, loss, training_labels(samples, config, model), optimizer)
        ranks.add_loss_counts(loss, before)
        ranks.copy_weights(model)
    history.held_out = max(history.held_out, taken)
    history.note = join_history_notes(describe_time_order(moved), note, history.note)
    return history


def _choose_fit_validation(
    samples: SampleSource, validation: Any, weight: Any, model: nn.Module, problem: Any, races: bool
) -> tuple[SampleSource, SampleSource | float | None, int]:
    """Choose the validation samples of a training.

    Args:
        samples: all training samples.
        validation: the argument of ``fit``: samples, the share to hold out, or None.
        weight: (N,) how much each sample of ``validation`` counts, or None.
        model: the model.
        problem: the problem of the loss, or None.
        races: whether the training is a race. A race holds out samples itself if all samples are in memory.

    Returns:
        Three values. The first is the samples to train on. The second is the validation samples; if a race will hold
        them out, it is the share to hold out, or None. The third is the number of samples that are held out here.
    """
    if races and isinstance(samples, MemorySamples) and (validation is None or isinstance(validation, (int, float))):
        check_validation_rows(samples, problem)
        return samples, validation, 0
    samples, held_out, taken = find_validation_samples(samples, validation, model, problem)
    return samples, weigh_sample_source(held_out, weight, "validation_weight"), taken


def _check_fit_keys(samples: SampleSource, problem: Any) -> None:
    """Raise ProblemError if fields of the problem differ by sample, and samples from files or a loader have no ids."""
    rows = count_keyed_samples(problem)
    if not isinstance(samples, MemorySamples) and samples.keys is None and rows is not None:
        what = "a DataLoader that shuffles" if isinstance(samples, LoaderSamples) else "ParquetSamples"
        raise ProblemError(
            f"the problem has fields of its own for {rows} samples, and {what} does not say which "
            "sample is which; let the batches of a DataLoader be (features, costs, ids) with the row numbers as ids"
        )


def _check_fit_arguments(model: Any, loss: Any) -> None:
    """Raise ProblemError if the model is not a torch module, or the loss cannot be called."""
    if not isinstance(model, nn.Module):
        raise ProblemError(f"model must be a torch.nn.Module, as torch.nn.Linear(p, n); got a {type(model).__name__}")
    if not callable(loss):
        raise ProblemError(
            f"loss must be a function of predicted and true costs, as pear.PEARLoss(problem) or "
            f"pear.losses.make_loss(name, problem); got a {type(loss).__name__}"
        )


def _read_fit_callbacks(progress: Callback | Sequence[Callback] | None) -> tuple[Callback, ...]:
    """Return the progress callbacks as a tuple; raise ProblemError if one of them cannot be called."""
    if progress is None:
        return ()
    several = (progress,) if callable(progress) else tuple(progress)
    for one in several:
        if not callable(one):
            raise ProblemError(f"progress must be a function, or several in a list; got {one!r}")
    return several


def _note_on_fit_samples(samples: SampleSource, taken: int, config: FitConfig, order: Order, first: bool) -> str:
    """Return a sentence on what ``fit`` decided about the samples; "" if it decided nothing.

    Args:
        samples: the training samples.
        taken: the number of samples that were held out of them.
        config, order: the arguments of ``fit``.
        first: whether this process is rank 0, which logs the sentence.
    """
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
    """Raise an error. This function takes the place of a metric in a race and on ranks above 0, which never call it."""
    raise AssertionError("rank 0 alone validates")


def _fit_score_without_keys(metric: Metric) -> Score:
    """Return a metric of the user as a score: a function that also takes the ids of the samples, and ignores them."""
    return lambda predicted, true, keys: metric(predicted, true)
