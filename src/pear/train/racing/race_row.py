"""``RaceRow``: the result of a contender in a race."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

CAUTION = 1.5
"""The number of standard errors by which a contender of a race must be better than the start."""


@dataclass(frozen=True)
class RaceRow:
    """The result of a contender of a race on the held-out samples.

    Attributes:
        contender: "start", "fresh model", "correction", a name in ``race_samples.CORRECTIONS``, or
            ``race_without_base.ALONE``.
        epochs: the number of epochs on the loss.
        share: the position of the contender's weights on the way from the weights of the start (0) to the trained
            weights (1).
        metric: the normalised regret on the held-out samples, or the metric of the user.
        difference: the metric minus the metric of the start; a negative difference is better.
        standard_error: the standard error of the difference.
        interval: the two ends of the 95 % confidence interval of the difference.
        screened: whether ``metric`` is that of relaxed decisions, which only choose the contenders that are judged with
            integer decisions. Such a row cannot win.
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
        """The difference plus ``CAUTION`` standard errors, a cautious estimate. The lowest bound wins a race."""
        return self.difference + CAUTION * self.standard_error

    @classmethod
    def from_dict(cls, said: dict[str, Any]) -> RaceRow:
        """Return the row with the fields in this dict."""
        return cls(**{**said, "interval": tuple(said["interval"])})

    def __str__(self) -> str:
        if self.contender == "start":
            return "the start"
        part = "" if self.share == 1 else f", {self.share:g} of the way"
        return f"the {self.contender} ({self.epochs} epochs{part})"
