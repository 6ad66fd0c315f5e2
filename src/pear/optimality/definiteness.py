"""Tests whether a dense curvature is positive definite, positive semidefinite, or singular."""

from __future__ import annotations

import torch
from torch import Tensor

from pear.optimality.rule import FLAT, INDEFINITE, RANK
from pear.problem.quadratic_program import QuadraticProgram

_COARSE = 1e-6  # rounding error of a float32 factorisation per row, with a safety margin


def is_definite(Q: Tensor, sign: float = 1.0, smoothing: float = 0.0) -> Tensor:
    """Whether ``sign·Q + smoothing·I`` is certainly positive definite, for Q (B or 1, n, n). Shape (B or 1,), bool.

    The matrix is shifted by more than the rounding error of float32 and factored in that type, which takes half the
    time of a float64 factorisation. The result may be False for a definite matrix that is close to singular.
    """
    diagonal = sign * Q.diagonal(dim1=1, dim2=2) + smoothing
    top = diagonal.amax(1, keepdim=True)  # no entry of a definite matrix is larger
    coarse = Q.float() if sign > 0 else -Q.float()
    coarse.diagonal(dim1=1, dim2=2).copy_(diagonal - _COARSE * Q.shape[1] * top)
    return torch.linalg.cholesky_ex(coarse.nan_to_num()).info == 0


def is_semidefinite(Q: Tensor, sign: float = 1.0, smoothing: float = 0.0) -> Tensor:
    """Whether ``sign·Q + smoothing·I`` is positive semidefinite up to rounding. Shape (B or 1,), bool.

    Args:
        Q: (B or 1, n, n) symmetric matrices.
        sign: 1 or −1.
        smoothing: λ ≥ 0.
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


def is_not_definite(qp: QuadraticProgram) -> Tensor:
    """Whether the dense or diagonal H of the programs is not positive definite. Shape (B or 1,), bool.

    A pivot of a dense H counts as zero up to rounding of the diagonal entry that it is computed from.
    """
    diagonal = qp.H.diagonal(dim1=1, dim2=2)
    if qp.diagonal:
        return (diagonal <= 0).any(1)
    return torch.linalg.cholesky_ex(qp.H - torch.diag_embed(FLAT * diagonal)).info > 0


def is_only_semidefinite(H: Tensor) -> Tensor:
    """Whether a pivot of a convex H (B or 1, n, n) is zero up to rounding, relative to the diagonal. (B or 1,)."""
    diagonal = H.diagonal(dim1=1, dim2=2)
    lowered = H - torch.diag_embed(torch.full_like(diagonal, RANK) * diagonal.amax(1, keepdim=True))
    return torch.linalg.cholesky_ex(lowered.nan_to_num()).info > 0
