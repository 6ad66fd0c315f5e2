"""``HeldOutJudge``: computes what the decisions of a model lose on held-out samples (their regret)."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pear.clock import read_clock
from pear.losses.paired_difference import PairedDifference, paired_difference
from pear.problem import Model, Problem
from pear.train.model_weights import Weights, load_model_weights
from pear.train.samples.memory_samples import MemorySamples
from pear.train.samples.sample_rows import Keys
from pear.train.samples.sample_source import SampleSource
from pear.train.training_loss import problem_of_loss
from pear.train.validation import clean_validation
from pear.train.validation_score import Outcomes, Score, default_validation_outcomes, forecast_validation


@dataclass(frozen=True)
class HeldOutLosses:
    """What the decisions of a model lose on held-out samples.

    Attributes:
        each: (M,) the regret of each of M samples, NaN for a sample without a verified relaxed decision; with a metric
            of the user, (F,) its value in each of F folds.
        metric: the metric of all samples: the normalised regret, or the metric of the user.
        unit: the number that divides the mean regret in ``metric``: the mean absolute value of the best decisions;
            1 if that is zero, and with a metric of the user.
        samples: M, the number of samples.
        weight: (M,) how much each sample counts; None if all samples count alike, and with a metric of the user.
        by_fold: whether ``each`` has one value for each fold instead of one for each sample.
    """

    each: NDArray[np.float64]
    metric: float
    unit: float
    samples: int
    weight: NDArray[np.float64] | None = None
    by_fold: bool = False

    def difference_from(self, start: HeldOutLosses) -> PairedDifference:
        """Return the mean of these losses minus those of ``start``, in the unit of the metric.

        Both must be losses on the same samples. With a metric of the user, folds are compared instead of samples,
        because the metric has one value for each fold. The standard error of a single fold is a rule of thumb: half of
        the metric of ``start``, divided by the square root of the number of samples.
        """
        if len(self.each) == 1 and self.by_fold:
            mean, error = self.metric - start.metric, 0.5 * abs(start.metric) / self.samples**0.5
            return PairedDifference(mean, error, (mean - 2 * error, mean + 2 * error), 1)
        known = ~(np.isnan(self.each) | np.isnan(start.each))
        pair = self.each[known] / start.unit, start.each[known] / start.unit
        weight = None if self.weight is None else self.weight[known]
        return paired_difference(*pair, 1 if self.by_fold else None, weight=weight)

    @staticmethod
    def join(parts: list[HeldOutLosses]) -> HeldOutLosses:
        """Return the losses of several folds as one object, for the samples of all folds."""
        counts = np.array([part.samples for part in parts])
        weights = [part.weight for part in parts if part.weight is not None]
        sizes = np.array([weight.sum() for weight in weights]) if weights else counts
        units = sizes * [part.unit for part in parts]
        metric = float(np.average([part.metric for part in parts], weights=units))
        each, weight = np.concatenate([part.each for part in parts]), np.concatenate(weights) if weights else None
        unit, by_fold = float(units.sum() / sizes.sum()), any(part.by_fold for part in parts)
        return HeldOutLosses(each, metric, unit, int(counts.sum()), weight, by_fold)


class HeldOutJudge:
    """A judge of a model's weights. A call returns what the decisions with these weights lose on held-out samples.

    Args:
        model: the model, which is copied.
        loss: the loss, whose problem decides.
        score: the metric of the user; None for the regret of each sample.
        held_out: the held-out samples.

    Attributes:
        seconds: the seconds spent on the best decisions under the true costs; a judgement takes about as long.
    """

    def __init__(self, model: nn.Module, loss: Any, score: Score | None, held_out: SampleSource) -> None:
        began = read_clock()
        self.model, self.score = copy.deepcopy(model), score
        self.outcomes: Outcomes | None = None
        problem = problem_of_loss(loss)
        if score is None:
            held_out = clean_validation(model, loss, held_out)
            assert isinstance(problem, (Problem, Model))
            held_out, self.outcomes = default_validation_outcomes(problem, loss, held_out)
        self.held_out, self.seconds = held_out, read_clock() - began

    def without_offset(self, model: nn.Module) -> HeldOutJudge:
        """Return a judge of a model that corrects nothing, on the same samples, which must be in memory."""
        assert isinstance(self.held_out, MemorySamples)
        judge = copy.copy(self)
        judge.model, judge.held_out = copy.deepcopy(model), self.held_out.without_offset()
        return judge

    def __call__(self, weights: Weights) -> HeldOutLosses:
        """Return what the decisions of the model with these weights lose."""
        load_model_weights(self.model, weights)
        return self._losses(*forecast_validation(self.model, self.held_out))

    def of_constant(self, forecast: Tensor) -> HeldOutLosses:
        """Return what the decisions lose if every sample has the same ``forecast`` (n,)."""
        batches = list(self.held_out.whole())
        true = torch.cat([batch.costs for batch in batches])
        keys = batches[0].keys if len(batches) == 1 else None
        return self._losses(forecast.to(true).expand_as(true), true, keys)

    def _losses(self, predicted: Tensor, true: Tensor, keys: Keys | None) -> HeldOutLosses:
        """Return what the decisions lose under predicted costs (N, n), for true costs (N, n) and N ids."""
        if self.outcomes is not None:
            outcome, weight = self.outcomes(predicted, true, keys), self.held_out.weight
            counted = outcome.weighted(weight)
            unit = float(counted.best.abs().mean()) or 1.0
            weights = None if weight is None else weight.cpu().numpy()
            return HeldOutLosses(outcome.regret.cpu().numpy(), counted.score, unit, len(true), weights)
        assert self.score is not None
        metric = float(self.score(predicted, true, keys))
        return HeldOutLosses(np.array([metric]), metric, 1.0, len(true), by_fold=True)
