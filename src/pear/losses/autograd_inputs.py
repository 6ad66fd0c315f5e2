"""Inputs of autograd functions: whether they require a gradient, their detached values, and the shape of gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def input_requires_gradient(value: Any) -> bool:
    """Whether an input is a tensor that requires a gradient."""
    return isinstance(value, Tensor) and value.requires_grad


def detach_input(value: Any) -> Any:
    """Return a tensor detached from the graph of autograd, and any other value unchanged."""
    return value.detach() if isinstance(value, Tensor) else value


def to_dtype(value: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a tensor in a dtype: the tensor itself if it has this dtype, which ``Tensor.to`` finds out more slowly."""
    return value if value.dtype == dtype else value.to(dtype)


def copy_in_dtype(value: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a copy of a tensor in a dtype."""
    return value.clone() if value.dtype == dtype else value.to(dtype)


def fit_gradient_to_input(gradient: Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    """Convert a gradient to the dtype and shape of its input.

    If all samples share the input, the gradient is summed over the samples. If the input is a scalar, it is summed over
    all entries.

    Args:
        gradient: (B, …) one gradient per sample.
        dtype: the dtype of the input.
        shape: the shape of the input: (B, …), or (…) if all samples share it, or () for a scalar.
    """
    if len(shape) == gradient.dim() - 1:
        gradient = gradient.sum(0)
    elif not shape:
        gradient = gradient.sum()
    return to_dtype(gradient, dtype)
