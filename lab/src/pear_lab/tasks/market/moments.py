"""The mean μ and the covariance Σ of daily returns, which determine the portfolio."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from pear.errors import ProblemError
from pear.optimality.rule import FLAT

LEAST_EIGENVALUE = 1e-4
"""The default lower limit of the eigenvalues of a covariance."""


def moments(days: Tensor, ahead: int, floor: float = LEAST_EIGENVALUE) -> tuple[Tensor, Tensor]:
    """Return the mean μ of the last ``ahead`` days and the shifted covariance Σ of all days. Both are differentiable.

    ``Σ = S + max(0, floor − λ_min(S)) I``, where S is the sample covariance and λ_min its least eigenvalue. With at
    least as many assets as days, S is always singular, so that λ_min and its derivative are zero.

    Args:
        days: (B, n, T) returns of T days, first the known and then the predicted ones.
        ahead: the number of predicted days.
        floor: the lower limit of the eigenvalues of Σ; with 0 nothing is shifted, and a singular S is an error.

    Returns:
        μ (B, n) and Σ (B, n, n).

    Raises:
        ProblemError: S is singular and ``floor`` is 0, or an argument is invalid.

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
    """Return X (B, n, T) with S = XXᵀ, where S is the sample covariance of days (B, n, T)."""
    return (days - days.mean(2, keepdim=True)) / math.sqrt(days.shape[2] - 1)


class _SecondMoments(torch.autograd.Function):
    """The function ``X → XXᵀ + shift·I``, whose backward pass needs one matrix product."""

    @staticmethod
    def forward(ctx: Any, X: Tensor, shift: float) -> Tensor:
        """Return ``XXᵀ + shift·I`` (B, n, n) for X (B, n, T)."""
        ctx.save_for_backward(X)
        product = X @ X.transpose(1, 2)
        if shift:
            product.diagonal(dim1=1, dim2=2).add_(shift)
        return product

    @staticmethod
    def backward(ctx: Any, up: Tensor) -> tuple[Tensor, None]:
        """Return the gradient with respect to X (B, n, T), and None for the shift.

        ``up`` (B, n, n) is the incoming gradient.
        """
        (X,) = ctx.saved_tensors
        return (up + up.transpose(1, 2)) @ X, None


def _refuse_singular_moments(covariance: Tensor, least: Tensor, length: int) -> None:
    """Raise ``ProblemError`` if a least eigenvalue (B,) of covariances (B, n, n) is zero up to rounding."""
    size = covariance.diagonal(dim1=1, dim2=2).sum(1)
    bad = (least <= FLAT * size).nonzero()[:, 0].tolist()
    if bad:
        raise ProblemError(
            f"the covariance of sample {bad[0]} is singular ({len(bad)} of {len(least)} are): {covariance.shape[1]} "
            f"names over {length} days, or names that move as one; give a positive floor such as "
            f"{LEAST_EIGENVALUE:g}, more days or fewer names"
        )
