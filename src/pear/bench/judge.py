"""The portfolios of the gradient benchmark, and the exact gradients that everybody is judged by."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pear.bench.families import long_only, markets
from pear.bench.oracle import reference
from pear.bench.program import Array, Mask, programs
from pear.bench.statistics import Errors, summarize

MOVE = 0.01
"""How far costs move between two visits of a sample, relative to themselves."""
_ZERO = 1e-9


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
