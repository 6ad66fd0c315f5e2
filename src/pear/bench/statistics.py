"""The arithmetic of the speed benchmarks: errors, ratios, exponents."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pear.bench.program import Array

EXACT = 1e-6
"""Largest error up to which a gradient counts as exact, so that its time is worth comparing with."""


@dataclass(frozen=True)
class Errors:
    """Relative errors of the gradients of a batch.

    Attributes:
        median, q90, largest: of them all; infinite where one is not a number.
        judged: samples they come from.
    """

    median: float
    q90: float
    largest: float
    judged: int

    @property
    def exact(self) -> bool:
        """True where even the largest is small."""
        return self.largest <= EXACT


def summarize(errors: Array) -> Errors:
    """Median, 90 % quantile and largest of relative errors (k,).

    Example:
        >>> import numpy as np
        >>> summarize(np.array([1.0, 3.0, 2.0]))
        Errors(median=2.0, q90=2.8, largest=3.0, judged=3)
    """
    if not len(errors):
        return Errors(math.nan, math.nan, math.nan, 0)
    values = np.sort(np.where(np.isnan(errors), np.inf, errors))
    median, q90 = (_quantile(values, share) for share in (0.5, 0.9))
    return Errors(median, q90, float(values[-1]), len(values))


def _quantile(values: Array, share: float) -> float:
    """Between the two nearest of sorted values; towards infinity there is nothing in between."""
    place = share * (len(values) - 1)
    low, high = float(values[math.floor(place)]), float(values[math.ceil(place)])
    return low + (place - math.floor(place)) * (high - low) if math.isfinite(high) else high


def fitted_exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """The slope of log time over log size, by least squares; NaN where there are less than two sizes.

    Example:
        >>> round(fitted_exponent([10, 100, 1000], [0.2, 2.0, 20.0]), 6)
        1.0
    """
    if len(set(sizes)) < 2:
        return math.nan
    x, y = np.log(np.asarray(sizes, dtype=float)), np.log(np.asarray(seconds, dtype=float))
    x = x - x.mean()
    return float(x @ (y - y.mean()) / (x @ x))


def ratio(theirs: float | None, ours: float | None) -> float:
    """How many times longer theirs takes; NaN where one of them is not known.

    Example:
        >>> ratio(0.1, 0.02), ratio(None, 0.02)
        (5.0, nan)
    """
    return theirs / ours if theirs is not None and ours else math.nan
