"""``accept_keys``: call every loss with predicted costs, true costs and the ids of the samples."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Protocol

from torch import Tensor, nn

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

    def without_keys(predicted: Tensor, true: Tensor, keys: Keys | None) -> Tensor:
        return loss(predicted, true)

    return without_keys
