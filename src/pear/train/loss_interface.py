"""What training needs of any loss: a call with sample ids, calibration, and the step of its guidance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from pear.losses import PEARLoss
from pear.losses.decision_loss import takes_keys
from pear.problem import Model
from pear.train.samples import SampleSource


def accept_keys(loss: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return a function of predicted costs, true costs and ``keys``, the B sample ids of a batch or None.

    That is the loss itself where it has an argument ``keys``; otherwise a function that calls it without them.

    Example:
        >>> import torch
        >>> ones = torch.ones(2, 3)
        >>> accept_keys(torch.nn.MSELoss())(ones, ones, keys=torch.arange(2))
        tensor(0.)
    """
    return loss if takes_keys(loss) else lambda predicted, true, keys: loss(predicted, true)


def calibrate_loss(loss: Any, train: SampleSource) -> None:
    """Call ``calibrate`` of a loss that has it with all true costs, and with the samples' ids where it takes them."""
    if not hasattr(loss, "calibrate"):
        return
    named = {"keys": train.keys} if takes_keys(loss.calibrate) and train.keys is not None else {}
    loss.calibrate(train.costs, **named)


def step_guidance(loss: Callable[..., Tensor]) -> None:
    """Call ``step`` of every ``PEARLoss`` inside a loss, after a step of the optimizer."""
    for module in loss.modules() if isinstance(loss, nn.Module) else ():
        if isinstance(module, PEARLoss):
            module.step()


def loss_counts(loss: Any) -> tuple[int, int]:
    """Return how many samples a loss has processed, and how many kept their working set; zeros for other losses."""
    return (loss.samples, loss.reused) if isinstance(loss, PEARLoss) else (0, 0)


def problem_of_loss(loss: Any) -> Any:
    """Return the problem that a loss was made with, with its integers and cost map; None where it has none."""
    given, problem, cost_map = (getattr(loss, name, None) for name in ("given", "problem", "cost_map"))
    if given is not None or problem is None or cost_map is None:
        return problem if given is None else given
    return Model(problem, cost_map=cost_map)
