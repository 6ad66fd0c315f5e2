"""``Outcome``: what decisions come to under the truth."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

TINY = 1e-7
"""Added to the denominator of the normalised regret, which stays finite where every optimal value is zero."""


class Outcome(NamedTuple):
    """What decisions come to under the true costs, in float64.

    Attributes:
        regret: (B,) what each loses against the best decision of its sample.
        best: (B,) the value of the best decision.
    """

    regret: Tensor
    best: Tensor

    @property
    def normalized(self) -> float:
        """``Σ regret / (Σ |best| + 1e-7)``."""
        return float(self.regret.sum() / (self.best.abs().sum() + TINY))
