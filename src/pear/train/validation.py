"""The validation samples of ``fit`` and ``tune``: the user gives them, or they are held out of the training samples."""

from __future__ import annotations

from typing import Any

from torch import nn

from pear.decisions.failures import report_failures
from pear.decisions.solve import solve
from pear.errors import ProblemError
from pear.losses.forecast_judge import ForecastJudge
from pear.losses.recourse_judge import best_recourse_status
from pear.optimality.status import Status
from pear.problem import Model, Problem
from pear.problem.model import model_with_predicted_rows
from pear.problem.sample_keys import as_keys, count_keyed_samples
from pear.train.samples import ParquetSamples
from pear.train.samples.loader_samples import LoaderSamples
from pear.train.samples.memory_samples import MemorySamples
from pear.train.samples.sample_source import SampleSource, read_sample_source
from pear.train.samples.usable_samples import check_usable_costs, masks_unusable_samples

SHARE = 0.2
"""The share of the training samples that is held out for validation by default."""


def find_validation_samples(
    train: SampleSource, validation: Any, model: nn.Module, problem: Any
) -> tuple[SampleSource, SampleSource, int]:
    """Return three values: the samples to train on, the validation samples, and the number of held-out samples.

    Args:
        train: all training samples.
        validation: validation samples, the share of ``train`` to hold out, or None for the default share, ``SHARE``.
        model: the model that is trained.
        problem: the problem of the loss, or None.
    """
    if validation is not None and not isinstance(validation, (bool, int, float)):
        own = validation.read() if isinstance(validation, ParquetSamples) else validation
        return train, read_sample_source(own, "validation", model), 0
    if not isinstance(train, MemorySamples):
        what = "a DataLoader" if isinstance(train, LoaderSamples) else "ParquetSamples"
        raise ProblemError(
            f"{what} is not read into memory, so that no samples can be held out of it; pass "
            "validation=, a pair, a Dataset, another DataLoader, or ParquetSamples of other files"
        )
    kept, held_out = hold_out_validation(train, validation, problem)
    return kept, held_out, len(held_out)


def hold_out_validation(samples: MemorySamples, share: Any, problem: Any) -> tuple[MemorySamples, MemorySamples]:
    """Split samples into the first samples, to train on, and the last samples, to validate on.

    The last samples keep their row numbers as ids.

    Args:
        samples: all samples.
        share: the share of samples to hold out; None stands for the default, ``SHARE``.
        problem: the problem of the loss, or None. A field that differs between samples, such as b, must have a row for
            each of ``samples``.
    """
    check_validation_rows(samples, problem)
    return samples.cut(len(samples) - count_validation_samples(len(samples), SHARE if share is None else share))


def check_validation_rows(samples: MemorySamples, problem: Any) -> None:
    """Raise ProblemError if there is only one sample, or if there are more or fewer samples than rows of the problem.

    Samples with ids are not compared with the rows, because an id says which row belongs to its sample.
    """
    count, own = len(samples), count_keyed_samples(problem)
    if count < 2:
        raise ProblemError(f"two samples at least are needed, one to train on and one to validate; got {count}")
    if samples.keys is None and own not in (None, count):
        raise ProblemError(f"the problem has fields of its own for {own} samples, and X has {count} rows")


def count_validation_samples(count: int, share: Any) -> int:
    """Return how many of ``count`` samples this share holds out: at least one, and at most all but one.

    Raises:
        ProblemError: the share is not a number between 0 and 1.
    """
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share < 1:
        raise ProblemError(
            "validation must be a share between 0 and 1 (validation_fraction of DecisionRegressor), or a pair of "
            f"features and costs; got {share!r}"
        )
    return count - min(max(count - round(share * count), 1), count - 1)


def describe_validation(taken: int, left: int) -> str:
    """Return a sentence that says which samples were held out for validation.

    Args:
        taken: the number of held-out samples.
        left: the number of samples to train on.
    """
    return f"the last {taken} of {taken + left} samples were held out to validate on; pass validation= for others"


def clean_validation(model: nn.Module, loss: Any, validation: SampleSource) -> SampleSource:
    """Return the validation samples without those that are not finite.

    Samples are left out only if they are in memory and the loss masks failed samples. A sample is then left out if its
    costs are not finite, or if its features lead to forecasts that are not finite.

    Raises:
        ProblemError: costs are not finite, and samples cannot be left out; or no sample is left.
    """
    if masks_unusable_samples(loss) and isinstance(validation, MemorySamples):
        return validation.usable(model, loss, "validation").finite()
    check_usable_costs(validation.costs, "validation", None, validation.keys)
    return validation


def drop_unsolved_validation(problem: Problem | Model, validation: MemorySamples) -> MemorySamples:
    """Return the validation samples that have a best decision; a warning names the others.

    Raises:
        ProblemError: no sample has a best decision.
    """
    costs = validation.costs
    keys, model = as_keys(validation.keys, len(costs)), model_with_predicted_rows(problem)
    if model is not None:
        status = best_recourse_status(model, costs.double(), keys)
        report_failures(status, "mask", "the problem")
        solved = status == Status.SOLVED
    else:
        rows, costs_of = ForecastJudge.rows_and_costs(problem, keys)
        solved = solve(rows, costs_of(costs), on_failure="mask").solved
    if not bool(solved.any()):
        raise ProblemError(f"none of the {len(costs)} validation samples can be solved; pass others as validation")
    return validation if bool(solved.all()) else MemorySamples(validation.all.only(solved.to(costs.device)))
