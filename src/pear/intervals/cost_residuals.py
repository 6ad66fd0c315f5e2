"""Residuals of costs, their scales, and scores.

A residual is the realised cost of a decision minus its planned cost. A score is a residual divided by its scale, which
grows with the planned cost.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

SCALE_SAMPLES = 10
"""The smallest number of residuals to which a scale is fitted."""

ROUNDING = 1e-9
"""The relative rounding error that is allowed for, as when a product is rounded up to the rank of a score."""

_HALVES = 40  # a score is forgotten after this many half-lives
_LEAST_SCALE = 1e-3  # smallest scale, relative to the mean absolute residual


class CostResiduals(NamedTuple):
    """The residuals of N samples, in the order of the samples.

    Attributes:
        size: (N,) absolute values of the planned costs.
        value: (N,) realised minus planned costs.
    """

    size: Array
    value: Array

    def until(self, count: int) -> CostResiduals:
        """Return the residuals of the first ``count`` samples."""
        return CostResiduals(self.size[:count], self.value[:count])


class CostResidualScale(NamedTuple):
    """The scale of residuals as a function of the size of the planned cost: ``constant + slope·size``.

    The scale is at least a thousandth of ``typical``. If ``typical`` is 0, the scale is 1.

    Attributes:
        constant, slope: the coefficients, at least 0.
        typical: the mean absolute value of the residuals to which the coefficients were fitted.
    """

    constant: float
    slope: float
    typical: float

    def of(self, size: Any) -> Any:
        """Return the scales for planned costs of these sizes, as an array of the same shape."""
        if self.typical == 0:
            return np.ones_like(size)
        return np.maximum(self.constant + self.slope * size, _LEAST_SCALE * self.typical)


ONE_SCALE = CostResidualScale(1.0, 0.0, 0.0)
"""The scale 1, whatever the size."""


def fit_cost_residual_scales(known: CostResiduals) -> list[CostResidualScale]:
    """Return the scale fitted to the first t residuals, for every t from 0 to their number N.

    The fit ``|residual| ≈ constant + slope·size`` is by least squares, with coefficients of at least 0.

    Returns:
        N + 1 scales. The first one, fitted to no residuals, is 1.

    Example:
        >>> fit_cost_residual_scales(CostResiduals(np.array([1.0, 2.0, 3.0]), np.array([2.0, -4.0, 6.0])))[3]
        CostResidualScale(constant=0.0, slope=2.0, typical=4.0)
    """
    p, r = known.size, np.abs(known.value)
    n = np.arange(len(p) + 1.0)
    sp, sr, spp, spr = (np.concatenate([[0.0], np.cumsum(part)]) for part in (p, r, p * p, p * r))
    mean = _divide_residuals(sr, n)
    spread = spp - sp * _divide_residuals(sp, n)
    spread = np.where(spread > ROUNDING * spp, spread, 0.0)
    slope = _divide_residuals(spr - sp * mean, spread)
    constant = mean - slope * _divide_residuals(sp, n)
    through_zero, flat = constant < 0, slope <= 0
    slope, constant = np.where(through_zero, _divide_residuals(spr, spp), slope), np.where(through_zero, 0.0, constant)
    slope, constant = np.where(flat, 0.0, slope), np.where(flat, mean, constant)
    return [CostResidualScale(*one) for one in np.column_stack([constant, slope, mean]).tolist()]


class CostResidualScores:
    """The known scores, and their quantiles.

    Each score has a weight. The weight of a new, unknown score is 1.

    Args:
        half_life: the number of later scores after which the weight of a score has halved; None for equal weights 1.
    """

    def __init__(self, half_life: float | None = None) -> None:
        self._half_life = half_life
        self._sorted: Array = np.empty(0)
        self._recent: list[float] = []

    def extend(self, scores: Array) -> None:
        """Add scores. The last of them is the latest."""
        if self._half_life is None:
            new = np.sort(scores)
            self._sorted = np.insert(self._sorted, np.searchsorted(self._sorted, new), new)
        else:
            self._recent = [*self._recent, *scores.tolist()][-math.ceil(_HALVES * self._half_life) :]

    def quantiles(self, tail: float) -> tuple[float, float]:
        """Return a lower and an upper bound, each of which a new score misses with a probability of at most ``tail``.

        The upper bound is the smallest score for which the weights of all scores up to this score sum to at least
        ``(1 − tail)·(total weight + 1)``. The lower bound is minus the upper bound of the scores with reversed signs.
        Both are infinite if there are too few scores.

        Example:
            >>> scores = CostResidualScores()
            >>> scores.extend(np.arange(1.0, 10.0))
            >>> scores.quantiles(0.2), scores.quantiles(0.05)
            ((2.0, 8.0), (-inf, inf))
        """
        if self._half_life is None:
            rank = math.ceil((len(self._sorted) + 1) * (1 - tail) * (1 - ROUNDING))
            if rank > len(self._sorted):
                return -math.inf, math.inf
            return float(self._sorted[len(self._sorted) - rank]), float(self._sorted[rank - 1])
        scores = np.array(self._recent)
        weight = 0.5 ** (np.arange(len(scores), 0, -1) / self._half_life)
        return -self._weighted_quantile(-scores, weight, tail), self._weighted_quantile(scores, weight, tail)

    @staticmethod
    def _weighted_quantile(scores: Array, weight: Array, tail: float) -> float:
        """Return a weighted quantile: the smallest score for which the scores up to it have enough weight together.

        The needed weight is ``(1 − tail)·(total weight + 1)``. If all scores together have less, the result is
        infinite.

        Args:
            scores: (N,) scores.
            weight: (N,) weights of the scores.
            tail: the probability with which a new score may exceed the result.
        """
        order = np.argsort(scores, kind="stable")
        below = np.cumsum(weight[order])
        at = int(np.searchsorted(below, (1 - tail) * (weight.sum() + 1) * (1 - ROUNDING)))
        return float(scores[order[at]]) if at < len(scores) else math.inf


def _divide_residuals(a: Array, b: Array) -> Array:
    """Return a / b; 0 if b is not positive."""
    return np.divide(a, b, out=np.zeros_like(a), where=b > 0)
