"""``refuse_second_derivatives``: a decorator for autograd functions that have no second derivative.

``save_inputs`` saves what the decorator reads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from pear.errors import ProblemError
from pear.losses.autograd_inputs import input_requires_gradient

Backward = Callable[..., "tuple[Tensor | None, ...]"]


def refuse_second_derivatives(backward: Backward) -> Backward:
    """Decorate the ``backward`` of an autograd function, so that differentiating its result raises an error.

    Torch's ``once_differentiable`` raises an error only if the upstream gradient has a derivative. Otherwise the result
    looks like a constant: a Hessian would be zero, and a penalty of the gradient would lack a part of its derivative.

    The ``forward`` of the function must save its inputs by ``save_inputs``.
    """

    @wraps(backward)
    def call(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        if not torch.is_grad_enabled():  # it is enabled only by create_graph=True
            return backward(ctx, *upstream)
        with torch.no_grad():
            found = backward(ctx, *upstream)
        sources = [one for one in (*ctx.saved_tensors, *upstream) if input_requires_gradient(one)]
        return tuple(None if one is None else _FirstDerivative.apply(one, *sources) for one in found)

    return call


def save_inputs(ctx: Any, *inputs: Any) -> None:
    """Save the inputs that require a gradient, for ``refuse_second_derivatives``.

    Torch refuses to save a tensor made in ``torch.inference_mode``. Such tensors never require a gradient.
    """
    ctx.save_for_backward(*filter(input_requires_gradient, inputs))


class _FirstDerivative(torch.autograd.Function):
    """A gradient, unchanged, as a function of the tensors that it depends on. Its backward pass raises an error."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, *sources: Tensor) -> Tensor:
        return gradient.clone()

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        raise ProblemError(
            "the gradient of a decision or of its regret has no derivative here: losses and layers are differentiated "
            "once. Take the gradient without create_graph=True; for a second derivative, take differences of gradients"
        )
