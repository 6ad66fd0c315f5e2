"""Weights of samples: checks of a weight argument, and weighted means and sums."""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from torch import Tensor

from pear.errors import ProblemError
from pear.problem.tensor_conversion import to_tensor

Reduction = Literal["mean", "sum", "none"]
"""How the losses of a batch become one number; "none" keeps the loss of each sample."""


def check_weighted_reduction(reduction: Any) -> None:
    """Raise ProblemError unless ``reduction`` is "mean", "sum" or "none"."""
    if reduction not in get_args(Reduction):
        raise ProblemError(f"reduction must be 'mean', 'sum' or 'none'; got {reduction!r}")


def read_weights(weight: Any, count: int, name: str = "weight") -> Tensor:
    """Check the weights of samples, and return them as a detached float64 tensor (B,).

    Args:
        weight: (B,) how much each sample counts: an array, a tensor, a list or a Series.
        count: B, the number of samples.
        name: the name of the argument in messages.

    Raises:
        ProblemError: the number of weights is not B, a weight is negative or not finite, or all weights are zero.

    Example:
        >>> read_weights([2, 0, 1], 3)
        tensor([2., 0., 1.], dtype=torch.float64)
    """
    values = to_tensor(name, weight).detach().double()
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.shape != (count,):
        raise ProblemError(
            f"{name} must have one number for each of the {count} samples; got shape {tuple(values.shape)}"
        )
    wrong = (~(values >= 0) | values.isinf()).nonzero()[:, 0].tolist()
    if wrong:
        raise ProblemError(
            f"{name} must be finite and not negative; that of sample {wrong[0]} is {float(values[wrong[0]]):g}"
            f"{f', and {len(wrong) - 1} others are wrong' if len(wrong) > 1 else ''}"
        )
    if not bool(values.any()):
        raise ProblemError(f"all {count} numbers of {name} are zero; one sample at least must count")
    return values


def normalized_weights(weight: Tensor) -> Tensor:
    """Divide weights (B,) by the mean of the non-zero weights, so that their unit does not matter.

    Example:
        >>> import torch
        >>> normalized_weights(torch.tensor([2.0, 0.0, 6.0]))
        tensor([0.5000, 0.0000, 1.5000])
    """
    return weight / (weight.sum() / (weight > 0).sum())


def weighted_mean(each: Tensor, weight: Tensor | None) -> Tensor:
    """Compute the mean of values (B, …) over samples and entries, weighted by sample.

    Args:
        each: (B, …) values.
        weight: (B,) weights; None weighs all samples equally.

    Example:
        >>> import torch
        >>> weighted_mean(torch.tensor([1.0, 4.0]), torch.tensor([2.0, 1.0]))
        tensor(2.)
    """
    if weight is None:
        return each.mean()
    weight = weight.to(each)
    return (weight * each.flatten(1).mean(1) if each.ndim > 1 else weight * each).sum() / weight.sum()


def reduce_weighted(each: Tensor, weights: Tensor, reduction: Reduction) -> Tensor:
    """Return the weighted mean or the weighted sum of losses; for "none", return the weighted losses (B,).

    Args:
        each: (B,) losses.
        weights: (B,) weights, which are zero for failed samples. If all are zero, the mean is 0.
        reduction: "mean", "sum" or "none".

    Example:
        >>> reduce_weighted(torch.tensor([1.0, 4.0]), torch.tensor([2.0, 0.0]), "mean")
        tensor(1.)
    """
    weighted = weights.to(each) * each
    if reduction == "none":
        return weighted
    total = weights.sum().to(each)
    return weighted.sum() if reduction == "sum" else weighted.sum() / torch.where(total > 0, total, 1.0)
