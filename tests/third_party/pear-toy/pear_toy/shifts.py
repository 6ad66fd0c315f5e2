"""A task: who works which of six shifts."""

from dataclasses import dataclass

import torch

import pear
from pear.tasks import Samples, Task


@dataclass(frozen=True)
class Shifts(Task):
    """Three shifts at most, and not the night before a morning."""

    def samples(self, count, seed=0):
        """Features (count, 4), and what each shift is worth (count, 6)."""
        draw = torch.Generator().manual_seed(seed)
        features = torch.randn(count, 4, generator=draw)
        return Samples(features, (features @ torch.randn(4, 6, generator=draw) / 2).exp())


def shifts():
    """Make the task."""
    rules = torch.tensor([[1.0] * 6, [0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 1, 1]])
    return Shifts("shifts", pear.Problem(G=rules, h=[3.0, 1.0, 1.0], lb=0, ub=1, sense="max", integer=True))
