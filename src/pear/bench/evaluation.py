"""The portfolios of the gradient benchmark, and how far gradients are from the exact ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pear.bench.families import long_only, markets
from pear.bench.program import Array, Mask, programs
from pear.bench.reference import Reference, reference

MOVE = 0.01
"""How far costs move between two visits of a sample, relative to themselves."""
EXACT = 1e-6
"""Largest error up to which a gradient counts as exact, so that its time is worth comparing with."""
_ZERO = 1e-9


class Errors(NamedTuple):
    """Relative errors of the gradients of a batch.

    Attributes:
        median, q90, largest: of them all; infinite where one is not a number.
        compared: samples they come from.
    """

    median: float
    q90: float
    largest: float
    compared: int

    @property
    def exact(self) -> bool:
        """True where even the largest is small."""
        return self.largest <= EXACT


def summarize(errors: Array) -> Errors:
    """Median, 90 % quantile and largest of relative errors (k,).

    Example:
        >>> import numpy as np
        >>> summarize(np.array([1.0, 3.0, 2.0]))
        Errors(median=2.0, q90=2.8, largest=3.0, compared=3)
    """
    if not len(errors):
        return Errors(math.nan, math.nan, math.nan, 0)
    values = np.sort(np.where(np.isnan(errors), np.inf, errors))
    median, q90 = (_quantile(values, share) for share in (0.5, 0.9))
    return Errors(median, q90, float(values[-1]), len(values))


def _quantile(values: Array, share: float) -> float:
    """Between the two nearest of sorted values; towards infinity there is nothing in between."""
    place = share * (len(values) - 1)
    low, high = float(values[math.floor(place)]), float(values[math.ceil(place)])
    return low + (place - math.floor(place)) * (high - low) if math.isfinite(high) else high


@dataclass(frozen=True)
class Answers:
    """What the reference says of the gradients of a batch.

    Attributes:
        gradient: (k, n) exact gradients of the regret.
        zero, on_edge: (k,) bool; where the gradient is zero, and where it does not exist.
        scale: (k,) what an error is compared with: ‖g‖, or ‖H⁻¹e‖ where g is zero.
    """

    gradient: Array
    zero: Mask
    on_edge: Mask
    scale: Array

    @classmethod
    def of(cls, references: Sequence[Reference], errors: Array) -> Answers:
        """From references and the errors e (k, n) of the predicted gradients of the objective."""
        pairs = list(zip(references, errors, strict=True))
        gradient = np.stack([r.project(e) for r, e in pairs])
        whole = np.asarray([np.linalg.norm(np.linalg.solve(r.program.H, e)) for r, e in pairs])
        size = np.linalg.norm(gradient, axis=1)
        zero = size <= _ZERO * whole
        return cls(gradient, zero, np.asarray([r.on_edge for r in references]), np.where(zero, whole, size))

    @property
    def comparable(self) -> Mask:
        """(k,) where the gradient exists and is not zero."""
        return ~self.zero & ~self.on_edge

    def relative(self, gradient: Array) -> Array:
        """(B,) relative 2-norms of the errors of gradients (B, n) of the first samples, B ≤ k."""
        first = slice(len(gradient))
        return np.asarray(np.linalg.norm(gradient - self.gradient[first], axis=1) / self.scale[first])

    def errors(self, gradient: Array) -> Errors:
        """Those of gradients (B, n), over the first samples that are comparable."""
        first = gradient[: len(self.gradient)]
        return summarize(self.relative(first)[self.comparable[: len(first)]])

    def swap(self, i: int) -> None:
        """Exchange the first sample with sample ``i``."""
        for part in (self.gradient, self.zero, self.on_edge, self.scale):
            _swap(part, i)


class Markets:
    """Portfolios of n assets, each with a covariance of its own; smaller batches are the start of larger ones.

    Args:
        n: number of assets.
        largest: B, samples to draw.
        references: samples for which the exact gradient is computed, from the first on.
        seed: of the draws.

    Attributes:
        cost, true: (B, n) −μ̂ and −μ.
        moved: (B, n) −μ̂ after a step of training.
        Q: (B, n, n) 2Σ.
        answers, moved_answers: exact gradients at ``cost`` and at ``moved``.

    The first sample is one that is comparable, so that a batch of one is, too.
    """

    def __init__(self, n: int, largest: int, references: int, seed: int = 0) -> None:
        draws, steps = np.random.default_rng([seed, n]).spawn(2)
        drawn = max(largest, references)
        self.cost, self.true, self.Q = markets(draws, n, drawn)
        self.moved = self.cost * (1 + MOVE * steps.normal(size=(drawn, n)))
        first = slice(references)
        self.answers = _ask(self.cost[first], self.true[first], self.Q[first])
        self.moved_answers = _ask(self.moved[first], self.true[first], self.Q[first])
        both = np.flatnonzero(self.answers.comparable & self.moved_answers.comparable)
        if len(both):
            for part in (self.cost, self.true, self.Q, self.moved):
                _swap(part, int(both[0]))
            for answers in (self.answers, self.moved_answers):
                answers.swap(int(both[0]))


def _swap(rows: Array | Mask, i: int) -> None:
    """Exchange the first row with row ``i``."""
    rows[[0, i]] = rows[[i, 0]]


def _ask(cost: Array, true: Array, Q: Array) -> Answers:
    return Answers.of([reference(program, "auto") for program in programs(long_only(Q), cost, 0.0)], cost - true)
