"""A task: which of six shifts a person works."""

from dataclasses import dataclass

import torch

import pear
from pear.tasks import Samples, Task


@dataclass(frozen=True)
class Shifts(Task):
    """At most three of six shifts, and no night shift before a morning shift."""

    def samples(self, count, seed=0):
        """Return features (count, 4), and the worth of each shift (count, 6)."""
        draw = torch.Generator().manual_seed(seed)
        features = torch.randn(count, 4, generator=draw)
        return Samples(features, (features @ torch.randn(4, 6, generator=draw) / 2).exp())


def shifts():
    """Make the task."""
    rules = torch.tensor([[1.0] * 6, [0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 1, 1]])
    return Shifts("shifts", pear.Problem(G=rules, h=[3.0, 1.0, 1.0], lb=0, ub=1, sense="max", integer=True))
