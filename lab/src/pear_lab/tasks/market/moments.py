"""Expected returns μ and covariance Σ of days of returns, which decide the portfolio."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from pear.errors import ProblemError
from pear.optimality.rule import FLAT

LEAST_EIGENVALUE = 1e-4
"""The least eigenvalue that a covariance may have."""


def moments(days: Tensor, ahead: int, floor: float = LEAST_EIGENVALUE) -> tuple[Tensor, Tensor]:
    """Return μ, the mean of the last ``ahead`` days, and Σ, the shifted covariance of all days; both differentiable.

    ``Σ = S + max(0, floor − λ_min(S)) I`` with the sample covariance S. With as many names as days, or more, S is
    singular whatever the returns are: λ_min is zero, and so is its derivative.

    Args:
        days: (B, n, T) returns, those known before those forecast.
        ahead: how many of the days are forecast.
        floor: least eigenvalue of Σ; with 0 nothing is shifted, and a singular S is an error.

    Returns:
        (B, n) and (B, n, n).

    Raises:
        ProblemError: Σ is singular, and floor is 0.

    Example:
        >>> mu, sigma = moments(torch.tensor([[[0.0, 2.0], [0.0, 0.0]]]), ahead=1, floor=0.5)
        >>> mu, sigma
        (tensor([[2., 0.]]), tensor([[[2.5000, 0.0000],
                 [0.0000, 0.5000]]]))
    """
    if days.dim() != 3 or not 1 <= ahead < days.shape[2]:
        raise ProblemError(f"days must be (B, n, T) with T above ahead = {ahead}; got shape {tuple(days.shape)}")
    if not floor >= 0:
        raise ProblemError(f"floor must be a number of at least 0; got {floor!r}")
    n, length = days.shape[1:]
    centred = moments_factor(days)
    mean = days[:, :, -ahead:].mean(2)
    if n >= length and floor > 0:
        return mean, _SecondMoments.apply(centred, floor)
    covariance = _SecondMoments.apply(centred, 0.0)
    least = covariance.new_zeros(len(days)) if n >= length else torch.linalg.eigvalsh(covariance)[:, 0]
    if floor == 0:
        _refuse_singular_moments(covariance.detach(), least.detach(), length)
    shift = (floor - least).clamp(min=0)
    unit = torch.eye(n, dtype=days.dtype, device=days.device)
    return mean, covariance + shift[:, None, None] * unit


def moments_factor(days: Tensor) -> Tensor:
    """Return X with S = XXᵀ for the sample covariance S of days (B, n, T)."""
    return (days - days.mean(2, keepdim=True)) / math.sqrt(days.shape[2] - 1)


class _SecondMoments(torch.autograd.Function):
    """``XXᵀ + shift·I``, with a backward pass of one matrix product, since both factors are the same."""

    @staticmethod
    def forward(ctx: Any, X: Tensor, shift: float) -> Tensor:
        """Return ``XXᵀ + shift·I``."""
        ctx.save_for_backward(X)
        product = X @ X.transpose(1, 2)
        if shift:
            product.diagonal(dim1=1, dim2=2).add_(shift)
        return product

    @staticmethod
    def backward(ctx: Any, up: Tensor) -> tuple[Tensor, None]:
        """Return the gradient with respect to X, and None for the shift."""
        (X,) = ctx.saved_tensors
        return (up + up.transpose(1, 2)) @ X, None


def _refuse_singular_moments(covariance: Tensor, least: Tensor, length: int) -> None:
    """Raise ``ProblemError`` at the first covariance (B, n, n) whose least eigenvalue is zero up to rounding."""
    size = covariance.diagonal(dim1=1, dim2=2).sum(1)
    bad = (least <= FLAT * size).nonzero()[:, 0].tolist()
    if bad:
        raise ProblemError(
            f"the covariance of sample {bad[0]} is singular ({len(bad)} of {len(least)} are): {covariance.shape[1]} "
            f"names over {length} days, or names that move as one; give a positive floor such as "
            f"{LEAST_EIGENVALUE:g}, more days or fewer names"
        )
