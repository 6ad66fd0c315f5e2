"""What every task offers: a problem, a way to cut samples into three sets, and the score of a forecast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor

from pear.decisions import solve
from pear.errors import ProblemError
from pear.losses import normalized_regret
from pear.losses.regret import check_pair
from pear.problem import Problem
from pear.problem.convert import as_batch

TINY = 1e-7
"""Added to the denominator of the normalised regret, which stays finite where every optimal value is zero."""


class Samples(NamedTuple):
    """Features and the costs that came true, one row a sample; unpacks as ``X, C``.

    Attributes:
        features: (N, p).
        costs: (N, n).
    """

    features: Tensor
    costs: Tensor


class Split(NamedTuple):
    """Samples to train on, to choose the weights by, and to judge the result by."""

    train: Samples
    validation: Samples
    test: Samples


@dataclass(frozen=True)
class Task:
    """A named decision problem.

    Attributes:
        name: short, for tables and file names.
        problem: what is decided.
    """

    name: str
    problem: Problem

    def split(self, samples: Samples, sizes: Sequence[int] | None = None) -> Split:
        """Cut samples, in the order they have, into train, validation and test.

        Args:
            samples: N of them.
            sizes: three counts with a sum of at most N; left out, half, a quarter and the rest: 1,000, 500 and 500 of
                2,000.

        Example:
            >>> from pear.tasks import shortest_path
            >>> task = shortest_path((3, 3))
            >>> [len(part.costs) for part in task.split(task.samples(2000))]
            [1000, 500, 500]
        """
        count = len(samples.features)
        sizes = [count // 2, count // 4, count - count // 2 - count // 4] if sizes is None else list(sizes)
        if len(sizes) != 3 or min(sizes) < 1 or sum(sizes) > count:
            raise ProblemError(
                f"sizes must be three counts of at least 1 for train, validation and test that sum to at most {count}, "
                f"the number of samples; got {tuple(sizes)}"
            )
        first, second, third = sizes[0], sizes[0] + sizes[1], sum(sizes)
        cuts = (slice(0, first), slice(first, second), slice(second, third))
        return Split(*(Samples(samples.features[cut], samples.costs[cut]) for cut in cuts))

    def decide(self, cost: Any) -> Tensor:
        """(B, n) the best decisions under ``cost``, exactly: the integer problem where there is one.

        Args:
            cost: (B, n) or (n,), in the problem's own sense.

        Returns:
            Decisions in the dtype of ``cost``.
        """
        return solve(self.problem, as_batch(cost).detach()).x

    def decide_relaxed(self, cost: Any) -> Tensor:
        """(B, n) the best decisions under ``cost`` where integers may be fractions.

        Args:
            cost: (B, n) or (n,), in the problem's own sense.
        """
        return solve(self.problem.relaxed(), as_batch(cost).detach()).x

    def regret_of(self, decisions: Tensor, true: Any) -> float:
        """``Σ [c·z − c·z*(c)] / (Σ |c·z*(c)| + 1e-7)``, the sign turned for maximisation: what decisions z lose.

        Args:
            decisions: (B, n) z.
            true: (B, n) the costs c that are paid.
        """
        costs = as_batch(true).detach()
        check_pair(decisions, costs)
        ideal = (costs.double() * self.decide(costs).double()).sum(1)
        paid = (costs.double() * decisions.double()).sum(1)
        return float(self.problem.sign * (paid - ideal).sum() / (ideal.abs().sum() + TINY))

    def normalized_regret(self, predicted: Any, true: Any, Q: Any = None, true_Q: Any = None) -> float:
        """What decisions under ``predicted`` lose, relative to the value of the best decisions.

        Args:
            predicted: (B, n) predicted costs.
            true: (B, n) true costs.
            Q: (n, n) or (B, n, n) predicted curvature, where the problem has one.
            true_Q: the curvature of the bill; the problem's own where it is left out.
        """
        return normalized_regret(self.problem, predicted, true, Q=Q, true_Q=true_Q)
