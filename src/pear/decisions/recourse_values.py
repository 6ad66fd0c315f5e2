"""``RecourseValues``: the costs, right-hand sides and coefficients that follow from predicted or true values."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor


class RecourseValues(NamedTuple):
    """The costs, right-hand sides and coefficients that follow from predicted or true values.

    Attributes:
        cost: (B, n) costs.
        sides: the right-hand sides b, h, lb and ub by name, each (r,) or (B, r) with its own number r of entries.
        matrices: A and G by name, each (B, r, n) with its own number r of rows, if their coefficients are predicted.
    """

    cost: Tensor
    sides: dict[str, Tensor]
    matrices: Mapping[str, Tensor] = MappingProxyType({})

    def detach(self) -> RecourseValues:
        """Return the same numbers, detached from their autograd graph."""
        sides, matrices = ({name: one.detach() for name, one in part.items()} for part in (self.sides, self.matrices))
        return RecourseValues(self.cost.detach(), sides, matrices)

    def size(self) -> Tensor:
        """Return the largest finite right-hand side in absolute value, but at least 1. Shape (B,)."""
        sizes = [side.expand(len(self.cost), -1).abs() for side in self.sides.values() if side.shape[-1]]
        entries = torch.cat([torch.ones_like(self.cost[:, :1]), *sizes], 1)
        return torch.where(entries.isfinite(), entries, 0.0).amax(1)

    def only(self, rows: Tensor) -> RecourseValues:
        """Return the values of the samples at positions ``rows`` (k,)."""
        sides = {name: s[rows] if s.ndim == 2 else s for name, s in self.sides.items()}
        return RecourseValues(self.cost[rows], sides, {name: matrix[rows] for name, matrix in self.matrices.items()})
