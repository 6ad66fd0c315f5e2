"""``paired_difference``: the mean difference of two series of losses of the same samples, with an interval.

Losses of neighbouring days resemble each other. An interval that treats days as independent is therefore too narrow.
The interval here treats only blocks of consecutive samples as independent.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pear.errors import ProblemError

LEVEL = 0.95
"""The probability that the interval contains the expected difference."""

DRAWS = 2000
"""The number of bootstrap samples of an interval."""

_MOST_NUMBERS = 4_000_000  # the most numbers of bootstrap samples in memory at a time


class PairedDifference(NamedTuple):
    """The mean of ``a − b`` over paired samples; below 0 means that a is smaller.

    Attributes:
        mean: the mean difference.
        standard_error: the standard error of the mean from blocks of consecutive samples; inf for a single sample.
        interval: the lower and the upper end of the block-bootstrap interval; −inf and inf for a single sample.
        block: the number of consecutive samples in a block.
    """

    mean: float
    standard_error: float
    interval: tuple[float, float]
    block: int

    @property
    def is_significant(self) -> bool:
        """Whether the interval does not contain zero."""
        return self.interval[0] > 0 or self.interval[1] < 0


def paired_difference(
    a: ArrayLike,
    b: ArrayLike,
    block: int | None = None,
    *,
    weight: ArrayLike | None = None,
    level: float = LEVEL,
    draws: int = DRAWS,
    seed: int = 0,
) -> PairedDifference:
    """Compute the mean of ``a − b`` with a block standard error and a block-bootstrap interval.

    Blocks are circular: a block begins at each sample, and the first sample follows the last. Let ℓ be the block
    length, m_i the mean of block i, and m the mean of all N differences. The standard error is
    ``√(ℓ/(N − ℓ) · mean (m_i − m)²)``. For ℓ = 1 it is the usual standard error ``s/√N``, where s is the standard
    deviation. The ends of the interval are quantiles of the means of blocks drawn with replacement. They are scaled to
    the standard error and to Student's t with N/ℓ − 1 degrees of freedom, because quantiles of few blocks lie too close
    together.

    Args:
        a: (N,) losses of the samples in time order.
        b: (N,) other losses of the same samples.
        block: the number of consecutive samples in a block; None for about the cube root of N.
        weight: (N,) how much each sample counts in the mean; None for equal weights. With weights, each difference d is
            replaced by ``μ + (w/w̄)(d − μ)``, where μ is the weighted mean of all differences, w the weight of the
            sample, and w̄ the mean weight.
        level: the probability that the interval contains the expected difference.
        draws: the number of bootstrap samples.
        seed: the seed of the bootstrap; the same seed gives the same interval.

    Raises:
        ProblemError: a and b differ in length, are empty or contain numbers that are not finite; the block is too long;
            or ``level`` or ``draws`` is out of range.

    Example:
        >>> paired_difference([3.0, 1.0, 2.0, 4.0], [1.0, 1.0, 1.0, 1.0], block=1).mean
        1.5
    """
    difference = _checked_difference(a, b)
    if weight is not None:
        shares = np.asarray(weight, dtype=np.float64)
        shares = shares / shares.mean()
        centre = float(np.mean(shares * difference))
        difference = centre + shares * (difference - centre)
    count, mean = len(difference), float(difference.mean())
    if not 0 < level < 1 or draws < 1:
        raise ProblemError(f"level must lie between 0 and 1 and draws be positive; got {level} and {draws}")
    if count == 1:
        return PairedDifference(mean, math.inf, (-math.inf, math.inf), 1)
    block = difference_block_length(count, block)
    means = _means_of_difference_blocks(difference, block)
    spread = float(np.sqrt(np.mean((means - mean) ** 2)))
    standard_error = spread * math.sqrt(block / (count - block))
    if standard_error == 0:
        return PairedDifference(mean, 0.0, (mean, mean), block)
    scale = standard_error / spread * _widening_of_difference_interval(count / block - 1, level)
    drawn = _draw_paired_difference_deviations(
        means - mean, math.ceil(count / block), draws, np.random.default_rng(seed)
    )
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2]) * scale
    return PairedDifference(mean, standard_error, (mean + float(low), mean + float(high)), block)


def difference_block_length(count: int, block: int | None = None) -> int:
    """Return the length of blocks for ``count`` samples: ``block`` if it is given, otherwise about ``count^(1/3)``.

    Raises:
        ProblemError: ``block`` is not a whole number between 1 and half of the samples.
    """
    longest = max(count // 2, 1)
    if block is None:
        return min(max(round(count ** (1 / 3)), 1), longest)
    if isinstance(block, bool) or not isinstance(block, (int, np.integer)) or not 1 <= block <= longest:
        raise ProblemError(
            f"block must be a whole number between 1 and {longest}, half of the {count} samples; got {block!r}"
        )
    return int(block)


def _checked_difference(a: ArrayLike, b: ArrayLike) -> NDArray[np.float64]:
    """Return a − b (N,) in float64; raise ProblemError if lengths differ or a number is not finite."""
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if first.ndim != 1 or first.shape != second.shape or not len(first):
        raise ProblemError(
            f"paired differences need two rows of equal length with a sample at least; got shapes {first.shape} and "
            f"{second.shape}"
        )
    difference = first - second
    if not np.isfinite(difference).all():
        raise ProblemError(
            f"paired differences need finite losses; sample {int(np.flatnonzero(~np.isfinite(difference))[0])} is not; "
            "leave such samples out of both rows"
        )
    return difference


def _means_of_difference_blocks(difference: NDArray[np.float64], block: int) -> NDArray[np.float64]:
    """Return the mean of the ``block`` samples that begin with each sample, (N,); the first sample follows the last."""
    around = np.concatenate([difference, difference[: block - 1]])
    return np.lib.stride_tricks.sliding_window_view(around, block).mean(axis=1)


def _widening_of_difference_interval(degrees: float, level: float) -> float:
    """Return the factor that widens the interval: a quantile of Student's t over that of the normal distribution.

    Args:
        degrees: the degrees of freedom of Student's t.
        level: the probability that the interval contains the expected difference. Both quantiles are those of
            probability ``(1 + level) / 2``.
    """
    from scipy.special import ndtri, stdtrit

    return float(stdtrit(degrees, (1 + level) / 2) / ndtri((1 + level) / 2))


def _draw_paired_difference_deviations(
    deviations: NDArray[np.float64], blocks: int, draws: int, random: np.random.Generator
) -> NDArray[np.float64]:
    """Return ``draws`` bootstrap deviations, (draws,).

    Each is the sum of ``blocks`` deviations that are drawn with replacement, divided by √blocks.
    """
    part = max(_MOST_NUMBERS // blocks, 1)
    sums = [
        deviations[random.integers(len(deviations), size=(min(part, draws - start), blocks))].sum(axis=1)
        for start in range(0, draws, part)
    ]
    return np.concatenate(sums) / math.sqrt(blocks)
