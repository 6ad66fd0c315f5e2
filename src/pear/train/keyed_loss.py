"""``accept_keys``: makes any loss callable with predicted costs, true costs and sample ids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from torch import Tensor, nn

from pear.losses import PEARLoss
from pear.losses.decision_loss import takes_keys
from pear.train.samples.features import Keys


class KeyedLoss(Protocol):
    """The interface of a loss that is called with sample ids, under which it may store warm starts."""

    def __call__(self, predicted: Tensor, true: Tensor, keys: Keys | None) -> Tensor:
        """Compute the loss of a batch, a scalar; ``keys`` are B sample ids, or None."""
        ...


def accept_keys(loss: Callable[..., Tensor]) -> KeyedLoss:
    """Return the loss itself where it has an argument ``keys``; otherwise a wrapper that drops the keys.

    Example:
        >>> import torch
        >>> ones = torch.ones(2, 3)
        >>> accept_keys(torch.nn.MSELoss())(ones, ones, keys=torch.arange(2))
        tensor(0.)
    """
    return loss if takes_keys(loss) else _WithoutKeys(loss)


class _WithoutKeys(nn.Module):
    """A wrapper that calls a loss without the keys."""

    def __init__(self, loss: Callable[..., Tensor]) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, predicted: Tensor, true: Tensor, keys: Keys | None) -> Tensor:
        """Compute the loss without ``keys``."""
        return self.loss(predicted, true)


def step_guidance(loss: Callable[..., Tensor]) -> None:
    """Call ``step`` of every ``PEARLoss`` inside a loss, after a step of the optimiser."""
    for module in loss.modules() if isinstance(loss, nn.Module) else ():
        if isinstance(module, PEARLoss):
            module.step()
