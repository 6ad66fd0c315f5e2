"""Tests whether a dense curvature is positive definite, positive semidefinite, or singular."""

from __future__ import annotations

import torch
from torch import Tensor

from pear.optimality.rule import FLAT, INDEFINITE, RANK
from pear.problem.quadratic_program import QuadraticProgram

_COARSE = 1e-6  # rounding error of a float32 factorisation per row, with a safety margin


def is_definite(Q: Tensor, sign: float = 1.0, smoothing: float = 0.0) -> Tensor:
    """Return whether ``sign·Q + smoothing·I`` is certainly positive definite.

    A result of True is certain. False may also mean that the matrix is definite, but close to singular. The matrix is
    factored in float32, which takes half the time of float64, after a multiple of the identity that exceeds the
    rounding error of float32 is subtracted.

    Args:
        Q: (B or 1, n, n) symmetric matrices.
        sign: 1 or −1.
        smoothing: a number ≥ 0.

    Returns:
        (B or 1,) bool.
    """
    diagonal = sign * Q.diagonal(dim1=1, dim2=2) + smoothing
    top = diagonal.amax(1, keepdim=True)  # no entry of a definite matrix is larger
    coarse = Q.float() if sign > 0 else -Q.float()
    coarse.diagonal(dim1=1, dim2=2).copy_(diagonal - _COARSE * Q.shape[1] * top)
    return torch.linalg.cholesky_ex(coarse.nan_to_num()).info == 0


def is_semidefinite(Q: Tensor, sign: float = 1.0, smoothing: float = 0.0) -> Tensor:
    """Return whether ``sign·Q + smoothing·I`` is positive semidefinite up to rounding.

    An eigenvalue may be as low as minus ``rule.INDEFINITE`` times the largest absolute entry of Q.

    Args:
        Q: (B or 1, n, n) symmetric matrices.
        sign: 1 or −1.
        smoothing: a number ≥ 0.

    Returns:
        (B or 1,) bool.
    """
    convex = is_definite(Q, sign, smoothing)
    rest = (~convex).nonzero()[:, 0]
    if len(rest):
        lifted = sign * Q[rest]
        top = lifted.abs().amax((1, 2))
        lift = smoothing + INDEFINITE * torch.where(top > 0, top, torch.ones_like(top))
        lifted.diagonal(dim1=1, dim2=2).add_(lift[:, None])
        convex[rest] = torch.linalg.cholesky_ex(lifted.nan_to_num()).info == 0
    return convex


def has_flat_curvature(qp: QuadraticProgram) -> Tensor:
    """Return whether the curvature H of the programs has a pivot that is zero or negative. Shape (B or 1,), bool.

    H must be dense or diagonal. A pivot of a dense H counts as zero if it is smaller than ``rule.FLAT`` times the
    diagonal entry of H that it is computed from.
    """
    diagonal = qp.H.diagonal(dim1=1, dim2=2)
    if qp.diagonal:
        return (diagonal <= 0).any(1)
    return torch.linalg.cholesky_ex(qp.H - torch.diag_embed(FLAT * diagonal)).info > 0


def is_singular(H: Tensor) -> Tensor:
    """Return whether a positive semidefinite H (B or 1, n, n) is singular up to rounding. Shape (B or 1,), bool.

    A pivot counts as zero if it is smaller than ``rule.RANK`` times the largest diagonal entry of H.
    """
    diagonal = H.diagonal(dim1=1, dim2=2)
    lowered = H - torch.diag_embed(torch.full_like(diagonal, RANK) * diagonal.amax(1, keepdim=True))
    return torch.linalg.cholesky_ex(lowered.nan_to_num()).info > 0
