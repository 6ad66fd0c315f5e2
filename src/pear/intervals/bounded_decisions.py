"""Decisions with bounds on what they cost, and the record of such bounds over past samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from pear.intervals.residual_scores import Array
from pear.losses.paired_difference import PairedDifference, paired_difference
from pear.wording import format_amount, format_percent

Quantity = Literal["cost", "regret"]


@dataclass(frozen=True, eq=False, repr=False)
class BoundedDecisions:
    """B decisions, and bounds on what they will have cost once the truth is known.

    All amounts are in the unit and in the sense of the objective: of a problem that maximises they are gains.

    Attributes:
        decisions: (B, n) an array, or a DataFrame.
        planned: (B,) what each decision costs if its forecast comes true.
        lower, upper: (B,) between these lies what it will have cost, or have lost to the best decision, with the
            probability ``level``. A regret is bounded from above alone: its lower bound is 0.
        level: the probability, for each decision by itself.
        of: "cost" or "regret".
        variables: n names.
    """

    decisions: Any
    planned: Array
    lower: Array
    upper: Array
    level: float
    of: Quantity
    variables: Sequence[Any]

    def __len__(self) -> int:
        return len(self.planned)

    def to_frame(self) -> Any:
        """A DataFrame with a row for each decision: planned cost, lower and upper bound, and then the variables."""
        import pandas

        table = self.decisions
        if not isinstance(table, pandas.DataFrame):
            table = pandas.DataFrame(np.asarray(table), columns=list(self.variables))
        bounds = {"planned cost": self.planned, f"lower {self.of}": self.lower, f"upper {self.of}": self.upper}
        return pandas.concat([pandas.DataFrame(bounds, index=table.index), table], axis=1)

    def __repr__(self) -> str:
        n = len(self.variables)
        return (
            f"BoundedDecisions({len(self)} of {n} variables; {self.of} within bounds {format_amount(self._width())} "
            f"apart on average, with probability {format_percent(self.level)})"
        )

    def _width(self) -> float:
        return float(np.mean(self.upper - self.lower)) if len(self) else float("nan")


@dataclass(frozen=True, eq=False, repr=False)
class IntervalRecord:
    """Bounds for past samples, each computed from the samples before it, and the realised costs.

    Attributes:
        planned: (N,) what each decision costs if its forecast comes true.
        realised: (N,) what it cost, or lost.
        lower, upper: (N,) its bounds; NaN for the first samples, before which too few are known.
        level: the probability that the bounds promise.
        of: "cost" or "regret".
        index: labels of the N samples; None where they have none.
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
        """(N,) bool, whether a sample has bounds."""
        return np.isfinite(self.upper)

    @property
    def covered(self) -> Any:
        """(N,) bool, whether the realised cost lies within its bounds; False where there are none."""
        return self.bounded & (self.realised >= self.lower) & (self.realised <= self.upper)

    @property
    def coverage(self) -> float:
        """The share of the samples with bounds that lie within them."""
        return float(self.covered[self.bounded].mean())

    @property
    def mean_width(self) -> float:
        """The mean distance of the bounds."""
        return float((self.upper - self.lower)[self.bounded].mean())

    def coverage_interval(self, block: int | None = None) -> PairedDifference:
        """The coverage with its standard error and 95 % interval, from blocks of neighbouring samples.

        Args:
            block: the number of samples in a block; None for about the cube root of their number.
        """
        covered = self.covered[self.bounded].astype(float)
        return paired_difference(covered, np.zeros_like(covered), block)

    def to_frame(self) -> Any:
        """A DataFrame with a row for each sample."""
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
