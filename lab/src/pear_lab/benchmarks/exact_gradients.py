"""Exact gradients of random programs: reference solutions, the errors relative to them, and batches that carry both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from pear_lab.benchmarks.program_structures import Structure
from pear_lab.judge.judged_program import DIMENSIONS, Array, Mask, judged_programs
from pear_lab.judge.reference_solution import ReferenceSolution, solve_reference

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


def largest_gradient_error(found: Any, exact: Any) -> float:
    """The largest relative 2-norm error of a sample's gradient, over samples with an exact gradient other than zero.

    Args:
        found: batches of gradients (b, …).
        exact: the exact gradients of the same batches.

    Returns:
        The error; NaN where every exact gradient is zero.
    """
    a, b = (np.concatenate([np.asarray(part).reshape(len(part), -1) for part in parts]) for parts in (found, exact))
    size = np.linalg.norm(b, axis=1)
    there = size > 0
    return float((np.linalg.norm(a - b, axis=1)[there] / size[there]).max()) if there.any() else math.nan


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
        scale: (k,) denominator of relative errors: ‖g‖, or ‖H⁺e‖ where g is zero, H⁺ being the pseudo-inverse.
    """

    decision: Array
    gradient: Array
    zero: Mask
    on_edge: Mask
    scale: Array

    @classmethod
    def of(cls, references: Sequence[ReferenceSolution], errors: Array) -> ExactGradients:
        """Project the errors e (k, n) of the predicted objective gradients at the reference solutions."""
        pairs = list(zip(references, errors, strict=True))
        gradient = np.stack([r.project(e) for r, e in pairs])
        whole = np.asarray([np.linalg.norm(_solve_singular(r.program.H, e)) for r, e in pairs])
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


def _solve_singular(H: Array, e: Array) -> Array:
    """The shortest solution (n,) of Hx = e in least squares, for H that may be singular."""
    return np.asarray(np.linalg.lstsq(H, e, rcond=None)[0])


def swap_first_row(rows: Array | Mask, i: int) -> None:
    """Exchange the first row with row ``i``."""
    rows[[0, i]] = rows[[i, 0]]


MOVE = 0.01
"""How far costs move between two visits of a sample, relative to themselves."""


class GradientBatch:
    """Programs of n variables of one structure. A smaller batch consists of the first samples of a larger one.

    Args:
        structure: structure of the programs.
        n: number of variables.
        largest: B, samples to draw.
        references: number of samples, from the first on, whose exact gradient is computed.
        seed: seed of the random programs.

    Attributes:
        cost, true: (B, n) predicted and true costs.
        moved: (B, n) predicted costs after a step of training.
        fields: constraints and curvature by the names of ``Problem``, shared or (B, …).
        smoothing: λ.
        answers: exact gradients at ``cost``.
        moved_answers: those at ``moved``; None where the structure is not measured with warm starts.

    The gradient of the first sample is always comparable, so that this holds for a batch of one as well.
    """

    def __init__(self, structure: Structure, n: int, largest: int, references: int, seed: int = 0) -> None:
        draws, steps = np.random.default_rng([seed, n]).spawn(2)
        drawn = max(largest, references)
        draw = structure.draw(draws, n, drawn)
        self.structure, self.smoothing, self.redundant = structure, draw.smoothing, draw.redundant
        self.cost, self.true, self.fields = draw.cost, draw.true, draw.fields
        self.moved = self.cost * (1 + MOVE * steps.normal(size=(drawn, n)))
        self.answers = self._exact_at(self.cost[:references])
        self.moved_answers = self._exact_at(self.moved[:references]) if structure.warm else None
        asked = [answers.comparable for answers in (self.answers, self.moved_answers) if answers is not None]
        if len(comparable := np.flatnonzero(np.all(asked, axis=0))):
            self._swap_first_sample(int(comparable[0]))

    @property
    def n(self) -> int:
        """Number of variables."""
        return int(self.cost.shape[1])

    @property
    def is_shared(self) -> bool:
        """Whether all samples share one problem and differ in their costs alone."""
        return not any(map(self._is_own, self.fields))

    def part(self, batch: int) -> dict[str, Any]:
        """The fields of the first ``batch`` samples."""
        return {name: value[:batch] if self._is_own(name) else value for name, value in self.fields.items()}

    def tensors(self, batch: int, device: str) -> dict[str, Any]:
        """The fields of the first ``batch`` samples as tensors on a device; scalars stay numbers."""
        return {
            name: value if isinstance(value, float) else torch.from_numpy(value).to(device)
            for name, value in self.part(batch).items()
        }

    def curvature(self, batch: int) -> Array:
        """The curvatures Q + λI of the first ``batch`` samples, (n, n) or (B, n, n)."""
        Q = self.part(batch).get("Q", np.zeros((self.n, self.n)))
        return np.asarray(Q + self.smoothing * np.eye(self.n) if self.smoothing else Q)

    def data(self, batch: int) -> dict[str, Array]:
        """The arrays for a peer: absent fields are empty or infinite, and redundant rows of A are left out."""
        n, part = self.n, self.part(batch)
        A, b = part.get("A", np.zeros((0, n))), part.get("b", np.zeros(0))
        kept = b.shape[-1] - self.redundant
        bounds = {
            name: np.broadcast_to(part.get(name, absent), (n,)).copy() if not self._is_own(name) else part[name]
            for name, absent in (("lb", -np.inf), ("ub", np.inf))
        }
        rows = {"A": A[..., :kept, :], "b": b[..., :kept], "G": part.get("G", np.zeros((0, n)))}
        limits = {"h": part.get("h", np.zeros(0)), **bounds}
        costs = {"cost": self.cost[:batch], "true": self.true[:batch]}
        return {"Q": self.curvature(batch), **rows, **limits, **costs}

    def _is_own(self, name: str) -> bool:
        """Whether each sample has its own value of a field."""
        return np.ndim(self.fields.get(name, 0.0)) > DIMENSIONS[name]

    def _exact_at(self, cost: Array) -> ExactGradients:
        found = [
            solve_reference(program, "auto") for program in judged_programs(self.part(len(cost)), cost, self.smoothing)
        ]
        return ExactGradients.of(found, cost - self.true[: len(cost)])

    def _swap_first_sample(self, i: int) -> None:
        """Exchange the first sample with sample ``i``."""
        own = [value for name, value in self.fields.items() if self._is_own(name)]
        for part in (self.cost, self.true, self.moved, *own):
            swap_first_row(part, i)
        for answers in (self.answers, self.moved_answers):
            if answers is not None:
                answers.swap(i)
