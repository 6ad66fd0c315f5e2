"""Surrogate gradients: derivatives that some methods use instead of the derivative of a decision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pear.losses.second_derivatives import refuse_second_derivatives, save_inputs

PullBack = Callable[[Tensor], Tensor]
"""Maps the gradient with respect to decisions (B, n) to that with respect to costs (B, n)."""


def with_surrogate_gradient(cost: Tensor, z: Tensor, pull_back: PullBack) -> Tensor:
    """Return decisions whose derivative with respect to costs is given by a function.

    Args:
        cost: (B, n) the costs that get the gradient.
        z: (B, n) the decisions.
        pull_back: maps the gradient with respect to the decisions to that with respect to the costs; the backward pass
            calls it.

    Returns:
        (B, n) the decisions, in the dtype of the costs.

    Example:
        >>> import torch
        >>> cost = torch.tensor([[1.0, 2.0]], requires_grad=True)
        >>> with_surrogate_gradient(cost, torch.tensor([[1.0, 0.0]]), lambda up: -up).sum().backward()
        >>> cost.grad
        tensor([[-1., -1.]])
    """
    decision: Tensor = _SurrogateDecision.apply(cost, z, pull_back)
    return decision


class _SurrogateDecision(torch.autograd.Function):
    """Decisions as an autograd function of costs, with a given derivative."""

    @staticmethod
    def forward(ctx: Any, cost: Tensor, z: Tensor, pull_back: PullBack) -> Tensor:
        save_inputs(ctx, cost)
        ctx.pull_back = pull_back
        return z.to(cost, copy=True)

    @staticmethod
    @refuse_second_derivatives
    def backward(ctx: Any, up: Tensor) -> tuple[Tensor, None, None]:
        return ctx.pull_back(up).to(up), None, None


def estimate_gradient_by_score(values: Tensor, noise: Tensor) -> Tensor:
    """Estimate the derivative of E f(x + ε) with respect to x as the mean of ``(f_m − b_m) ε_m`` over perturbations m.

    f_m is f(x + ε_m), and ε is standard normal. The baseline b_m is the mean of f over the other perturbations. It does
    not change the expectation of the estimate, and removes most of its variance. With a single perturbation it is zero.

    Args:
        values: (m, B) f at m perturbations of each sample.
        noise: (m, B, n) the perturbations ε.

    Returns:
        (B, n) the estimate.

    Example:
        >>> import torch
        >>> estimate_gradient_by_score(torch.tensor([[1.0], [3.0]]), torch.tensor([[[-1.0]], [[1.0]]]))
        tensor([[2.]])
    """
    count = len(values)
    centred = values if count == 1 else (values - values.mean(0)) * (count / (count - 1))
    return (centred[:, :, None] * noise).mean(0)
