"""The validation samples and the metric on them, for ``fit`` and ``tune``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from pear.clock import read_clock
from pear.decisions.failures import report_failures
from pear.decisions.solve import solve
from pear.errors import ProblemError, SolveError
from pear.losses.forecast_judge import ForecastJudge, judged_rows_and_costs
from pear.losses.recourse_outcome import best_recourse_status
from pear.losses.regret_outcome import RegretOutcome
from pear.optimality.duals_and_active_sets import Status
from pear.problem import Model, Problem
from pear.problem.keys_and_columns import as_keys
from pear.problem.model import input_count, plain_problem, recourse_model
from pear.solvers.time_limit import within
from pear.train.loss_interface import accept_keys, problem_of_loss, weight_option
from pear.train.samples import ParquetSamples, SampleSource, as_samples
from pear.train.samples.features import Keys, call_model, check_costs, masks_failures
from pear.train.samples.loader_samples import LoaderSamples
from pear.train.samples.memory_samples import MemorySamples, join_keys

SHARE = 0.2
"""The share of the samples that is held out by default."""

T = TypeVar("T")

OVERRUN = 0.05
"""The share of a time cap by which a judgement that is under way may overrun it."""

Metric = Callable[[Tensor, Tensor], float]
Score = Callable[[Tensor, Tensor, Keys | None], float]
"""A function from predicted costs, true costs and sample ids to a number; lower is better."""
Outcomes = Callable[[Tensor, Tensor, Keys | None], RegretOutcome]
"""A function from predicted costs, true costs and sample ids to what the decisions lose."""


def with_validation(
    train: SampleSource, validation: Any, model: nn.Module, problem: Any
) -> tuple[SampleSource, SampleSource, int]:
    """Find the validation samples.

    Args:
        train: the training samples.
        validation: None, the share of ``train`` to hold out, or samples of their own.
        model: the trained model.
        problem: the problem of the loss, or None.

    Returns:
        The samples to train on, the samples to validate on, and how many of these were held out of ``train``.
    """
    if validation is not None and not isinstance(validation, (bool, int, float)):
        own = validation.read() if isinstance(validation, ParquetSamples) else validation
        return train, as_samples(own, "validation", model), 0
    if not isinstance(train, MemorySamples):
        what = "a DataLoader" if isinstance(train, LoaderSamples) else "ParquetSamples"
        raise ProblemError(
            f"{what} is not read into memory, so that no samples can be held out of it; pass "
            "validation=, a pair, a Dataset, another DataLoader, or ParquetSamples of other files"
        )
    kept, held_out = hold_out(train, validation, problem)
    return kept, held_out, len(held_out)


def hold_out(samples: MemorySamples, share: Any, problem: Any) -> tuple[MemorySamples, MemorySamples]:
    """Split samples into the first ones, to train on, and the last ones, which keep their row numbers.

    Args:
        samples: the samples, in their own order.
        share: the share of samples to hold out; None stands for 0.2.
        problem: the problem of the loss, or None. A problem with fields per sample must have a row for each sample.
    """
    check_can_hold_out(samples, problem)
    return samples.cut(len(samples) - rows_of_share(len(samples), SHARE if share is None else share))


def check_can_hold_out(samples: MemorySamples, problem: Any) -> None:
    """Raise ProblemError where samples are too few to hold any out, or do not belong to the rows of the problem."""
    count, own = len(samples), own_rows(problem)
    if count < 2:
        raise ProblemError(f"two samples at least are needed, one to train on and one to validate; got {count}")
    if samples.keys is None and own not in (None, count):
        raise ProblemError(f"the problem has fields of its own for {own} samples, and X has {count} rows")


def rows_of_share(count: int, share: Any) -> int:
    """Return how many of ``count`` samples are held out, at least one, so that one at least is left.

    Raises:
        ProblemError: the share is not a number between 0 and 1.
    """
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share < 1:
        raise ProblemError(
            f"validation must be a share between 0 and 1, or a pair of features and costs; got {share!r}"
        )
    return count - min(max(count - round(share * count), 1), count - 1)


def held_out_note(taken: int, left: int) -> str:
    """Describe in a sentence which samples were held out.

    Args:
        taken: the number of samples held out.
        left: the number of samples left to train on.
    """
    return f"the last {taken} of {taken + left} samples were held out to validate on; pass validation= for others"


def evaluate(model: nn.Module, samples: SampleSource, score: Score) -> float:
    """Compute the score of the model on these samples, in evaluation mode."""
    return float(score(*forecast_samples(model, samples)))


def seconds_to_judge(cap: float | None, spent: float) -> float | None:
    """The seconds that a judgement may take, so that it ends soon after the cap; None without a cap.

    Args:
        cap: the time cap in seconds, or None.
        spent: the seconds that have gone by.
    """
    return None if cap is None else (1 + OVERRUN) * cap - spent


def judge_in_time(seconds: float | None, judge: Callable[[], T]) -> T | None:
    """Call a function that decides for validation samples; return None if its integer programs run out of time.

    Args:
        seconds: the time; None for no limit.
        judge: the function.
    """
    if seconds is None:
        return judge()
    if seconds <= 0:
        return None
    try:
        with within(seconds, even=False):
            return judge()
    except SolveError as error:
        if Status.TIME_LIMIT in error.statuses:
            return None
        raise


def forecast_samples(model: nn.Module, samples: SampleSource) -> tuple[Tensor, Tensor, Keys | None]:
    """Forecast all samples in evaluation mode; returns predicted costs, true costs and ids."""
    model.eval()
    with torch.no_grad():
        found = [(call_model(model, batch.features), batch.costs, batch.keys) for batch in samples.whole()]
    if len(found) == 1:
        return found[0]
    predicted, true, keys = zip(*found, strict=True)
    return torch.cat(predicted), torch.cat(true), join_keys(keys)


def own_rows(problem: Any) -> int | None:
    """Return the number of samples that a problem or its cost map has rows for; None where all samples share one."""
    if not isinstance(problem, (Problem, Model)):
        return None
    plain, cost_map = plain_problem(problem), problem.cost_map if isinstance(problem, Model) else None
    return plain.batch if cost_map is None or plain.batch is not None else cost_map.batch


def default_score(model: nn.Module, loss: Any, validation: SampleSource) -> tuple[SampleSource, Score]:
    """Make the default score of ``fit``; returns the usable validation samples and the score on them.

    The score is the normalised regret on the problem of the loss, or, for a loss without a problem, the loss itself.
    Samples that are not finite, or have no best decision, are left out where the loss masks failed samples and the
    samples are in memory; otherwise they are refused.
    """
    validation = clean_validation(model, loss, validation)
    problem = problem_of_loss(loss)
    if not isinstance(problem, (Problem, Model)):
        value = accept_keys(loss)
        option = weight_option(weight_of(validation))
        return validation, lambda predicted, true, keys: float(value(predicted, true, keys, **option))
    validation, outcomes = default_outcomes(problem, loss, validation)
    weight = weight_of(validation)
    return validation, lambda predicted, true, keys: outcomes(predicted, true, keys).weighted(weight).score


def weight_of(samples: SampleSource) -> Tensor | None:
    """Return the weights of samples in memory; None where they have none."""
    return samples.weight if isinstance(samples, MemorySamples) else None


def clean_validation(model: nn.Module, loss: Any, validation: SampleSource) -> SampleSource:
    """Leave out samples that are not finite where the loss masks failed samples and they are in memory.

    Raises:
        ProblemError: there are such samples, and the loss does not mask.
    """
    if masks_failures(loss) and isinstance(validation, MemorySamples):
        return validation.usable(model, loss, "validation").finite()
    check_costs(validation.costs, "validation", None)
    return validation


def default_outcomes(problem: Problem | Model, loss: Any, validation: SampleSource) -> tuple[SampleSource, Outcomes]:
    """Make the function that decides under forecasts; returns the samples that can be solved, and the function.

    Args:
        problem: the problem of the loss.
        loss: says whether samples without a best decision are left out.
        validation: the samples, whose costs are finite.
    """
    rows = own_rows(problem)
    if rows is not None and validation.keys is None:
        raise ProblemError(
            f"the problem has fields of its own for {rows} samples, and the validation samples do not say which of "
            "them are theirs; put them last in the training samples and pass their share as validation, give their row "
            "numbers as ids, (features, costs, ids), or pass a metric"
        )
    if masks_failures(loss) and isinstance(validation, MemorySamples):
        validation = _drop_unsolved(problem, validation)
    return validation, _outcomes_on_samples(problem, validation)


class RegretMetric:
    """A metric: the normalised regret on fixed samples; where all best values are 0, the mean regret.

    Args:
        problem, costs, keys: as for ``outcomes_on``.

    Attributes:
        check_seconds: the seconds that the best decisions took, about those of every call.
    """

    def __init__(self, problem: Problem | Model, costs: Tensor, keys: Keys | None = None) -> None:
        began = read_clock()
        self._outcomes = outcomes_on(problem, costs, keys)
        self.check_seconds = read_clock() - began

    def __call__(self, predicted: Tensor, true: Tensor) -> float:
        """Compute the metric of predicted costs; the true ones are those of the fixed samples."""
        return self._outcomes(predicted).score


def outcomes_on(problem: Problem | Model, costs: Tensor, keys: Keys | None = None) -> Callable[[Tensor], RegretOutcome]:
    """Make a function from predicted costs to what the decisions under them lose on these samples.

    The best decisions are computed once, when the function is made, and so is the choice of the device that decides.

    Args:
        problem: the decision problem, with its integers.
        costs: (N, n) true costs, or (N, k) values that its cost map takes.
        keys: N ids: the row numbers in a problem or cost map with fields per sample.
    """
    _check_validation_columns(problem, costs, "validation")
    return ForecastJudge(problem, costs, as_keys(keys, len(costs)))


def _drop_unsolved(problem: Problem | Model, validation: MemorySamples) -> MemorySamples:
    """Leave out samples that have no best decision; ``solve`` warns of them."""
    costs = validation.costs
    keys, model = as_keys(validation.keys, len(costs)), recourse_model(problem)
    if model is not None:
        status = best_recourse_status(model, costs.double(), keys)
        report_failures(status, "mask", "the problem")
        solved = status == Status.SOLVED
    else:
        rows, costs_of = judged_rows_and_costs(problem, keys)
        solved = solve(rows, costs_of(costs), on_failure="mask").solved
    if not bool(solved.any()):
        raise ProblemError(f"none of the {len(costs)} validation samples can be solved; pass others as validation")
    return validation if bool(solved.all()) else MemorySamples(validation.all.only(solved.to(costs.device)))


def _check_validation_columns(problem: Problem | Model, costs: Tensor, name: str) -> None:
    """Raise ProblemError unless costs have one column for each predicted value."""
    wanted = input_count(problem)
    if costs.dim() != 2 or costs.shape[1] != wanted:
        raise ProblemError(
            f"the costs of {name} must have shape (N, {wanted}), a column for each predicted cost of the problem; got "
            f"{tuple(costs.shape)}"
        )


def _outcomes_on_samples(problem: Problem | Model, validation: SampleSource) -> Outcomes:
    """Make the function of ``outcomes_on`` for validation samples from any source.

    If a DataLoader returns the samples in another order, their best decisions are computed again.
    """
    if isinstance(validation, MemorySamples):
        fixed = outcomes_on(problem, validation.costs, validation.keys)
        return lambda predicted, true, keys: fixed(predicted)
    kept: list[tuple[Tensor, Keys | None, Callable[[Tensor], RegretOutcome]]] = []

    def outcomes(predicted: Tensor, true: Tensor, keys: Keys | None) -> RegretOutcome:
        if not kept or not torch.equal(kept[0][0], true) or kept[0][1] != keys:
            kept[:] = [(true, keys, outcomes_on(problem, true, keys))]
        return kept[0][2](predicted)

    return outcomes
