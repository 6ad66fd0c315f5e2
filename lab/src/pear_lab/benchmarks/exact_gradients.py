"""Errors of gradients and decisions relative to exact ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pear_lab.judge.judged_program import Array, Mask
from pear_lab.judge.reference_solution import Reference

EXACT = 1e-6
"""A gradient counts as exact if its largest relative error is at most this."""
_ZERO = 1e-9


class ErrorSummary(NamedTuple):
    """Relative errors of the gradients of a batch.

    Attributes:
        median: median error; infinite if an error is NaN.
        q90: 90 % quantile of the errors.
        largest: largest error.
        compared: number of compared samples.
    """

    median: float
    q90: float
    largest: float
    compared: int

    @property
    def exact(self) -> bool:
        """True if the largest error is at most ``EXACT``."""
        return self.largest <= EXACT


def summarize_errors(errors: Array) -> ErrorSummary:
    """Summarize relative errors (k,) by their median, 90 % quantile and maximum.

    Example:
        >>> import numpy as np
        >>> summarize_errors(np.array([1.0, 3.0, 2.0]))
        ErrorSummary(median=2.0, q90=2.8, largest=3.0, compared=3)
    """
    if not len(errors):
        return ErrorSummary(math.nan, math.nan, math.nan, 0)
    values = np.sort(np.where(np.isnan(errors), np.inf, errors))
    median, q90 = (_quantile(values, share) for share in (0.5, 0.9))
    return ErrorSummary(median, q90, float(values[-1]), len(values))


def _quantile(values: Array, share: float) -> float:
    """Return a quantile of sorted values by linear interpolation; infinite if the upper neighbour is."""
    place = share * (len(values) - 1)
    low, high = float(values[math.floor(place)]), float(values[math.ceil(place)])
    return low + (place - math.floor(place)) * (high - low) if math.isfinite(high) else high


@dataclass(frozen=True)
class ExactGradients:
    """Exact decisions and gradients of a batch, from reference solutions.

    Attributes:
        decision: (k, n) exact decisions.
        gradient: (k, n) exact gradients of the regret.
        zero: (k,) bool, True where the gradient is zero.
        on_edge: (k,) bool, True where the gradient does not exist.
        scale: (k,) denominator of relative errors: ‖g‖, or ‖H⁻¹e‖ where g is zero.
    """

    decision: Array
    gradient: Array
    zero: Mask
    on_edge: Mask
    scale: Array

    @classmethod
    def of(cls, references: Sequence[Reference], errors: Array) -> ExactGradients:
        """Project the errors e (k, n) of the predicted objective gradients at the reference solutions."""
        pairs = list(zip(references, errors, strict=True))
        gradient = np.stack([r.project(e) for r, e in pairs])
        whole = np.asarray([np.linalg.norm(np.linalg.solve(r.program.H, e)) for r, e in pairs])
        size = np.linalg.norm(gradient, axis=1)
        zero = size <= _ZERO * whole
        decision = np.stack([r.x for r in references]).astype(np.float64)
        on_edge = np.asarray([r.on_edge for r in references])
        return cls(decision, gradient, zero, on_edge, np.where(zero, whole, size))

    @property
    def comparable(self) -> Mask:
        """Return a mask (k,) of the samples whose gradient exists and is not zero."""
        return ~self.zero & ~self.on_edge

    def relative(self, gradient: Array) -> Array:
        """Return the relative 2-norm errors (B,) of gradients (B, n) of the first B ≤ k samples."""
        first = slice(len(gradient))
        return np.asarray(np.linalg.norm(gradient - self.gradient[first], axis=1) / self.scale[first])

    def errors(self, gradient: Array) -> ErrorSummary:
        """Summarize the errors of gradients (B, n) of the first B samples; only comparable samples count."""
        first = gradient[: len(self.gradient)]
        return summarize_errors(self.relative(first)[self.comparable[: len(first)]])

    def decision_errors(self, decision: Array) -> ErrorSummary:
        """Summarize the relative 2-norm errors of decisions (B, n); only comparable samples count."""
        first = decision[: len(self.decision)]
        exact, compared = self.decision[: len(first)], self.comparable[: len(first)]
        error = np.linalg.norm(first - exact, axis=1) / np.linalg.norm(exact, axis=1)
        return summarize_errors(error[compared])

    def swap(self, i: int) -> None:
        """Exchange the first sample with sample ``i``."""
        for part in (self.decision, self.gradient, self.zero, self.on_edge, self.scale):
            swap_first_row(part, i)


def swap_first_row(rows: Array | Mask, i: int) -> None:
    """Exchange the first row with row ``i``."""
    rows[[0, i]] = rows[[i, 0]]
