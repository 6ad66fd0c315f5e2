"""One of our cells against the paper's: the verdict, and the mean and deviation it rests on."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from enum import Enum


class Verdict(Enum):
    """What comes out of comparing a cell with the published one; the value is what people read."""

    WITHIN = "within 1 sd"
    BETTER = "better"
    WORSE = "worse"
    NOT_RUN = "not run"
    NOT_PUBLISHED = "not published"
    REDUCED = "not comparable"

    @property
    def kind(self) -> str:
        """Of the page's style."""
        return self.name.lower() if self in (Verdict.WITHIN, Verdict.BETTER, Verdict.WORSE) else "none"


DEFINITION = (
    "Ours is the mean over the seeds that were run. It is “within 1 sd” where it differs from the published mean by no "
    "more than the published standard deviation, “better” where it lies below that range and “worse” where it lies "
    "above (lower is better in every table). The printed numbers are rounded, so half a unit of the last printed "
    "digit is granted to each side; where the paper prints no standard deviation, that half unit is all that is "
    "granted. “Not run” means that the database holds no finished run of the cell; runs of a "
    "smaller problem than the paper's (pear reproduce --quick), and training times under another time cap, are shown "
    "as “not comparable”."
)
"""What :func:`verdict` does, in words."""


def verdict(ours: float | None, published: float | None, std: float | None, decimals: int) -> Verdict:
    """Compare our mean with the published one; lower is better.

    Args:
        ours: our mean; None where nothing was run.
        published: the printed mean; None where the paper has no such cell.
        std: the printed standard deviation; None where none is printed.
        decimals: of the printed mean.

    Example:
        >>> verdict(4.7, 4.246, 1.106, 3).value, verdict(3.0, 4.246, 1.106, 3).value
        ('within 1 sd', 'better')
    """
    if ours is None:
        return Verdict.NOT_RUN
    if published is None:
        return Verdict.NOT_PUBLISHED
    allowed = (std or 0.0) + 0.5 * 10.0**-decimals
    difference = ours - published
    # The last term: a difference of decimal numbers is off by some units in the last place of a float.
    if abs(difference) <= allowed + 1e-12 * max(1.0, abs(published)):
        return Verdict.WITHIN
    return Verdict.BETTER if difference < 0 else Verdict.WORSE


def mean_and_deviation(values: Sequence[float], ddof: int) -> tuple[float, float | None]:
    """The mean, and the standard deviation with ``ddof`` degrees of freedom taken off; None for a single value.

    Example:
        >>> mean_and_deviation([1.0, 2.0, 3.0], ddof=1)
        (2.0, 1.0)
    """
    mean = statistics.fmean(values)
    if len(values) < 2:
        return mean, None
    return mean, math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - ddof))


def best_two(means: Sequence[float | None], decimals: int) -> list[int]:
    """The place of each mean, 1 for the best (bold) and 2 for the second best (underlined), 0 for all others.

    Means are compared as printed. Equals share a place and use up the next one, as in the paper: two best and no
    second best. With fewer than two means there is nothing to compare.

    Example:
        >>> best_two([0.120, 0.104, None, 0.1041], decimals=3)
        [0, 1, 0, 1]
    """
    printed = [None if mean is None or not math.isfinite(mean) else round(mean, decimals) for mean in means]
    known = [mean for mean in printed if mean is not None]
    if len(known) < 2:
        return [0] * len(means)
    places = [0 if mean is None else 1 + sum(other < mean for other in known) for mean in printed]
    return [place if place <= 2 else 0 for place in places]


def number(mean: float, std: float | None, decimals: int) -> str:
    """Mean and deviation with the digits of the paper.

    Example:
        >>> number(4.2461, 1.1, 3), number(0.3, None, 2)
        ('4.246 ± 1.100', '0.30')
    """
    text = f"{mean:.{decimals}f}"
    return text if std is None else f"{text} ± {std:.{decimals}f}"
