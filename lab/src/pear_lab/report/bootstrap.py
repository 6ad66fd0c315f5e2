"""Confidence intervals of the difference between two methods, by bootstrap or by Student's t distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from pear.errors import ProblemError

Array = NDArray[np.float64]

RESAMPLES = 10_000
LEVEL = 0.95

DEFINITION = (
    "A difference is the method's normalised regret less that of PEAR as published, in percentage points, both over "
    f"the same seeds and test instances; above zero PEAR is better. The interval is of {LEVEL:.0%}, by percentiles of "
    f"{RESAMPLES:,} resamples; bold where it leaves zero out. A resample draws seeds with replacement, then test "
    "instances with replacement, and takes both methods' losses on what was drawn. Where every seed deals out "
    "instances of its own, they are drawn anew for each seed drawn; where all seeds are tested on the same days, days "
    "are drawn once for all, in blocks of seven in a row, since neighbouring days are alike. Instances of different "
    "seeds share properties, and five seeds are few: intervals are a guide, and more likely too narrow than too wide."
)
"""What :func:`normalized_difference` does in the report's tables, in words."""


class Interval(NamedTuple):
    """An estimate and the ends of its confidence interval."""

    estimate: float
    low: float
    high: float

    @property
    def clear(self) -> bool:
        """Whether the interval excludes zero."""
        return self.low > 0 or self.high < 0


def t_interval(differences: Sequence[float], level: float = LEVEL) -> Interval:
    """Return the mean of paired differences, with the confidence interval of Student's t distribution.

    Args:
        differences: (N,) a difference for each of N ≥ 2 seeds.
        level: confidence level of the interval.

    Example:
        >>> [round(value, 3) for value in t_interval([1.0, 2.0, 3.0])]
        [2.0, -0.484, 4.484]
    """
    if len(differences) < 2:
        raise ProblemError(f"an interval needs at least 2 paired differences; got {len(differences)}")
    mean = float(np.mean(differences))
    half = float(stats.t.ppf((1 + level) / 2, len(differences) - 1) * stats.sem(differences))
    return Interval(mean, mean - half, mean + half)


def paired_interval(
    a: ArrayLike, b: ArrayLike, level: float = LEVEL, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """Return the mean of ``a − b`` over instances, with SciPy's percentile bootstrap interval.

    Args:
        a: (N,) a value for each of N instances.
        b: (N,) values of the same instances.
        level: confidence level of the interval.
        resamples: number of resamples, each of N instances drawn with replacement.
        seed: seed of the draws.

    Example:
        >>> paired_interval([2.0, 3.0, 4.0], [1.0, 2.0, 3.0])
        Interval(estimate=1.0, low=1.0, high=1.0)
    """
    first, second = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    if first.ndim != 1 or first.shape != second.shape or not len(first):
        raise ProblemError(f"expected two arrays of values of the same instances; got {first.shape} and {second.shape}")
    if not 0 < level < 1:
        raise ProblemError(f"level must lie between 0 and 1; got {level!r}")
    difference = first - second
    mean = float(difference.mean())
    if len(difference) == 1:  # SciPy refuses one instance, whose only resample is itself
        return Interval(mean, mean, mean)
    random = np.random.default_rng(seed)
    found = stats.bootstrap(
        (difference,), np.mean, n_resamples=resamples, confidence_level=level, method="percentile", random_state=random
    ).confidence_interval
    return Interval(mean, float(found.low), float(found.high))


def normalized_difference(
    first: Sequence[Array],
    second: Sequence[Array],
    best: Sequence[Array],
    shared: bool = False,
    block: int = 1,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
    seed: int = 0,
) -> Interval:
    """Return ``Σ (first − second) / Σ best``, the difference of two normalised regrets, with a bootstrap interval.

    A resample draws seeds, and then blocks of instances within each drawn seed. ``scipy.stats.bootstrap`` can do
    neither, and does not accept data of a single seed.

    Args:
        first: for each seed s, an array (N_s,) with the losses of the first method on the N_s test instances.
        second: for each seed, the losses of the second method on the same instances in the same order.
        best: for each seed, the best values of the same instances, which are not negative.
        shared: whether all seeds have the same instances, which are then drawn once for all seeds of a resample.
        block: the number of consecutive instances that are drawn together; more than 1 if neighbours are alike.
        resamples: number of resamples.
        level: confidence level of the interval.
        seed: seed of the draws.

    Example:
        >>> lost, none = [np.array([1.0, 3.0])], [np.zeros(2)]
        >>> normalized_difference(lost, none, [np.array([10.0, 10.0])])
        Interval(estimate=0.2, low=0.1, high=0.3)
    """
    _check_paired_losses(first, second, best, shared, block)
    difference = [np.asarray(a, np.float64) - b for a, b in zip(first, second, strict=True)]
    values = [np.asarray(value, np.float64) for value in best]
    random = np.random.default_rng(seed)
    seeds = random.integers(len(best), size=(resamples, len(best)))
    days = _draw_instances(random, len(values[0]), block, resamples) if shared else None
    lost, most = np.zeros(resamples), np.zeros(resamples)
    for place in range(len(best)):
        # A seed that is drawn twice gets instances of its own each time, unless all seeds share them.
        for s, (own, value) in enumerate(zip(difference, values, strict=True)):
            at = np.flatnonzero(seeds[:, place] == s)
            drawn = _draw_instances(random, len(own), block, len(at)) if days is None else days[at]
            lost[at] += own[drawn].sum(1)
            most[at] += value[drawn].sum(1)
    low, high = np.quantile(lost / most, [(1 - level) / 2, (1 + level) / 2])
    total = sum(float(np.sum(value)) for value in values)
    return Interval(sum(float(own.sum()) for own in difference) / total, float(low), float(high))


def _draw_instances(random: np.random.Generator, count: int, block: int, resamples: int) -> NDArray[np.intp]:
    """Draw positions (resamples, count) in blocks; a block that reaches the end continues at the start."""
    blocks = -(-count // block)
    starts = random.integers(count, size=(resamples, blocks, 1))
    return ((starts + np.arange(block)) % count).reshape(resamples, -1)[:, :count]


def _check_paired_losses(
    first: Sequence[Array], second: Sequence[Array], best: Sequence[Array], shared: bool, block: int
) -> None:
    """Raise ``ProblemError`` if the arguments of ``normalized_difference`` do not fit together."""
    sizes = [[np.shape(values) for values in part] for part in (first, second, best)]
    if not len(best) or sizes[0] != sizes[1] or sizes[0] != sizes[2] or any(len(s) != 1 or not s[0] for s in sizes[0]):
        raise ProblemError(f"expected one row of instances for each seed, the same for all three; got shapes {sizes}")
    if shared and len(set(sizes[0])) > 1:
        raise ProblemError(f"seeds that share their instances must have equally many; got {[s[0] for s in sizes[0]]}")
    if block < 1:
        raise ProblemError(f"block must be at least 1; got {block!r}")
    if not sum(float(np.sum(values)) for values in best) > 0:
        raise ProblemError("the best values sum to zero, so that no share of them can be taken")
