"""``RaceRow``: the result of a contender in a race."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

CAUTION = 1.5
"""The number of standard errors by which a contender of a race must be better than the start."""


@dataclass(frozen=True)
class RaceRow:
    """The result of a contender in a race, on held-out samples.

    Attributes:
        contender: "start", "correction" or "fresh model".
        epochs: the number of epochs on the loss.
        share: how far it goes from the start to the trained weights; 1 is all the way.
        metric: the normalised regret, or the user's own metric.
        difference: the metric less that of the start; negative is better.
        standard_error: the standard error of the difference.
        interval: the ends of its interval of 95 %.
        screened: True if the contender was judged by the relaxation alone, to choose contenders to judge with integers.
            Such a row cannot win, and its metric is that of relaxed decisions.
    """

    contender: str
    epochs: int
    share: float
    metric: float
    difference: float
    standard_error: float
    interval: tuple[float, float]
    screened: bool = False

    @property
    def bound(self) -> float:
        """The difference plus ``CAUTION`` standard errors: what the contender gains or loses, seen with caution."""
        return self.difference + CAUTION * self.standard_error

    @classmethod
    def from_dict(cls, said: dict[str, Any]) -> RaceRow:
        """Make a row from a dict of its fields."""
        return cls(**{**said, "interval": tuple(said["interval"])})

    def __str__(self) -> str:
        if self.contender == "start":
            return "the start"
        part = "" if self.share == 1 else f", {self.share:g} of the way"
        return f"the {self.contender} ({self.epochs} epochs{part})"
