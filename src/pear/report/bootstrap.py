"""How far a mean difference can be trusted: an interval by resampling the instances."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pear.errors import ProblemError


def paired_interval(
    a: ArrayLike, b: ArrayLike, level: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> tuple[float, float, float]:
    """The mean of ``a − b`` over instances, with a percentile bootstrap interval.

    Args:
        a: (N,) one value an instance.
        b: (N,) values of the same instances.
        level: of the interval.
        resamples: draws of N instances with replacement.
        seed: of the draws.

    Returns:
        The mean difference, and the lower and upper end of its interval.

    Example:
        >>> paired_interval([2.0, 3.0, 4.0], [1.0, 2.0, 3.0])
        (1.0, 1.0, 1.0)
    """
    first, second = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    if first.ndim != 1 or first.shape != second.shape or not len(first):
        raise ProblemError(f"expected two arrays of values of the same instances; got {first.shape} and {second.shape}")
    if not 0 < level < 1:
        raise ProblemError(f"level must lie between 0 and 1; got {level!r}")
    difference = first - second
    drawn = np.random.default_rng(seed).integers(0, len(difference), (resamples, len(difference)))
    means = difference[drawn].mean(1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(difference.mean()), float(low), float(high)
