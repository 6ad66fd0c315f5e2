"""A choice among listed sets whose values are a known function of what is predicted: linear in the choice."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from pear.problem import Problem


def choice_problem(count: int, sense: str) -> Problem:
    """Choose one of ``count`` sets; the costs are the values of the sets.

    The value of a set may not be a sum over its members, as with a price of overload, or with users who are reached
    twice. Costs of members cannot represent such values. Costs of sets can, and the problem is linear.

    Example:
        >>> choice_problem(4, "max")
        Problem(max, n=4, 1 equality, bounds)
    """
    return Problem(A=np.ones((1, count)), b=[1.0], lb=0.0, sense=sense)


class ChoiceForecaster(nn.Module):
    """A linear forecast of numbers, and the values of all sets that follow from them.

    Args:
        features: p, the size of the last dimension of the features.
        outputs: numbers that are predicted from p features.
        value: the values (B, K) of all sets from the predicted numbers (B, …, outputs); differentiable.

    Example:
        >>> model = ChoiceForecaster(3, 2, lambda numbers: numbers.cumsum(-1))
        >>> model(torch.zeros(5, 3)).shape
        torch.Size([5, 2])
    """

    def __init__(self, features: int, outputs: int, value: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.linear = nn.Linear(features, outputs)
        self.value = value

    def forward(self, features: Tensor) -> Tensor:
        """Return the values (B, K) of all sets for features (B, …, p)."""
        return self.value(self.linear(features))


def choice_indicator_rows(sets: list[tuple[int, ...]], members: int) -> Tensor:
    """1 where a set has a member: (K, members).

    Example:
        >>> choice_indicator_rows([(0,), (0, 2)], 3).tolist()
        [[1.0, 0.0, 0.0], [1.0, 0.0, 1.0]]
    """
    return torch.tensor([[float(one in some) for one in range(members)] for some in sets])
