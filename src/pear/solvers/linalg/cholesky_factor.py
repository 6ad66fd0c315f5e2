"""Factors of dense matrices: batched Cholesky factors, which on a GPU wait for nothing, and the rank by QR."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pear.problem.matrix import matvec, tmatvec

_BLOCK = 96  # rows up to which a GPU factors at once; larger matrices go by products of their halves, which are faster


@dataclass(frozen=True)
class CholeskyFactor:
    """The Cholesky factors LLᵀ of a batch.

    Attributes:
        matrix: (B, k, k) L, or its inverse. On a GPU, a product with a triangle takes a tenth of the time of a solve,
            and can be captured in a graph.
        good: (B,) bool, True where the matrix was positive definite; elsewhere solutions have no meaning.
        is_inverse: True where ``matrix`` is L⁻¹.
    """

    matrix: Tensor
    good: Tensor
    is_inverse: bool

    def solve(self, right: Tensor) -> Tensor:
        """Solve LLᵀx = right for one right-hand side per sample; ``right`` and the result have shape (B, k)."""
        if self.is_inverse:
            return tmatvec(self.matrix, matvec(self.matrix, right))
        return torch.cholesky_solve(right.unsqueeze(-1), self.matrix).squeeze(-1)

    def clears_rounding(self, M: Tensor) -> Tensor:
        """Whether every pivot of M, which was factored, is larger than its rounding error. Shape (B,), bool.

        The last pivot of a singular matrix is a rounding error of either sign, so that its factorisation succeeds on
        some processors and fails on others.
        """
        pivots = self.matrix.diagonal(dim1=1, dim2=2).square()
        pivots = pivots.reciprocal() if self.is_inverse else pivots
        error = M.shape[1] * torch.finfo(M.dtype).eps
        return (pivots > error * M.diagonal(dim1=1, dim2=2)).all(1) & self.good


def factor_cholesky(M: Tensor, invert: bool | None = None) -> CholeskyFactor:
    """Factor positive definite matrices; only their lower triangles are read.

    Args:
        M: (B, k, k), symmetric.
        invert: whether to keep the inverse of L; by default only on a GPU.
    """
    if M.is_cuda if invert is None else invert:
        return CholeskyFactor(*_inverse_cholesky_factor(M), is_inverse=True)
    L, info = torch.linalg.cholesky_ex(M)
    return CholeskyFactor(L, info == 0, is_inverse=False)


def _inverse_cholesky_factor(M: Tensor) -> tuple[Tensor, Tensor]:
    """Return L⁻¹ for M = LLᵀ (B, k, k), and (B,) bool, True where M is positive definite.

    With halves M = [M₁ ·; C M₂] it is [T₁ 0; −T₂ N T₁ T₂], where N = C T₁ᵀ, T₁ belongs to M₁ and T₂ to M₂ − NNᵀ.
    """
    k = M.shape[1]
    if k <= _BLOCK:
        L, info = torch.linalg.cholesky_ex(M)
        eye = torch.eye(k, dtype=M.dtype, device=M.device).expand_as(M)
        return torch.linalg.solve_triangular(L, eye, upper=False), info == 0
    half = (k + 1) // 2
    first, good = _inverse_cholesky_factor(M[:, :half, :half])
    below = torch.bmm(M[:, half:, :half], first.mT)
    last, also = _inverse_cholesky_factor(torch.baddbmm(M[:, half:, half:], below, below.mT, alpha=-1))
    inverse = torch.zeros_like(M, memory_format=torch.contiguous_format)
    inverse[:, :half, :half] = first
    inverse[:, half:, half:] = last
    inverse[:, half:, :half] = torch.bmm(last, torch.bmm(below, first)).neg_()
    return inverse, good & also
