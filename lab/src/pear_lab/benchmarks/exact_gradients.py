"""``ExactGradients``: exact decisions and gradients of a batch of programs, and errors relative to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pear_lab.benchmarks.gradient_errors import GradientErrors
from pear_lab.judge.judged_program import Array, Mask
from pear_lab.judge.reference_solution import ReferenceSolution

_ZERO = 1e-9  # a gradient that is smaller, relative to the gradient without constraints, counts as zero


@dataclass(frozen=True)
class ExactGradients:
    """Exact decisions and gradients of k samples, from reference solutions.

    Attributes:
        decision: (k, n) exact decisions.
        gradient: (k, n) exact gradients of the regret with respect to the predicted costs.
        zero: (k,) mask of gradients that are zero.
        on_edge: (k,) mask of samples whose gradient does not exist.
        scale: (k,) the norm that an error is divided by. It is the norm of the exact gradient or, if that is zero, the
            norm of the gradient that the program would have without constraints.
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
            references: the reference solutions of k programs.
            errors: (k, n) the predicted minus the true gradient of the objective at each solution.
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

    def errors(self, gradient: Array) -> GradientErrors:
        """Summarise the relative errors of gradients (B, n) of the first B samples. Only comparable samples count."""
        first = gradient[: len(self.gradient)]
        return GradientErrors.summarize(self.relative(first)[self.comparable[: len(first)]])

    def decision_errors(self, decision: Array) -> GradientErrors:
        """Summarise the relative errors of decisions (B, n) of the first B samples. Only comparable samples count."""
        first = decision[: len(self.decision)]
        exact, compared = self.decision[: len(first)], self.comparable[: len(first)]
        error = np.linalg.norm(first - exact, axis=1) / np.linalg.norm(exact, axis=1)
        return GradientErrors.summarize(error[compared])

    def swap(self, i: int) -> None:
        """Exchange the first sample with sample ``i``, in place."""
        for part in (self.decision, self.gradient, self.zero, self.on_edge, self.scale):
            part[[0, i]] = part[[i, 0]]
