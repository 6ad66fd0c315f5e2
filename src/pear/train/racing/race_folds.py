"""``RaceFold``: a fold of a race, with the samples to train on and the judge with the held-out samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from pear.clock import read_clock
from pear.errors import ProblemError
from pear.train.base_forecast import OWN
from pear.train.blocked_folds import FOLDS, blocked_folds
from pear.train.fit_job import FitJob
from pear.train.racing.held_out_judge import HeldOutJudge, HeldOutLosses
from pear.train.racing.race_row import CAUTION
from pear.train.racing.race_samples import RaceSamples, offsets_in_fold, offsets_of_race
from pear.train.racing.relaxation_screen import decides_by_search
from pear.train.samples.memory_samples import MemorySamples
from pear.train.samples.sample_source import SampleSource
from pear.train.training_loss import problem_of_loss
from pear.train.validation import count_validation_samples
from pear.train.validation_score import Score


@dataclass(frozen=True)
class RaceFold(RaceSamples):
    """A fold of a race: the samples to train on, and the judge with the held-out samples."""

    judge: HeldOutJudge

    def of_constant(self) -> HeldOutLosses:
        """Return what the decisions lose if every forecast is the mean of the training costs."""
        return self.judge.of_constant(self.train.finite().look().mean_costs)


FEW_FOLDS = 3
"""The number of folds of a cross-validation if trainings or decisions take long (``count_race_folds``)."""


ENOUGH = 1000
"""The number of held-out samples that is enough: no further fold is made if the folds so far hold out as many."""


FOLD_SHARE = 0.1
"""No further fold is made after this share of the time cap. The best decisions of a fold take time, and each judgement
takes about as long again."""


def make_race_folds(
    job: FitJob,
    loss: Callable[..., Tensor],
    train: SampleSource,
    validation: SampleSource | float | None,
    score: Score | None,
    nested: bool = True,
) -> tuple[list[RaceFold], RaceSamples | None]:
    """Return the folds of a race, and the samples on which its winner is trained again.

    Args:
        job: the model and the settings.
        loss: the loss.
        train: the training samples.
        validation: the samples to judge by, which make one fold; the share of ``train`` to hold out; or None for a
            cross-validation.
        score: the metric of the user; None for the regret.
        nested: as in ``CorrectionOffsets.in_fold``, if a base is corrected.

    Returns:
        Two values: the folds; and all training samples, or None if the user gives validation samples, because the
        winner then keeps its weights.
    """
    if validation is not None and not isinstance(validation, (bool, int, float)):
        samples = RaceSamples.of(job, train, offsets_of_race(train))
        return [RaceFold(samples.train, samples.corrections, HeldOutJudge(job.model, loss, score, validation))], None
    assert isinstance(train, MemorySamples)
    folds: list[RaceFold] = []
    layers = [part for part in job.model.modules() if any(one.requires_grad for one in part.parameters(recurse=False))]
    most = count_race_folds(len(layers), problem_of_loss(loss))
    for kept, held_out in islice(_split_into_folds(len(train), validation, job.config.gap), most):
        left_out = torch.ones(len(train), dtype=torch.bool, device=train.costs.device)
        left_out[kept] = False
        judged = held_out.to(train.costs.device)
        if train.left_out is not None:
            left_out, judged = left_out | train.left_out, judged[~train.left_out[judged]]
        if len(judged) and not bool(left_out.all()):
            offsets = offsets_in_fold(train, kept, nested)
            whole = train if offsets is None else train.with_offset(offsets[OWN])
            judge = HeldOutJudge(job.model, loss, score, MemorySamples(whole.at(judged)))
            samples = RaceSamples.of(job, replace(whole, left_out=left_out), offsets)
            folds.append(RaceFold(samples.train, samples.corrections, judge))
        if sum(len(fold.judge.held_out) for fold in folds) >= ENOUGH or (folds and _folds_take_too_long(job)):
            break
    if not folds:
        raise ProblemError("two usable samples at least are needed, one to train on and one to validate")
    return folds, RaceSamples.of(job, train, offsets_of_race(train))


def _folds_take_too_long(job: FitJob) -> bool:
    """Return whether a larger share of the time cap than ``FOLD_SHARE`` has passed since ``fit`` was called."""
    cap = job.config.time_cap
    if cap is None:
        return False
    return job.ranks.meet("the time for folds", read_clock() - job.began)[0][0] > FOLD_SHARE * cap


def count_race_folds(layers: int, problem: Any) -> int:
    """Return how many folds of a cross-validation a race uses.

    There are fewer folds for a network of several layers, whose training takes long, and for a sparse problem with
    integers, whose decisions are long searches.

    Args:
        layers: the number of layers that are trained.
        problem: the decision problem, or None.
    """
    return FEW_FOLDS if layers != 1 or decides_by_search(problem) else FOLDS


def _split_into_folds(count: int, share: float | None, gap: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield two tensors for each fold: the row numbers to train on, and the held-out row numbers.

    Args:
        count: the number of rows.
        share: the share of the rows, taken from the end, to hold out in a single fold; None for a cross-validation.
        gap: the number of rows next to held-out rows that are not trained on.
    """
    if share is None:
        yield from blocked_folds(count, FOLDS, gap)
        return
    first = count - count_validation_samples(count, share)
    yield torch.arange(max(first - gap, 1)), torch.arange(first, count)


def decides_better_than_constant(model: nn.Module, folds: list[RaceFold]) -> bool:
    """Return whether a model decides clearly better than a constant forecast. Such a model counts as trained."""
    own = HeldOutLosses.join([fold.judge(model.state_dict()) for fold in folds])
    constant = HeldOutLosses.join([fold.of_constant() for fold in folds])
    found = own.difference_from(constant)
    return found.mean + CAUTION * found.standard_error < 0
