"""The linear program that chooses one of several sets of items, and forecasters of the values of all sets."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from pear.problem import Problem


def choice_problem(count: int, sense: str) -> Problem:
    """Return the linear program that chooses one of ``count`` sets. Its costs are the values of the sets.

    Every set has a variable. The value of a set therefore need not be the sum of the values of its members.

    Example:
        >>> choice_problem(4, "max")
        Problem(max, n=4, 1 equality, bounds)
    """
    return Problem(A=np.ones((1, count)), b=[1.0], lb=0.0, sense=sense)


class ChoiceForecaster(nn.Module):
    """A forecaster of the values of all sets.

    A linear model predicts some quantities, and a known function computes the values of the sets from them.

    Args:
        features: p, the size of the last dimension of the features.
        outputs: the number of quantities that are predicted from p features.
        value: the differentiable function from quantities (B, …, outputs) to the values (B, K) of K sets.

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
    """Return a matrix (K, members) for K sets, with 1 in row k and column j if set k contains j, and 0 otherwise.

    Example:
        >>> choice_indicator_rows([(0,), (0, 2)], 3).tolist()
        [[1.0, 0.0, 0.0], [1.0, 0.0, 1.0]]
    """
    return torch.tensor([[float(one in some) for one in range(members)] for some in sets])
