"""What training needs of any loss: a call with sample ids, calibration, and the step of its guidance."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from pear.errors import ProblemError
from pear.losses import PEARLoss
from pear.problem import Model
from pear.problem.oracle_function import function_argument_names
from pear.problem.sample_keys import takes_keys
from pear.train.samples.memory_samples import MemorySamples
from pear.train.samples.sample_batch import SampleBatch
from pear.train.samples.sample_source import SampleSource


def loss_with_keys(loss: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return a function of predicted costs, true costs and ``keys``, the B sample ids of a batch or None.

    That is the loss itself where it has an argument ``keys``; otherwise a function that calls it without them.

    Example:
        >>> import torch
        >>> ones = torch.ones(2, 3)
        >>> loss_with_keys(torch.nn.MSELoss())(ones, ones, keys=torch.arange(2))
        tensor(0.)
    """
    return loss if takes_keys(loss) else lambda predicted, true, keys, **named: loss(predicted, true, **named)


def loss_weight_option(weight: Tensor | None) -> dict[str, Tensor]:
    """The keyword argument ``weight`` for the call of a loss, as a dict; empty where samples have no weights."""
    return {} if weight is None else {"weight": weight}


def call_training_loss(loss: Callable[..., Tensor], predicted: Tensor, batch: SampleBatch, is_sum: bool) -> Tensor:
    """Compute the loss of a training batch, weighted where its samples have weights.

    The weighted sum is divided by the number of samples, not by their weight: a batch of little weight takes a small
    step.

    Args:
        loss: a result of ``loss_with_keys``.
        predicted: (B, n) predicted costs.
        batch: the samples, whose weights have a mean of 1 over the training set.
        is_sum: whether the loss is a sum over the samples.
    """
    value = loss(predicted, batch.costs, keys=batch.keys, **loss_weight_option(batch.weight))
    return value if batch.weight is None or is_sum else value * batch.weight.mean().to(value)


def check_loss_takes_weight(loss: Callable[..., Tensor]) -> None:
    """Raise ProblemError where a loss has no argument ``weight``."""
    if "weight" not in function_argument_names(loss):
        name = getattr(loss, "__qualname__", type(loss).__qualname__)
        raise ProblemError(
            f"sample_weight came, and the loss {name} has no argument weight; take a loss of pear.losses (MSELoss for "
            "the squared error), or write loss(predicted, true, weight=None), which returns the weighted mean"
        )


def calibrate_training_loss(loss: Any, train: SampleSource) -> None:
    """Call ``calibrate`` of a loss that has it with all true costs, and with the samples' ids where it takes them.

    Samples of weight 0 are left out.
    """
    if not hasattr(loss, "calibrate"):
        return
    costs, keys = train.costs, train.keys
    if isinstance(train, MemorySamples) and train.weight is not None:
        _, costs, keys, _ = train.at((train.weight > 0).nonzero()[:, 0])
    named = {"keys": keys} if takes_keys(loss.calibrate) and keys is not None else {}
    loss.calibrate(costs, **named)


def step_training_loss(loss: Callable[..., Tensor]) -> None:
    """Call ``step`` of every ``PEARLoss`` inside a loss, after a step of the optimizer."""
    for module in loss.modules() if isinstance(loss, nn.Module) else ():
        if isinstance(module, PEARLoss):
            module.step()


def training_loss_counts(loss: Any) -> tuple[int, int]:
    """Return how many samples a loss has processed, and how many kept their working set; zeros for other losses."""
    return (loss.samples, loss.reused) if isinstance(loss, PEARLoss) else (0, 0)


def problem_of_loss(loss: Any) -> Any:
    """Return the problem that a loss was made with, with its integers and cost map; None where it has none."""
    given, problem, cost_map = (getattr(loss, name, None) for name in ("given", "problem", "cost_map"))
    if given is not None or problem is None or cost_map is None:
        return problem if given is None else given
    return Model(problem, cost_map=cost_map)


def save_loss_schedule(loss: Any) -> dict[str, Any]:
    """The state of a loss that changes from step to step, such as the strength of its guidance."""
    return copy.deepcopy(loss.state_dict()) if isinstance(loss, nn.Module) else {}


def load_loss_schedule(loss: Any, state: dict[str, Any]) -> None:
    """Put a loss back to a state of ``save_loss_schedule``."""
    if isinstance(loss, nn.Module):
        loss.load_state_dict(copy.deepcopy(state))


def save_loss_warm_starts(loss: Any) -> dict[str, Any]:
    """The warm starts of all samples, by the name of the loss's module that keeps them."""
    return {name: module.sample_state() for name, module in _loss_modules_with_warm_starts(loss)}


def load_loss_warm_starts(loss: Any, saved: Mapping[str, Any]) -> None:
    """Put back a result of ``save_loss_warm_starts``."""
    for name, module in _loss_modules_with_warm_starts(loss):
        module.load_sample_state(saved[name])


def _loss_modules_with_warm_starts(loss: Any) -> list[tuple[str, Any]]:
    """The names and modules of a loss that store warm starts."""
    modules = loss.named_modules() if isinstance(loss, nn.Module) else ()
    return [(name, module) for name, module in modules if hasattr(module, "sample_state")]


def loss_smoothing_multiple(smoothing: Any) -> float | None:
    """Return the factor of a smoothing such as "auto*3", here 3.0; None for any other smoothing.

    Raises:
        ProblemError: what follows "auto*" is not a positive number.
    """
    if not isinstance(smoothing, str) or not smoothing.startswith("auto*"):
        return None
    try:
        times = float(smoothing.removeprefix("auto*"))
    except ValueError:
        times = math.nan
    if not 0 < times < math.inf:
        raise ProblemError(f"smoothing must be a number, 'auto' or a multiple such as 'auto*3'; got {smoothing!r}")
    return times
