"""The order in which an epoch visits the samples."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Order = Callable[[int, torch.Generator], Tensor]
"""(number of samples, generator) → (number of samples,) indices, on the CPU."""


def shuffled(count: int, generator: torch.Generator) -> Tensor:
    """A new random order every epoch."""
    return torch.randperm(count, generator=generator)


def in_order(count: int, generator: torch.Generator) -> Tensor:
    """The order of the data, in every epoch; draws nothing."""
    return torch.arange(count)
