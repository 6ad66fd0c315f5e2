"""Derivatives that methods give to decisions: ``with_gradient``, and the score function estimate of a derivative."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

PullBack = Callable[[Tensor], Tensor]
"""Maps the gradient with respect to decisions (B, n) to that with respect to costs (B, n)."""


def with_gradient(cost: Tensor, z: Tensor, pull_back: PullBack) -> Tensor:
    """Return decisions that autograd differentiates with respect to costs by a method's own rule.

    Args:
        cost: (B, n) the costs that get the gradient.
        z: (B, n) the decisions.
        pull_back: maps the gradient with respect to the decisions to that with respect to the costs; ``backward`` calls
            it.

    Returns:
        (B, n) the decisions, in the dtype of the costs.

    Example:
        >>> import torch
        >>> cost = torch.tensor([[1.0, 2.0]], requires_grad=True)
        >>> with_gradient(cost, torch.tensor([[1.0, 0.0]]), lambda up: -up).sum().backward()
        >>> cost.grad
        tensor([[-1., -1.]])
    """
    decision: Tensor = _Decision.apply(cost, z, pull_back)
    return decision


class _Decision(torch.autograd.Function):
    """Decisions as an autograd function of costs."""

    @staticmethod
    def forward(ctx: Any, cost: Tensor, z: Tensor, pull_back: PullBack) -> Tensor:
        ctx.pull_back = pull_back
        return z.to(cost, copy=True)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, up: Tensor) -> tuple[Tensor, None, None]:
        return ctx.pull_back(up).to(up), None, None


def estimate_by_score(values: Tensor, noise: Tensor) -> Tensor:
    """Estimate the derivative of E f(x + ε), where ε is standard normal, as the mean of ``(f_m − b_m) ε_m``.

    The baseline b_m is the mean of the other values. It does not change the expectation, and takes most of the variance
    away; a single value has none.

    Args:
        values: (m, B) f at m perturbations of each sample.
        noise: (m, B, n) the perturbations ε.

    Returns:
        (B, n) the estimate.

    Example:
        >>> import torch
        >>> estimate_by_score(torch.tensor([[1.0], [3.0]]), torch.tensor([[[-1.0]], [[1.0]]]))
        tensor([[2.]])
    """
    count = len(values)
    centred = values if count == 1 else (values - values.mean(0)) * (count / (count - 1))
    return (centred[:, :, None] * noise).mean(0)
