"""``IntervalRecord``: bounds for past samples, and how often the realised costs lie within them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pear.intervals.bounded_decisions import Quantity
from pear.intervals.cost_residuals import Array
from pear.losses.paired_difference import PairedDifference, paired_difference
from pear.wording import format_amount, format_percent


@dataclass(frozen=True, eq=False, repr=False)
class IntervalRecord:
    """Bounds for N past samples, each computed from the samples before it, and the realised costs.

    Attributes:
        planned: (N,) what each decision costs if its forecast comes true.
        realised: (N,) what each decision did cost, or its regret.
        lower, upper: (N,) the bounds; NaN for the first samples, which have too few samples before them.
        level: the probability with which each sample is meant to lie within its bounds.
        of: "cost" or "regret".
        index: labels of the samples, or None.
    """

    planned: Array
    realised: Array
    lower: Array
    upper: Array
    level: float
    of: Quantity
    index: Any = None

    @property
    def bounded(self) -> Any:
        """(N,) bool, whether each sample has bounds."""
        return np.isfinite(self.upper)

    @property
    def covered(self) -> Any:
        """(N,) bool, whether the realised cost of each sample lies within its bounds; False without bounds."""
        return self.bounded & (self.realised >= self.lower) & (self.realised <= self.upper)

    @property
    def coverage(self) -> float:
        """The share of samples within their bounds, among the samples with bounds."""
        return float(self.covered[self.bounded].mean())

    @property
    def mean_width(self) -> float:
        """The mean distance between lower and upper bound, over the samples with bounds."""
        return float((self.upper - self.lower)[self.bounded].mean())

    def coverage_interval(self, block: int | None = None) -> PairedDifference:
        """Return the coverage (``mean``), its standard error and 95 % interval, from blocks of neighbouring samples.

        Args:
            block: the number of samples in a block; None for about the cube root of the number of samples with bounds.
        """
        covered = self.covered[self.bounded].astype(float)
        return paired_difference(covered, np.zeros_like(covered), block)

    def to_frame(self) -> Any:
        """Return a DataFrame with a row for each sample: planned and realised cost, bounds, and ``covered``."""
        import pandas

        columns = {
            "planned cost": self.planned,
            f"realised {self.of}": self.realised,
            f"lower {self.of}": self.lower,
            f"upper {self.of}": self.upper,
            "covered": self.covered,
        }
        return pandas.DataFrame(columns, index=self.index)

    def __repr__(self) -> str:
        count = int(self.bounded.sum())
        return (
            f"IntervalRecord({count} of {len(self.planned)} samples have bounds; {format_percent(self.coverage)} lie "
            f"within them, {format_percent(self.level)} were promised; mean width {format_amount(self.mean_width)})"
        )
