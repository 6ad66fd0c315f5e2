"""The order in which an epoch visits the samples."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Order = Callable[[int, torch.Generator], Tensor]
"""A function from the number N of samples and a generator to N indices on the CPU, in the order of an epoch."""


def shuffled(count: int, generator: torch.Generator) -> Tensor:
    """Return the row numbers of ``count`` samples in a random order, (count,). Each call draws another order."""
    return torch.randperm(count, generator=generator)


def in_order(count: int, generator: torch.Generator) -> Tensor:
    """Return the row numbers of ``count`` samples in ascending order, (count,). The generator is not used."""
    return torch.arange(count)
