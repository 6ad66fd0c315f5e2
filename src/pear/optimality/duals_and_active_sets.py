"""The multipliers and the active sets of a batch of samples."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pear.optimality.status import Status as Status  # documented as part of this module
from pear.optimality.tensor_record import TensorRecord


@dataclass(frozen=True)
class Duals(TensorRecord):
    """The multipliers of minimisations, with signs such that ``Hx + c + Aᵀ equality + Gᵀ inequality + bound = 0``.

    Attributes:
        equality: (B, p) multipliers of the equalities, of either sign.
        inequality: (B, m) multipliers of the inequalities, never negative.
        bound: (B, n) multipliers of the bounds: at most 0 at a lower bound, at least 0 at an upper bound.
    """

    equality: Tensor
    inequality: Tensor
    bound: Tensor


@dataclass(frozen=True)
class ActiveSet(TensorRecord):
    """The inequalities and bounds of each sample that hold with equality. The equalities are left out.

    Attributes:
        rows: (B, m) bool, the active rows of G.
        lower: (B, n) bool, the variables at their lower bounds.
        upper: (B, n) bool, the variables at their upper bounds.
    """

    rows: Tensor
    lower: Tensor
    upper: Tensor

    @property
    def fixed(self) -> Tensor:
        """Which variables are at one of their bounds. Shape (B, n), bool."""
        return self.lower | self.upper

    def same(self, other: ActiveSet) -> Tensor:
        """Return whether the set of each sample is the same here and in ``other``. Shape (B,), bool."""
        rows = (self.rows == other.rows).all(1)
        return rows & (self.lower == other.lower).all(1) & (self.upper == other.upper).all(1)

    def count(self) -> Tensor:
        """Count the active inequalities and bounds of each sample. Shape (B,)."""
        return self.rows.sum(1) + self.fixed.sum(1)

    def only(self, where: Tensor) -> ActiveSet:
        """Return a copy with the sets of the samples at which ``where`` (B,) is True; the other sets are empty."""
        keep = where[:, None]
        return ActiveSet(self.rows & keep, self.lower & keep, self.upper & keep)

    @classmethod
    def none(cls, batch: int, n: int, m: int, device: torch.device) -> ActiveSet:
        """Return empty sets for ``batch`` samples with n variables and m inequality rows."""
        rows, lower, upper = (torch.zeros(batch, k, dtype=torch.bool, device=device) for k in (m, n, n))
        return cls(rows, lower, upper)
