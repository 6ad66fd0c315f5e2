"""What every task offers: a problem, a way to cut samples into three sets, and the score of a forecast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor

from pear.errors import ProblemError
from pear.losses import normalized_regret
from pear.problem import Problem


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

    def normalized_regret(self, predicted: Any, true: Any, Q: Any = None, true_Q: Any = None) -> float:
        """What decisions under ``predicted`` lose, relative to the value of the best decisions.

        Args:
            predicted: (B, n) predicted costs.
            true: (B, n) true costs.
            Q: (n, n) or (B, n, n) predicted curvature, where the problem has one.
            true_Q: the curvature of the bill; the problem's own where it is left out.
        """
        return normalized_regret(self.problem, predicted, true, Q=Q, true_Q=true_Q)
