"""The portfolios of the gradient benchmark, and how far gradients are from the exact ones."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pear.bench.families import long_only, markets
from pear.bench.program import Array, Mask, programs
from pear.bench.reference import reference

MOVE = 0.01
"""How far costs move between two visits of a sample, relative to themselves."""
EXACT = 1e-6
"""Largest error up to which a gradient counts as exact, so that its time is worth comparing with."""
_ZERO = 1e-9


@dataclass(frozen=True)
class Errors:
    """Relative errors of the gradients of a batch.

    Attributes:
        median, q90, largest: of them all; infinite where one is not a number.
        judged: samples they come from.
    """

    median: float
    q90: float
    largest: float
    judged: int

    @property
    def exact(self) -> bool:
        """True where even the largest is small."""
        return self.largest <= EXACT


def summarize(errors: Array) -> Errors:
    """Median, 90 % quantile and largest of relative errors (k,).

    Example:
        >>> import numpy as np
        >>> summarize(np.array([1.0, 3.0, 2.0]))
        Errors(median=2.0, q90=2.8, largest=3.0, judged=3)
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
    """Exact gradients of the first samples.

    Attributes:
        gradient: (k, n).
        judged: (k,) where it is neither zero nor on an edge.
    """

    gradient: Array
    judged: Mask

    def errors(self, gradient: Array) -> Errors:
        """Relative 2-norms of the errors of gradients (B, n), over those of the first samples that are judged."""
        chosen = self.judged[: len(gradient)]
        exact, found = self.gradient[: len(chosen)][chosen], gradient[: len(chosen)][chosen]
        return summarize(np.linalg.norm(found - exact, axis=1) / np.linalg.norm(exact, axis=1))


class Markets:
    """Portfolios of n assets, each with a covariance of its own; smaller batches are the start of larger ones.

    Args:
        n: number of assets.
        largest: B, samples to draw.
        judged: samples for which the exact gradient is computed, from the first on.
        seed: of the draws.

    Attributes:
        cost, true: (B, n) −μ̂ and −μ.
        moved: (B, n) −μ̂ after a step of training.
        Q: (B, n, n) 2Σ.
        answers, moved_answers: exact gradients at ``cost`` and at ``moved``.

    The first sample is one that is judged, so that a batch of one is, too.
    """

    def __init__(self, n: int, largest: int, judged: int, seed: int = 0) -> None:
        draws, steps = np.random.default_rng([seed, n]).spawn(2)
        drawn = max(largest, judged)
        self.cost, self.true, self.Q = markets(draws, n, drawn)
        self.moved = self.cost * (1 + MOVE * steps.normal(size=(drawn, n)))
        self.answers = _ask(self.cost[:judged], self.true[:judged], self.Q[:judged])
        self.moved_answers = _ask(self.moved[:judged], self.true[:judged], self.Q[:judged])
        both = np.flatnonzero(self.answers.judged & self.moved_answers.judged)
        if len(both):
            for part in (self.cost, self.true, self.Q, self.moved):
                _swap(part, int(both[0]))
            for answers in (self.answers, self.moved_answers):
                _swap(answers.gradient, int(both[0]))
                _swap(answers.judged, int(both[0]))


def _swap(rows: Array | Mask, i: int) -> None:
    """Exchange the first row with row ``i``."""
    rows[[0, i]] = rows[[i, 0]]


def _ask(cost: Array, true: Array, Q: Array) -> Answers:
    gradients, judged = [], []
    for program, error in zip(programs(long_only(Q), cost, 0.0), cost - true, strict=True):
        found = reference(program, "auto")
        gradient = found.project(error)
        whole = np.linalg.norm(np.linalg.solve(program.H, error))
        gradients.append(gradient)
        judged.append(not found.on_edge and np.linalg.norm(gradient) > _ZERO * whole)
    return Answers(np.stack(gradients), np.asarray(judged))
