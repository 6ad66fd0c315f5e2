"""``GradientErrors``: relative errors of gradients, and their summary."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from pear_lab.judge.judged_program import Array

EXACT = 1e-6
"""The largest relative error of a gradient that counts as exact."""


class GradientErrors(NamedTuple):
    """A summary of relative errors of gradients. An error that is NaN counts as infinite.

    Attributes:
        median: the median error.
        q90: the 90 % quantile of the errors.
        largest: the largest error.
        compared: the number of compared samples.
    """

    median: float
    q90: float
    largest: float
    compared: int

    @classmethod
    def summarize(cls, errors: Array) -> GradientErrors:
        """Summarise k relative errors (k,) by the median, the 90 % quantile and the maximum.

        Example:
            >>> import numpy as np
            >>> GradientErrors.summarize(np.array([1.0, 3.0, 2.0]))
            GradientErrors(median=2.0, q90=2.8, largest=3.0, compared=3)
        """
        if not len(errors):
            return cls(math.nan, math.nan, math.nan, 0)
        values = np.sort(np.where(np.isnan(errors), np.inf, errors))
        median, q90 = (_gradient_error_quantile(values, share) for share in (0.5, 0.9))
        return cls(median, q90, float(values[-1]), len(values))


def largest_gradient_error(found: Any, exact: Any) -> float:
    """Return the largest relative 2-norm error of a sample's gradient. Exact gradients of zero do not count.

    Args:
        found: batches of the gradients of b samples, (b, …) each.
        exact: the exact gradients of the same batches.

    Returns:
        The error; NaN if every exact gradient is zero.
    """
    a, b = (np.concatenate([np.asarray(part).reshape(len(part), -1) for part in parts]) for parts in (found, exact))
    size = np.linalg.norm(b, axis=1)
    there = size > 0
    return float((np.linalg.norm(a - b, axis=1)[there] / size[there]).max()) if there.any() else math.nan


def _gradient_error_quantile(values: Array, share: float) -> float:
    """Return a quantile of sorted errors by linear interpolation; infinite if the next larger error is infinite."""
    place = share * (len(values) - 1)
    low, high = float(values[math.floor(place)]), float(values[math.ceil(place)])
    return low + (place - math.floor(place)) * (high - low) if math.isfinite(high) else high
