"""Residuals of plans, their scales, and order statistics of the scores, which are residuals divided by scales."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

SCALE_SAMPLES = 10
"""The fewest residuals that a scale is fitted to."""

ROUNDING = 1e-9
"""Relative rounding of a rank such as (n + 1)·(1 − tail), which is to be a whole number where it is one."""

_LEAST_SCALE = 1e-3  # of the mean absolute residual


class Residuals(NamedTuple):
    """Realised minus planned costs, for samples in their order.

    Attributes:
        size: (N,) absolute values of what was planned.
        value: (N,) residuals.
    """

    size: Array
    value: Array

    def until(self, count: int) -> Residuals:
        """The first samples."""
        return Residuals(self.size[:count], self.value[:count])


class Scales(NamedTuple):
    """``scale = constant + slope·size`` of plans, in the unit of the residuals.

    Attributes:
        constant, slope: at least 0.
        typical: the mean absolute residual that they were fitted to; where it is 0, the scale is 1.
    """

    constant: float
    slope: float
    typical: float

    def of(self, size: Any) -> Any:
        """The scales of plans of these sizes."""
        if self.typical == 0:
            return np.ones_like(size)
        return np.maximum(self.constant + self.slope * size, _LEAST_SCALE * self.typical)


ONE_SCALE = Scales(1.0, 0.0, 0.0)
"""The scale 1 for all plans."""


def fit_scales(known: Residuals) -> list[Scales]:
    """Fit ``|residual| ≈ constant + slope·size`` by least squares, both at least 0, to the first t samples for every t.

    Returns:
        N + 1 scales; the first, of no samples, is 1.

    Example:
        >>> fit_scales(Residuals(np.array([1.0, 2.0, 3.0]), np.array([2.0, -4.0, 6.0])))[3]
        Scales(constant=0.0, slope=2.0, typical=4.0)
    """
    p, r = known.size, np.abs(known.value)
    n = np.arange(len(p) + 1.0)
    sp, sr, spp, spr = (np.concatenate([[0.0], np.cumsum(part)]) for part in (p, r, p * p, p * r))
    mean = _divide(sr, n)
    spread = spp - sp * _divide(sp, n)
    spread = np.where(spread > ROUNDING * spp, spread, 0.0)
    slope = _divide(spr - sp * mean, spread)
    constant = mean - slope * _divide(sp, n)
    through_zero, flat = constant < 0, slope <= 0
    slope, constant = np.where(through_zero, _divide(spr, spp), slope), np.where(through_zero, 0.0, constant)
    slope, constant = np.where(flat, 0.0, slope), np.where(flat, mean, constant)
    return [Scales(*one) for one in np.column_stack([constant, slope, mean]).tolist()]


class Scores:
    """Scores that are known, the last one behind the others; a new one counts 1 beside them.

    Args:
        half_life: after how many scores one counts half; None lets all count equally.
    """

    def __init__(self, half_life: float | None = None) -> None:
        self._half_life = half_life
        self._sorted: Array = np.empty(0)
        self._recent: list[float] = []

    def extend(self, scores: Array) -> None:
        """Add scores, in their order."""
        if self._half_life is None:
            new = np.sort(scores)
            self._sorted = np.insert(self._sorted, np.searchsorted(self._sorted, new), new)
        else:
            self._recent = [*self._recent, *scores.tolist()][-math.ceil(_HALVES * self._half_life) :]

    def quantiles(self, tail: float) -> tuple[float, float]:
        """The scores below and above which a new one lies with probability ``tail`` each; infinite where too few count.

        The upper one is the least score whose weight and that of smaller ones reach ``(1 − tail)·(total weight + 1)``;
        the lower one is its mirror image.

        Example:
            >>> scores = Scores()
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
        return -_weighted_quantile(-scores, weight, tail), _weighted_quantile(scores, weight, tail)


_HALVES = 40  # half-lives after which a score counts for nothing


def _weighted_quantile(scores: Array, weight: Array, tail: float) -> float:
    """The least score whose weight and that of smaller ones reach ``(1 − tail)·(total weight + 1)``; else infinity."""
    order = np.argsort(scores, kind="stable")
    below = np.cumsum(weight[order])
    at = int(np.searchsorted(below, (1 - tail) * (weight.sum() + 1) * (1 - ROUNDING)))
    return float(scores[order[at]]) if at < len(scores) else math.inf


def _divide(a: Array, b: Array) -> Array:
    """a / b; 0 where b is not positive."""
    return np.divide(a, b, out=np.zeros_like(a), where=b > 0)
