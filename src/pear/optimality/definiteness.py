"""Whether a dense curvature is positive definite, positive semidefinite, or singular."""

from __future__ import annotations

import torch
from torch import Tensor

from pear.optimality.rule import INDEFINITE
from pear.problem.quadratic_program import QuadraticProgram

_COARSE = 1e-6  # rounding of a float32 factorisation for each row, with a margin


def is_definite(Q: Tensor, sign: float = 1.0, smoothing: float = 0.0) -> Tensor:
    """(B or 1,) bool: ``sign·Q + smoothing·I`` is certainly positive definite.

    The matrix is shifted by more than the rounding error of float32 and factored in that type, which takes half the
    time of a float64 factorisation. A matrix that is close to singular may come out as not definite.
    """
    diagonal = sign * Q.diagonal(dim1=1, dim2=2) + smoothing
    top = diagonal.amax(1, keepdim=True)  # which no entry of a definite matrix exceeds
    coarse = Q.float() if sign > 0 else -Q.float()
    coarse.diagonal(dim1=1, dim2=2).copy_(diagonal - _COARSE * Q.shape[1] * top)
    return torch.linalg.cholesky_ex(coarse.nan_to_num()).info == 0


def is_convex(Q: Tensor, sign: float = 1.0, smoothing: float = 0.0) -> Tensor:
    """(B or 1,) bool: ``sign·Q + smoothing·I`` is positive semidefinite up to rounding."""
    convex = is_definite(Q, sign, smoothing)
    rest = (~convex).nonzero()[:, 0]
    if len(rest):
        lifted = sign * Q[rest]
        top = lifted.abs().amax((1, 2))
        lift = smoothing + INDEFINITE * torch.where(top > 0, top, torch.ones_like(top))
        lifted.diagonal(dim1=1, dim2=2).add_(lift[:, None])
        convex[rest] = torch.linalg.cholesky_ex(lifted.nan_to_num()).info == 0
    return convex


def is_singular(qp: QuadraticProgram) -> Tensor:
    """(B or 1,) bool: the dense or diagonal H of the programs is not positive definite."""
    if qp.diagonal:
        return (qp.H.diagonal(dim1=1, dim2=2) <= 0).any(1)
    return torch.linalg.cholesky_ex(qp.H).info > 0
