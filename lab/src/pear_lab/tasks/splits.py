"""Splits of real data into training, validation and test instances, scaled by the training instances only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from pear.errors import ProblemError
from pear.optimality.rule import ROUNDOFF
from pear.tasks.task import Samples, Task

AnyTask = TypeVar("AnyTask", bound=Task, covariant=True)


@dataclass(frozen=True)
class Subset(Generic[AnyTask]):
    """The N instances of one part of a split, with their decision task.

    Attributes:
        task: the decision task with the constraints of these instances.
        samples: standardised features (N, n, p) of the n items of each instance, and the values (N, n) of the items,
            divided by ``TaskSplit.unit``.
        ids: (N,) the positions of the instances in the data.
    """

    task: AnyTask
    samples: Samples
    ids: tuple[int, ...]


@dataclass(frozen=True)
class TaskSplit(Generic[AnyTask]):
    """The instances of a task in three parts, for training, for validation and for the test.

    Attributes:
        train, validation, test: the parts, which have no instance in common.
        unit: the standard deviation of the training values, by which all values are divided. The division
            changes no decision.
        scale: the function that standardised the features.
    """

    train: Subset[AnyTask]
    validation: Subset[AnyTask]
    test: Subset[AnyTask]
    unit: float
    scale: SplitFeatureScale


class SplitFeatureScale(NamedTuple):
    """A function that standardises each column x of the features: ``(x − mean) / deviation``.

    A column that does not vary among the training features becomes zero.

    Attributes:
        mean: (p,) the means of the training features.
        deviation: (p,) the standard deviations of the training features; infinite for a column that does not vary.

    Example:
        >>> x = torch.tensor([[1.0, 7.0], [3.0, 7.0]])
        >>> SplitFeatureScale.of(x)(torch.tensor([[4.0, 9.0]]))
        tensor([[2., 0.]])
    """

    mean: Tensor
    deviation: Tensor

    @classmethod
    def of(cls, features: Tensor) -> SplitFeatureScale:
        """Return the scale with the means and the deviations of training features (..., p)."""
        rows = features.flatten(0, -2)
        mean, deviation = rows.mean(0), rows.std(0, correction=0)
        still = deviation <= ROUNDOFF * mean.abs().clamp(min=1e-300)
        return cls(mean, torch.where(still, torch.inf, deviation))

    def __call__(self, features: Tensor) -> Tensor:
        """Return the standardised features (..., p)."""
        return (features - self.mean) / self.deviation


def split_value_unit(values: Tensor) -> float:
    """Return the standard deviation of the training values, by which the values of a split are divided.

    After the division the same training settings suit all tasks. The mean is not subtracted, because a shift of the
    values would change decisions.
    """
    unit = float(values.std(correction=0))
    if not 0 < unit < float("inf"):
        raise ProblemError(f"the values to learn must be finite and not all equal; their standard deviation is {unit}")
    return unit


def split_instances(
    features: Tensor, values: Tensor, parts: Sequence[Sequence[int]], task: Callable[[list[int]], AnyTask]
) -> TaskSplit[AnyTask]:
    """Split instances, and scale their features and values with statistics of the training instances only.

    Args:
        features: (N, n, p) the features of N instances with n items each, as in the data.
        values: (N, n) the values of their items, as in the data.
        parts: the positions of the instances for training, for validation and for the test.
        task: function that makes the task of some instances from their positions.
    """
    rows = [list(ids) for ids in parts]
    scale, unit = SplitFeatureScale.of(features[rows[0]]), split_value_unit(values[rows[0]])
    train, validation, test = (
        Subset(task(ids), Samples(scale(features[ids]), values[ids] / unit), tuple(ids)) for ids in rows
    )
    return TaskSplit(train, validation, test, unit, scale)


class SharedLinear(nn.Module):
    """A linear model that all items share, from features (B, n, p) to values (B, n).

    Args:
        features: p, the number of features of an item.
        weights: (n,) known factors of the outputs, such as amounts that are sold at predicted prices; 1 if omitted.

    Example:
        >>> model = SharedLinear(2)
        >>> model(torch.zeros(4, 3, 2, dtype=torch.float64)).shape
        torch.Size([4, 3])
    """

    weights: Tensor | None

    def __init__(self, features: int, weights: Sequence[float] | Tensor | None = None) -> None:
        super().__init__()
        self.linear = nn.Linear(features, 1, dtype=torch.float64)
        factors = None if weights is None else torch.as_tensor(weights, dtype=torch.float64)
        self.register_buffer("weights", factors, persistent=False)

    def forward(self, features: Tensor) -> Tensor:
        """Return the values (B, n) of items with features (B, n, p)."""
        rate: Tensor = self.linear(features).squeeze(-1)
        return rate if self.weights is None else rate * self.weights
