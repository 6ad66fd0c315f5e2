"""Functions that a training needs for its loss: to call, calibrate and step it, and to save its state."""

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
    """Return the loss as a function of predicted costs, true costs and ``keys``, the B sample ids of a batch or None.

    If the loss has no argument ``keys``, the function ignores the ids.

    Example:
        >>> import torch
        >>> ones = torch.ones(2, 3)
        >>> loss_with_keys(torch.nn.MSELoss())(ones, ones, keys=torch.arange(2))
        tensor(0.)
    """
    return loss if takes_keys(loss) else lambda predicted, true, keys, **named: loss(predicted, true, **named)


def loss_weight_option(weight: Tensor | None) -> dict[str, Tensor]:
    """Return the weights (B,) of samples as the keyword arguments of a loss: {"weight": weight}, or {} for None."""
    return {} if weight is None else {"weight": weight}


def call_training_loss(loss: Callable[..., Tensor], predicted: Tensor, batch: SampleBatch, is_sum: bool) -> Tensor:
    """Return the loss of a training batch.

    If the samples have weights and the loss is a mean, the result is the weighted sum of the losses of the samples,
    divided by B, the number of samples in the batch. (The loss itself divides by the sum of their weights.) A batch of
    small weights thus leads to a small step.

    Args:
        loss: a result of ``loss_with_keys``.
        predicted: (B, n) predicted costs.
        batch: the samples. The mean of the weights over all training samples is 1.
        is_sum: whether the loss is a sum over the samples, and no mean.
    """
    value = loss(predicted, batch.costs, keys=batch.keys, **loss_weight_option(batch.weight))
    return value if batch.weight is None or is_sum else value * batch.weight.mean().to(value)


def check_loss_takes_weight(loss: Callable[..., Tensor]) -> None:
    """Raise ProblemError if a loss has no argument ``weight``."""
    if "weight" not in function_argument_names(loss):
        name = getattr(loss, "__qualname__", type(loss).__qualname__)
        raise ProblemError(
            f"sample_weight came, and the loss {name} has no argument weight; take a loss of pear.losses (MSELoss for "
            "the squared error), or write loss(predicted, true, weight=None), which returns the weighted mean"
        )


def calibrate_training_loss(loss: Any, train: SampleSource) -> None:
    """Call the method ``calibrate`` of a loss, if it has one, with the true costs of all samples of positive weight.

    If ``calibrate`` has an argument ``keys``, it also gets the ids of the samples.
    """
    if not hasattr(loss, "calibrate"):
        return
    costs, keys = train.costs, train.keys
    if isinstance(train, MemorySamples) and train.weight is not None:
        _, costs, keys, _ = train.at((train.weight > 0).nonzero()[:, 0])
    named = {"keys": keys} if takes_keys(loss.calibrate) and keys is not None else {}
    loss.calibrate(costs, **named)


def step_training_loss(loss: Callable[..., Tensor]) -> None:
    """Call ``step`` of every ``PEARLoss`` in a loss, so that guidance becomes weaker after a step of the optimizer."""
    for module in loss.modules() if isinstance(loss, nn.Module) else ():
        if isinstance(module, PEARLoss):
            module.step()


def training_loss_counts(loss: Any) -> tuple[int, int]:
    """Return two counts of a ``PEARLoss``, over all of its calls; (0, 0) for any other loss.

    The first is the number of samples. The second is the number of those for which the warm start was still optimal.
    """
    return (loss.samples, loss.reused) if isinstance(loss, PEARLoss) else (0, 0)


def problem_of_loss(loss: Any) -> Any:
    """Return the problem that a loss was made with, including integers and cost map; None if it has no problem."""
    given, problem, cost_map = (getattr(loss, name, None) for name in ("given", "problem", "cost_map"))
    if given is not None or problem is None or cost_map is None:
        return problem if given is None else given
    return Model(problem, cost_map=cost_map)


def training_loss_seconds(loss: Any) -> dict[str, float]:
    """Return the seconds that a loss has spent so far, by the name of the work: at least "solve" and "gradient"."""
    return {"solve": 0.0, "gradient": 0.0, **getattr(loss, "seconds", {})}


def save_loss_schedule(loss: Any) -> dict[str, Any]:
    """Return a copy of what changes in a loss from step to step, such as the strength of the guidance."""
    return copy.deepcopy(loss.state_dict()) if isinstance(loss, nn.Module) else {}


def load_loss_schedule(loss: Any, state: dict[str, Any]) -> None:
    """Set a loss to a state that ``save_loss_schedule`` returned."""
    if isinstance(loss, nn.Module):
        loss.load_state_dict(copy.deepcopy(state))


def save_training_loss_warm_starts(loss: Any) -> dict[str, Any]:
    """Return the warm starts of all samples, in a dict by the names of the loss's modules that store them."""
    return {name: module.sample_state() for name, module in _loss_modules_with_warm_starts(loss)}


def load_training_loss_warm_starts(loss: Any, saved: Mapping[str, Any]) -> None:
    """Set the warm starts of a loss to those that ``save_training_loss_warm_starts`` returned."""
    for name, module in _loss_modules_with_warm_starts(loss):
        module.load_sample_state(saved[name])


def _loss_modules_with_warm_starts(loss: Any) -> list[tuple[str, Any]]:
    """Return a pair (name, module) for each module of a loss that stores warm starts."""
    modules = loss.named_modules() if isinstance(loss, nn.Module) else ()
    return [(name, module) for name, module in modules if hasattr(module, "sample_state")]


def training_loss_smoothing_multiple(smoothing: Any) -> float | None:
    """Return the factor of a multiple of "auto", such as 3.0 for "auto*3"; None for any other smoothing.

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
