"""Real data split into training, validation and test instances, scaled by the training instances alone."""

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
    """The instances of one part of a split, with their decision problem.

    Attributes:
        task: what is decided, with the constraints of these instances.
        samples: features (N, n, p), standardised, and values (N, n), divided by ``TaskSplit.unit``.
        ids: (N,) what tells an instance from the others, the same in every run that has it.
    """

    task: AnyTask
    samples: Samples
    ids: tuple[int, ...]


@dataclass(frozen=True)
class TaskSplit(Generic[AnyTask]):
    """Instances to train on, to choose the weights by, and to test the result on.

    Attributes:
        train, validation, test: without an instance in common.
        unit: what values are divided by, a number from the training instances; decisions do not depend on it.
        scale: what made the features.
    """

    train: Subset[AnyTask]
    validation: Subset[AnyTask]
    test: Subset[AnyTask]
    unit: float
    scale: SplitFeatureScale


class SplitFeatureScale(NamedTuple):
    """Standardise features: ``(x − mean) / deviation`` by column, and zero for a column without variation.

    Attributes:
        mean: (p,).
        deviation: (p,), infinite for columns that do not vary.

    Example:
        >>> x = torch.tensor([[1.0, 7.0], [3.0, 7.0]])
        >>> SplitFeatureScale.of(x)(torch.tensor([[4.0, 9.0]]))
        tensor([[2., 0.]])
    """

    mean: Tensor
    deviation: Tensor

    @classmethod
    def of(cls, features: Tensor) -> SplitFeatureScale:
        """Compute the scale from the training features (..., p)."""
        rows = features.flatten(0, -2)
        mean, deviation = rows.mean(0), rows.std(0, correction=0)
        still = deviation <= ROUNDOFF * mean.abs().clamp(min=1e-300)
        return cls(mean, torch.where(still, torch.inf, deviation))

    def __call__(self, features: Tensor) -> Tensor:
        """Standardise features (..., p)."""
        return (features - self.mean) / self.deviation


def split_value_unit(values: Tensor) -> float:
    """Return the standard deviation of the training values, which serves as their unit.

    In this unit, the same training settings suit all tasks. Values are not shifted: that would change decisions.
    """
    unit = float(values.std(correction=0))
    if not 0 < unit < float("inf"):
        raise ProblemError(f"the values to learn must be finite and not all equal; their standard deviation is {unit}")
    return unit


def split_instances(
    features: Tensor, values: Tensor, parts: Sequence[Sequence[int]], task: Callable[[list[int]], AnyTask]
) -> TaskSplit[AnyTask]:
    """Split instances; scale features and values by the training instances alone.

    Args:
        features, values: (N, n, p) and (N, n), as in the data.
        parts: positions of the instances to train on, to validate and to test with.
        task: function that makes the task of some of the instances.
    """
    rows = [list(ids) for ids in parts]
    scale, unit = SplitFeatureScale.of(features[rows[0]]), split_value_unit(values[rows[0]])
    train, validation, test = (
        Subset(task(ids), Samples(scale(features[ids]), values[ids] / unit), tuple(ids)) for ids in rows
    )
    return TaskSplit(train, validation, test, unit, scale)


class SharedLinear(nn.Module):
    """One linear model for all items: features (B, n, p) → values (B, n).

    Args:
        features: p.
        weights: (n,) known factors that the model's output is multiplied by, such as amounts at a predicted price; none
            if omitted.

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
