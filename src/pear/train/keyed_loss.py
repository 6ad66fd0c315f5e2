"""``accept_keys``: call every loss with predicted costs, true costs and the ids of the samples."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Protocol

from torch import Tensor, nn

from pear.losses import PEARLoss
from pear.train.samples.features import Keys


class KeyedLoss(Protocol):
    """A loss that may keep warm starts of the samples from epoch to epoch."""

    def __call__(self, predicted: Tensor, true: Tensor, keys: Keys | None) -> Tensor:
        """A scalar for a batch; ``keys`` are its B ids or row numbers in the training data, None where it has none."""
        ...


def accept_keys(loss: Callable[..., Tensor]) -> KeyedLoss:
    """The loss itself where it has an argument named ``keys``; otherwise one that drops them.

    Example:
        >>> import torch
        >>> ones = torch.ones(2, 3)
        >>> accept_keys(torch.nn.MSELoss())(ones, ones, keys=torch.arange(2))
        tensor(0.)
    """
    signature = inspect.signature(loss.forward if isinstance(loss, nn.Module) else loss)
    if "keys" in signature.parameters:
        return loss
    return _WithoutKeys(loss)


class _WithoutKeys(nn.Module):
    """A loss of predicted and true costs alone, called with keys."""

    def __init__(self, loss: Callable[..., Tensor]) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, predicted: Tensor, true: Tensor, keys: Keys | None) -> Tensor:
        """The loss; ``keys`` are dropped."""
        return self.loss(predicted, true)


def step_guidance(loss: Callable[..., Tensor]) -> None:
    """Call ``step`` of every ``PEARLoss`` inside a loss: the optimiser has taken a step."""
    for module in loss.modules() if isinstance(loss, nn.Module) else ():
        if isinstance(module, PEARLoss):
            module.step()
