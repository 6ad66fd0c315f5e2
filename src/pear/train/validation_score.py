"""The metric of ``fit`` and ``tune`` on validation samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from pear.clock import read_clock
from pear.errors import ProblemError, renumber_samples_in_errors
from pear.losses.forecast_judge import ForecastJudge
from pear.losses.regret_outcome import RegretOutcome
from pear.problem import Model, Problem
from pear.problem.model import model_input_count
from pear.problem.sample_keys import as_keys, count_keyed_samples
from pear.train.samples.features import call_on_features, evaluation_mode
from pear.train.samples.memory_samples import MemorySamples
from pear.train.samples.sample_batch import join_batch_keys
from pear.train.samples.sample_rows import Keys
from pear.train.samples.sample_source import SampleSource
from pear.train.samples.usable_samples import masks_unusable_samples
from pear.train.training_loss import loss_weight_option, loss_with_keys, problem_of_loss
from pear.train.validation import clean_validation, drop_unsolved_validation

Metric = Callable[[Tensor, Tensor], float]
"""A function from predicted costs and true costs to a number; lower is better."""

Score = Callable[[Tensor, Tensor, Keys | None], float]
"""A function from predicted costs, true costs and sample ids to a number; lower is better."""

Outcomes = Callable[[Tensor, Tensor, Keys | None], RegretOutcome]
"""A function from predicted costs, true costs and sample ids to the regrets of the decisions."""


def score_on_validation(model: nn.Module, samples: SampleSource, score: Score) -> float:
    """Return the score of the model, in evaluation mode, on these samples."""
    with evaluation_mode(model):
        return float(score(*forecast_validation(model, samples)))


def forecast_validation(model: nn.Module, samples: SampleSource) -> tuple[Tensor, Tensor, Keys | None]:
    """Forecast all samples with the model in evaluation mode.

    Returns:
        Three values: the predicted costs (N, n), the true costs (N, n), and the N ids, or None if there are none.
    """
    with evaluation_mode(model), torch.no_grad():
        found = [(call_on_features(model, batch.features), batch.costs, batch.keys) for batch in samples.whole()]
    if len(found) == 1:
        return found[0]
    predicted, true, keys = zip(*found, strict=True)
    return torch.cat(predicted), torch.cat(true), join_batch_keys(keys)


def default_validation_score(model: nn.Module, loss: Any, validation: SampleSource) -> tuple[SampleSource, Score]:
    """Return two values: the validation samples that can be used, and the default score of ``fit`` on them.

    The score is the normalised regret on the problem of the loss. For a loss without a problem it is the loss itself.
    Samples whose costs are not finite or that have no best decision are left out if the samples are in memory and the
    loss masks failed samples; otherwise they are refused.
    """
    validation = clean_validation(model, loss, validation)
    problem = problem_of_loss(loss)
    if not isinstance(problem, (Problem, Model)):
        value = loss_with_keys(loss)
        option = loss_weight_option(validation.weight)
        return validation, lambda predicted, true, keys: float(value(predicted, true, keys, **option))
    validation, outcomes = default_validation_outcomes(problem, loss, validation)
    weight = validation.weight
    return validation, lambda predicted, true, keys: outcomes(predicted, true, keys).weighted(weight).score


def default_validation_outcomes(
    problem: Problem | Model, loss: Any, validation: SampleSource
) -> tuple[SampleSource, Outcomes]:
    """Return two values: the validation samples that can be used, and a function for the regrets of decisions on them.

    Args:
        problem: the problem of the loss.
        loss: the loss, which says whether samples without a best decision are left out.
        validation: the validation samples, whose costs are finite.
    """
    rows = count_keyed_samples(problem)
    if rows is not None and validation.keys is None:
        raise ProblemError(
            f"the problem has fields of its own for {rows} samples, and the validation samples do not say which of "
            "them are theirs; put them last in the training samples and pass their share as validation, give their row "
            "numbers as ids, (features, costs, ids), or pass a metric"
        )
    if masks_unusable_samples(loss) and isinstance(validation, MemorySamples):
        validation = drop_unsolved_validation(problem, validation)
    return validation, _outcomes_on_validation(problem, validation)


class RegretMetric:
    """A metric: the normalised regret on fixed samples, or the mean regret if all best decisions have the value 0.

    Args:
        problem, costs, keys: as in ``make_validation_outcomes``.

    Attributes:
        check_seconds: the seconds that the best decisions took; each call takes about as long.
    """

    def __init__(self, problem: Problem | Model, costs: Tensor, keys: Keys | None = None) -> None:
        began = read_clock()
        self._outcomes = make_validation_outcomes(problem, costs, keys)
        self.check_seconds = read_clock() - began

    def __call__(self, predicted: Tensor, true: Tensor) -> float:
        """Return the metric of predicted costs (N, n); ``true`` is not used, because the samples are fixed."""
        return self._outcomes(predicted).score


def make_validation_outcomes(
    problem: Problem | Model, costs: Tensor, keys: Keys | None = None
) -> Callable[[Tensor], RegretOutcome]:
    """Return a function from predicted costs to the regrets of the decisions under these costs, on fixed samples.

    The best decisions are computed once, in this call.

    Args:
        problem: the decision problem, with its integers.
        costs: (N, n) true costs, or (N, k), the k true values that the cost map of a ``Model`` maps to costs.
        keys: the N ids of the samples; None for their row numbers. If the problem or the cost map has a row for each
            sample, an id is the number of the row. Errors name samples by ids that are numbers, which are the row
            numbers before validation samples were held out.
    """
    _check_validation_columns(problem, costs, "validation")
    numbers = keys.tolist() if isinstance(keys, Tensor) else range(len(costs))
    with renumber_samples_in_errors(numbers):
        return partial(_outcomes_of_judge, ForecastJudge(problem, costs, as_keys(keys, len(costs))), numbers)


def _outcomes_of_judge(judge: ForecastJudge, numbers: Sequence[int], predicted: Tensor) -> RegretOutcome:
    """Return the regrets of the decisions under predicted costs (N, n). Errors name the samples by ``numbers``."""
    with renumber_samples_in_errors(numbers):
        return judge(predicted)


def _check_validation_columns(problem: Problem | Model, costs: Tensor, name: str) -> None:
    """Raise ProblemError unless the costs have one column for each predicted value of the problem."""
    wanted = model_input_count(problem)
    if costs.dim() != 2 or costs.shape[1] != wanted:
        raise ProblemError(
            f"the costs of {name} must have shape (N, {wanted}), a column for each predicted cost of the problem; got "
            f"{tuple(costs.shape)}"
        )


def _outcomes_on_validation(problem: Problem | Model, validation: SampleSource) -> Outcomes:
    """Return a function that computes the regrets of decisions on validation samples from any source.

    The function gets predicted costs, true costs and ids. The best decisions are computed again if a DataLoader returns
    the samples in another order.
    """
    if isinstance(validation, MemorySamples):
        fixed = make_validation_outcomes(problem, validation.costs, validation.keys)
        return lambda predicted, true, keys: fixed(predicted)
    kept: list[tuple[Tensor, Keys | None, Callable[[Tensor], RegretOutcome]]] = []

    def outcomes(predicted: Tensor, true: Tensor, keys: Keys | None) -> RegretOutcome:
        """Return the regrets of the decisions under predicted costs."""
        if not kept or not torch.equal(kept[0][0], true) or kept[0][1] != keys:
            kept[:] = [(true, keys, make_validation_outcomes(problem, true, keys))]
        return kept[0][2](predicted)

    return outcomes
