"""``ExactGradients``: exact decisions and gradients of a batch of programs, and errors relative to them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pear_lab.judge.judged_program import Array, Mask
from pear_lab.judge.reference_solution import ReferenceSolution

EXACT = 1e-6
"""The largest relative error of a gradient that counts as exact."""
_ZERO = 1e-9  # a gradient that is smaller, relative to the gradient without constraints, counts as zero


class ErrorSummary(NamedTuple):
    """A summary of relative errors. An error that is NaN counts as infinite.

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

    @property
    def exact(self) -> bool:
        """Whether the largest error is at most ``EXACT``."""
        return self.largest <= EXACT


def largest_gradient_error(found: Any, exact: Any) -> float:
    """Return the largest relative 2-norm error of a sample's gradient. Exact gradients of zero do not count.

    Args:
        found: batches of gradients, (b, …) each.
        exact: the exact gradients of the same batches.

    Returns:
        The error; NaN if every exact gradient is zero.
    """
    a, b = (np.concatenate([np.asarray(part).reshape(len(part), -1) for part in parts]) for parts in (found, exact))
    size = np.linalg.norm(b, axis=1)
    there = size > 0
    return float((np.linalg.norm(a - b, axis=1)[there] / size[there]).max()) if there.any() else math.nan


def summarize_gradient_errors(errors: Array) -> ErrorSummary:
    """Summarise relative errors (k,) by their median, 90 % quantile and maximum.

    Example:
        >>> import numpy as np
        >>> summarize_gradient_errors(np.array([1.0, 3.0, 2.0]))
        ErrorSummary(median=2.0, q90=2.8, largest=3.0, compared=3)
    """
    if not len(errors):
        return ErrorSummary(math.nan, math.nan, math.nan, 0)
    values = np.sort(np.where(np.isnan(errors), np.inf, errors))
    median, q90 = (_gradient_error_quantile(values, share) for share in (0.5, 0.9))
    return ErrorSummary(median, q90, float(values[-1]), len(values))


def _gradient_error_quantile(values: Array, share: float) -> float:
    """Return a quantile of sorted errors by linear interpolation; infinite if the next larger error is infinite."""
    place = share * (len(values) - 1)
    low, high = float(values[math.floor(place)]), float(values[math.ceil(place)])
    return low + (place - math.floor(place)) * (high - low) if math.isfinite(high) else high


@dataclass(frozen=True)
class ExactGradients:
    """Exact decisions and gradients of k samples, from reference solutions.

    Attributes:
        decision: (k, n) exact decisions.
        gradient: (k, n) exact gradients of the regret.
        zero: (k,) mask of gradients that are zero.
        on_edge: (k,) mask of samples whose gradient does not exist.
        scale: (k,) what an error is divided by: the norm of the gradient or, if the gradient is zero, the norm of the
            gradient that the program would have without constraints.
    """

    decision: Array
    gradient: Array
    zero: Mask
    on_edge: Mask
    scale: Array

    @classmethod
    def of(cls, references: Sequence[ReferenceSolution], errors: Array) -> ExactGradients:
        """Compute the exact gradients from solved programs.

        Args:
            references: k solutions.
            errors: (k, n) errors of the predicted gradient of the objective at each solution.
        """
        pairs = list(zip(references, errors, strict=True))
        gradient = np.stack([r.project(e) for r, e in pairs])
        whole = np.asarray([np.linalg.norm(np.linalg.lstsq(r.program.H, e, rcond=None)[0]) for r, e in pairs])
        size = np.linalg.norm(gradient, axis=1)
        zero = size <= _ZERO * whole
        decision = np.stack([r.x for r in references]).astype(np.float64)
        on_edge = np.asarray([r.on_edge for r in references])
        return cls(decision, gradient, zero, on_edge, np.where(zero, whole, size))

    @property
    def comparable(self) -> Mask:
        """(k,) mask of the samples whose gradient exists and is not zero."""
        return ~self.zero & ~self.on_edge

    def relative(self, gradient: Array) -> Array:
        """Return the relative 2-norm errors (B,) of gradients (B, n) of the first B ≤ k samples."""
        first = slice(len(gradient))
        return np.asarray(np.linalg.norm(gradient - self.gradient[first], axis=1) / self.scale[first])

    def errors(self, gradient: Array) -> ErrorSummary:
        """Summarise the relative errors of gradients (B, n) of the first B samples. Only comparable samples count."""
        first = gradient[: len(self.gradient)]
        return summarize_gradient_errors(self.relative(first)[self.comparable[: len(first)]])

    def decision_errors(self, decision: Array) -> ErrorSummary:
        """Summarise the relative errors of decisions (B, n) of the first B samples. Only comparable samples count."""
        first = decision[: len(self.decision)]
        exact, compared = self.decision[: len(first)], self.comparable[: len(first)]
        error = np.linalg.norm(first - exact, axis=1) / np.linalg.norm(exact, axis=1)
        return summarize_gradient_errors(error[compared])

    def swap(self, i: int) -> None:
        """Exchange the first sample with sample ``i``."""
        for part in (self.decision, self.gradient, self.zero, self.on_edge, self.scale):
            part[[0, i]] = part[[i, 0]]
