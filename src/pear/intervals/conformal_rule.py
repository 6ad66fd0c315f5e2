"""``ConformalRule``: bounds on new residuals from residuals that are known, on numbers alone.

A residual is the realised cost minus the planned cost. Divided by a scale that grows with the size of the plan, it is a
score.

*Exchangeable* samples: the scale is fitted to the first third of them, and the bounds are order statistics of the
scores of the rest. The ``⌈(n + 1)(1 − tail)⌉``-th smallest of n scores is exceeded by a new one with a probability of
at most ``tail`` and, without ties, of at least ``tail − 1/(n + 1)``, whatever their distribution is.

Samples in *time order*: the scale of every sample is fitted to those before it, and later scores may count more. Each
bound moves out by ``rate·spread·(1 − tail)`` after a sample that missed it, and in by ``rate·spread·tail`` after any
other. The share of misses thus tends to ``tail`` for any sequence of bounded scores.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from pear.errors import ProblemError
from pear.intervals.residual_scores import ONE_SCALE, ROUNDING, SCALE_SAMPLES, Array, Residuals, Scores, fit_scales

Order = Literal["time", "exchangeable"]
ORDERS = ("time", "exchangeable")

RATE = 0.05
"""How fast bounds in time order follow their misses, as a share of the spread of the scores."""


class ResidualBounds(NamedTuple):
    """Bounds on residuals; NaN where too few samples were known.

    Attributes:
        lower: (M,); minus infinity where residuals are bounded from above alone.
        upper: (M,).
    """

    lower: Array
    upper: Array


@dataclass(frozen=True)
class ConformalRule:
    """How bounds follow from residuals.

    Args:
        order: "time" for samples in time order; "exchangeable" for samples whose order says nothing.
        half_life: in time order, after how many samples a score counts half; None lets all count equally.
        rate: in time order, how fast bounds follow their misses; 0 keeps them at the quantiles.

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
        """The fewest calibration samples from which finite bounds of this level follow.

        Raises:
            ProblemError: the level is not a probability, or old samples have too little weight for it.
        """
        tail = tail_of(level, two_sided)
        weight = (1 - tail) / tail  # that all scores together must have beside a new one
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

    def bounds(self, known: Residuals, size: Array, level: float, two_sided: bool = True) -> ResidualBounds:
        """Bounds on the residuals of new samples, which follow those that are known.

        Args:
            known: residuals of the calibration samples.
            size: (M,) absolute values of the new plans.
            level: the probability with which a residual lies within its bounds.
            two_sided: False bounds residuals from above alone, with the whole probability.

        Raises:
            ProblemError: there are fewer samples than ``samples_needed``.
        """
        needed, count = self.samples_needed(level, two_sided), len(known.value)
        if count < needed:
            raise ProblemError(
                f"an interval of level {level:g} needs {needed} calibration samples, and there are {count}; calibrate "
                "with more, or ask for a lower level"
            )
        tail = tail_of(level, two_sided)
        if self.order == "exchangeable":
            return _split_bounds(known, size, tail, two_sided)
        scales = fit_scales(known)[count]
        return _scaled(self._offsets(known, tail, gap=0)[count], scales.of(size), two_sided)

    def walk(self, known: Residuals, level: float, two_sided: bool = True, gap: int = 0) -> ResidualBounds:
        """Bounds on every residual from those before it; NaN where there are too few.

        Args:
            known: residuals in time order.
            level, two_sided: as for ``bounds``.
            gap: the number of samples just before one whose truth is not known yet when it is decided.
        """
        needed, tail, count = self.samples_needed(level, two_sided), tail_of(level, two_sided), len(known.value)
        if self.order == "time":
            return _scaled(self._offsets(known, tail, gap)[:count].T, _scales_before(known, gap), two_sided)
        lower, upper = np.full(count, np.nan), np.full(count, np.nan)
        for t in range(needed + gap, count):
            found = _split_bounds(known.until(t - gap), known.size[t : t + 1], tail, two_sided)
            lower[t], upper[t] = found.lower[0], found.upper[0]
        return ResidualBounds(lower, upper)

    def _offsets(self, known: Residuals, tail: float, gap: int) -> Array:
        """Lower and upper bounds in units of the scale, (N + 1, 2); NaN where too few samples are known.

        Row t uses the samples before ``t − gap``. The last row, for later samples, uses all N.
        """
        count, start = len(known.value), SCALE_SAMPLES + gap
        values = known.value / _scales_before(known, gap)
        offsets, spread, drift = np.full((count + 1, 2), np.nan), np.zeros(count + 1), np.zeros(2)
        scores, end = Scores(self.half_life), start
        for t in range(start, count + 1):
            begin, end = end, max(end, count if t == count else t - gap)
            scores.extend(values[begin:end])
            for one in range(begin, end):
                if spread[one] > 0:
                    missed = np.array([values[one] < offsets[one, 0], values[one] > offsets[one, 1]])
                    drift += self.rate * spread[one] * (missed - tail)
            low, high = scores.quantiles(tail)
            if math.isfinite(high) and math.isfinite(low):
                offsets[t], spread[t] = (low - drift[0], high + drift[1]), high - low
        return offsets


def tail_of(level: float, two_sided: bool) -> float:
    """Return the probability that a value lies beyond a bound: 1 − level, of which two bounds take half each.

    Raises:
        ProblemError: the level does not lie between 0 and 1.
    """
    if isinstance(level, bool) or not isinstance(level, (int, float, np.number)) or not 0 < level < 1:
        raise ProblemError(f"the level of an interval must lie between 0 and 1, such as 0.9; got {level!r}")
    return (1 - float(level)) / (2 if two_sided else 1)


def _scales_before(known: Residuals, gap: int) -> Array:
    """(N,) the scale of each sample from those before it, less ``gap``; NaN where these are too few."""
    fits, found = fit_scales(known), np.full(len(known.value), np.nan)
    for t in range(SCALE_SAMPLES + gap, len(found)):
        found[t] = fits[t - gap].of(known.size[t])
    return found


def _split_bounds(known: Residuals, size: Array, tail: float, two_sided: bool) -> ResidualBounds:
    """Bounds for samples in no order: a third of them scales the residuals, where the rest is enough to rank."""
    count = len(known.value)
    third = count // 3
    scales = ONE_SCALE
    if third >= SCALE_SAMPLES and (count - third) * tail >= (1 - tail) * (1 - ROUNDING):
        scales, known = fit_scales(known)[third], Residuals(known.size[third:], known.value[third:])
    scores = Scores()
    scores.extend(known.value / scales.of(known.size))
    return _scaled(scores.quantiles(tail), scales.of(size), two_sided)


def _scaled(offsets: tuple[float, float] | Array, scale: Array, two_sided: bool) -> ResidualBounds:
    """Bounds in the unit of residuals. Bounds that have crossed, as both are missed too rarely, meet in the middle."""
    low, high = offsets
    if not two_sided:
        return ResidualBounds(np.where(np.isnan(scale * high), np.nan, -np.inf), scale * high)
    lower, upper = scale * low, scale * high
    crossed = lower > upper
    middle = np.where(crossed, 0.5 * (lower + upper), 0.0)
    return ResidualBounds(np.where(crossed, middle, lower), np.where(crossed, middle, upper))
