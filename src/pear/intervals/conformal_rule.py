"""``ConformalRule``: bounds on the residuals of new samples from the residuals of known samples.

A residual is the realised cost of a decision minus its planned cost. A score is a residual divided by a scale, which
grows with the size of the planned cost. The bounds on a new residual are the bounds on its score, multiplied by its
scale.

*Exchangeable* samples: the scale is fitted to the first third of the samples, and the bounds on the score are order
statistics of the other n scores. With few samples, the scale is 1, and n is the number of all samples. Let ``tail`` be
the wanted probability that a new score misses a bound, and ``k = ⌈(n + 1)(1 − tail)⌉``. The upper bound is the k-th
smallest score, and the lower bound is the k-th largest. For any distribution, a new score misses each bound with a
probability of at most ``tail`` and, without ties, of at least ``tail − 1/(n + 1)``.

Samples in *time order*: the scale of every sample is fitted to the samples before it, and later scores may have larger
weights. The bounds on a score are two quantiles of the scores before it, each shifted by the sum of its steps so far.
Each bound makes a step after each sample. ``spread`` is the distance between the quantiles, and ``rate`` is a setting
of the rule. After a sample that misses a bound, this bound steps outwards by ``rate·spread·(1 − tail)``. After any
other sample, it steps inwards by ``rate·spread·tail``. The share of misses therefore tends to ``tail`` for any sequence
of bounded scores.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from pear.errors import ProblemError
from pear.intervals.cost_residuals import (
    ONE_SCALE,
    ROUNDING,
    SCALE_SAMPLES,
    Array,
    CostResiduals,
    CostResidualScores,
    fit_cost_residual_scales,
)

Order = Literal["time", "exchangeable"]
ORDERS = ("time", "exchangeable")

RATE = 0.05
"""The default of ``rate``: how fast bounds in time order follow their misses."""


class ResidualBounds(NamedTuple):
    """Bounds on the residuals of M samples; NaN for samples with too few known samples before them.

    Attributes:
        lower: (M,) lower bounds; minus infinity if residuals are bounded only from above.
        upper: (M,) upper bounds.
    """

    lower: Array
    upper: Array

    @classmethod
    def from_scores(cls, bounds: tuple[float, float] | Array, scale: Array, two_sided: bool) -> ResidualBounds:
        """Return bounds on the residuals of M samples from bounds on their scores.

        In time order, both bounds may move inwards until they cross. Crossed bounds are replaced by their middle.

        Args:
            bounds: a lower and an upper bound on scores, numbers or (M,) each.
            scale: (M,) scales, by which scores are multiplied to give residuals.
            two_sided: False to set all lower bounds to minus infinity.
        """
        low, high = bounds
        if not two_sided:
            return cls(np.where(np.isnan(scale * high), np.nan, -np.inf), scale * high)
        lower, upper = scale * low, scale * high
        crossed = lower > upper
        middle = np.where(crossed, 0.5 * (lower + upper), 0.0)
        return cls(np.where(crossed, middle, lower), np.where(crossed, middle, upper))


@dataclass(frozen=True)
class ConformalRule:
    """The rule by which bounds follow from residuals.

    Args:
        order: "time" for samples in time order; "exchangeable" for samples whose order has no meaning.
        half_life: in time order, the number of samples after which the weight of a score has halved; None for equal
            weights.
        rate: in time order, the factor of the step by which each bound moves after a sample (see the module), from 0 to
            1; with 0, bounds are quantiles of the scores.

    Example:
        >>> rule = ConformalRule("exchangeable")
        >>> rule.samples_needed(0.9, two_sided=True), rule.samples_needed(0.9, two_sided=False)
        (19, 9)
    """

    order: Order = "time"
    half_life: float | None = None
    rate: float = RATE

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise ProblemError(f'order must be "time" or "exchangeable"; got {self.order!r}')
        if self.half_life is not None and not 0 < self.half_life < math.inf:
            raise ProblemError(f"half_life must be a positive number of samples, or None; got {self.half_life!r}")
        if not 0 <= self.rate <= 1:
            raise ProblemError(f"rate must lie between 0 and 1; got {self.rate!r}")
        if self.order == "exchangeable" and self.half_life is not None:
            raise ProblemError('half_life is for samples in time order; leave it out, or take order="time"')

    def samples_needed(self, level: float, two_sided: bool) -> int:
        """Return the smallest number of calibration samples for finite bounds that hold with the probability ``level``.

        Raises:
            ProblemError: the level is not a probability, or the weights of all samples together are too small for the
                level.
        """
        tail = tail_probability(level, two_sided)
        weight = (1 - tail) / tail  # the needed weight of all scores together
        if self.order == "exchangeable":
            return math.ceil(weight * (1 - ROUNDING))
        if self.half_life is None:
            return math.ceil(weight * (1 - ROUNDING)) + SCALE_SAMPLES
        decay = 0.5 ** (1 / self.half_life)
        left = 1 - weight * (1 - decay) / decay
        if left <= 0:
            raise ProblemError(
                f"with half_life={self.half_life:g} all samples together count as {decay / (1 - decay):.1f}, and level "
                f"{level:g} needs {weight:.1f}; take a longer half_life or a lower level"
            )
        return math.ceil(math.log(left) / math.log(decay) * (1 - ROUNDING)) + SCALE_SAMPLES

    def bounds(self, known: CostResiduals, size: Array, level: float, two_sided: bool = True) -> ResidualBounds:
        """Return bounds on the residuals of M new samples.

        Args:
            known: residuals of the calibration samples.
            size: (M,) absolute values of the planned costs of the new samples.
            level: the probability with which a residual lies within its bounds.
            two_sided: False for upper bounds only, which residuals then exceed with the probability 1 − level.

        Raises:
            ProblemError: there are fewer calibration samples than ``samples_needed``.
        """
        needed, count = self.samples_needed(level, two_sided), len(known.value)
        if count < needed:
            raise ProblemError(
                f"an interval of level {level:g} needs {needed} calibration samples, and there are {count}; calibrate "
                "with more, or ask for a lower level"
            )
        tail = tail_probability(level, two_sided)
        if self.order == "exchangeable":
            return self._exchangeable_bounds(known, size, tail, two_sided)
        scale = fit_cost_residual_scales(known)[count]
        return ResidualBounds.from_scores(self._score_bounds(known, tail, gap=0)[count], scale.of(size), two_sided)

    def walk(self, known: CostResiduals, level: float, two_sided: bool = True, gap: int = 0) -> ResidualBounds:
        """Return bounds on every residual from the residuals before it; NaN if these are too few.

        Args:
            known: residuals in time order.
            level, two_sided: as for ``bounds``.
            gap: the number of samples directly before a sample that are not used for it, because their true values are
                still unknown when the sample is decided.
        """
        needed, tail, count = (
            self.samples_needed(level, two_sided),
            tail_probability(level, two_sided),
            len(known.value),
        )
        if self.order == "time":
            bounds = self._score_bounds(known, tail, gap)[:count].T
            return ResidualBounds.from_scores(bounds, self._scales_before(known, gap), two_sided)
        lower, upper = np.full(count, np.nan), np.full(count, np.nan)
        for t in range(needed + gap, count):
            found = self._exchangeable_bounds(known.until(t - gap), known.size[t : t + 1], tail, two_sided)
            lower[t], upper[t] = found.lower[0], found.upper[0]
        return ResidualBounds(lower, upper)

    def _score_bounds(self, known: CostResiduals, tail: float, gap: int) -> Array:
        """Return a lower and an upper bound on every score in time order, (N + 1, 2); NaN if too few samples are known.

        Row t is for sample t and uses the samples before ``t − gap``. The last row is for later samples and uses all N
        samples.
        """
        count, start = len(known.value), SCALE_SAMPLES + gap
        values = known.value / self._scales_before(known, gap)
        bounds, spread, drift = np.full((count + 1, 2), np.nan), np.zeros(count + 1), np.zeros(2)
        scores, end = CostResidualScores(self.half_life), start
        for t in range(start, count + 1):
            begin, end = end, max(end, count if t == count else t - gap)
            scores.extend(values[begin:end])
            for one in range(begin, end):
                if spread[one] > 0:
                    missed = np.array([values[one] < bounds[one, 0], values[one] > bounds[one, 1]])
                    drift += self.rate * spread[one] * (missed - tail)
            low, high = scores.quantiles(tail)
            if math.isfinite(high) and math.isfinite(low):
                bounds[t], spread[t] = (low - drift[0], high + drift[1]), high - low
        return bounds

    @staticmethod
    def _scales_before(known: CostResiduals, gap: int) -> Array:
        """Return the scale of each sample t, from the samples before ``t − gap``, (N,); NaN if these are too few."""
        fits, found = fit_cost_residual_scales(known), np.full(len(known.value), np.nan)
        for t in range(SCALE_SAMPLES + gap, len(found)):
            found[t] = fits[t - gap].of(known.size[t])
        return found

    @staticmethod
    def _exchangeable_bounds(known: CostResiduals, size: Array, tail: float, two_sided: bool) -> ResidualBounds:
        """Return bounds on the residuals of M new samples by the rule for exchangeable samples (see the module).

        Args:
            known: residuals of the calibration samples.
            size: (M,) absolute values of the planned costs of the new samples.
            tail: the probability with which a residual may miss a bound.
            two_sided: False for upper bounds only.
        """
        count = len(known.value)
        third = count // 3
        scale = ONE_SCALE
        if third >= SCALE_SAMPLES and (count - third) * tail >= (1 - tail) * (1 - ROUNDING):  # enough are left to rank
            scale = fit_cost_residual_scales(known)[third]
            known = CostResiduals(known.size[third:], known.value[third:])
        scores = CostResidualScores()
        scores.extend(known.value / scale.of(known.size))
        return ResidualBounds.from_scores(scores.quantiles(tail), scale.of(size), two_sided)


def tail_probability(level: float, two_sided: bool) -> float:
    """Return the probability that a residual misses a bound: 1 − level, or half of it if there are two bounds.

    Raises:
        ProblemError: the level does not lie between 0 and 1.
    """
    if isinstance(level, bool) or not isinstance(level, (int, float, np.number)) or not 0 < level < 1:
        raise ProblemError(f"the level of an interval must lie between 0 and 1, such as 0.9; got {level!r}")
    return (1 - float(level)) / (2 if two_sided else 1)
