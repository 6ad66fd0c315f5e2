"""Cholesky factors of batches of dense matrices. On a GPU, no number is read back to the host."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pear.problem.matrix import matvec, tmatvec

_BLOCK = 96  # a GPU factors larger matrices by products of their halves, which is faster


@dataclass(frozen=True)
class CholeskyFactor:
    """The Cholesky factors LLᵀ of a batch of matrices.

    Attributes:
        matrix: (B, k, k) the factors L of the k × k matrices, or the inverses of L. On a GPU, a product with L⁻¹ takes
            a tenth of the time of a triangular solve, and a CUDA graph can capture it.
        good: (B,) bool, True for a positive definite matrix. For other matrices, factors and solutions have no meaning.
        is_inverse: True if ``matrix`` contains the inverses of L.
    """

    matrix: Tensor
    good: Tensor
    is_inverse: bool

    def solve(self, right: Tensor) -> Tensor:
        """Solve LLᵀx = right for x (B, k), with one right-hand side per sample, (B, k)."""
        if self.is_inverse:
            return tmatvec(self.matrix, matvec(self.matrix, right))
        return torch.cholesky_solve(right.unsqueeze(-1), self.matrix).squeeze(-1)

    def clears_rounding(self, M: Tensor) -> Tensor:
        """Return whether every pivot exceeds its rounding error. Shape (B,), bool.

        The last pivot of a singular matrix is a rounding error of either sign, so that the factorisation of such a
        matrix succeeds on some processors and fails on others.

        Args:
            M: (B, k, k) the factored matrices.
        """
        pivots = self.matrix.diagonal(dim1=1, dim2=2).square()
        pivots = pivots.reciprocal() if self.is_inverse else pivots
        error = M.shape[1] * torch.finfo(M.dtype).eps
        return (pivots > error * M.diagonal(dim1=1, dim2=2)).all(1) & self.good


def factor_cholesky(M: Tensor, invert: bool | None = None) -> CholeskyFactor:
    """Factor positive definite matrices.

    Args:
        M: (B, k, k) symmetric matrices, of which only the lower triangles are read.
        invert: whether to compute the inverses of L; None to compute them only on a GPU.
    """
    if M.is_cuda if invert is None else invert:
        return CholeskyFactor(*_inverse_cholesky_factor(M), is_inverse=True)
    L, info = torch.linalg.cholesky_ex(M)
    return CholeskyFactor(L, info == 0, is_inverse=False)


def _inverse_cholesky_factor(M: Tensor) -> tuple[Tensor, Tensor]:
    """Compute L⁻¹ (B, k, k) for M = LLᵀ, and whether M is positive definite, (B,) bool.

    A large matrix is factored by halves. Let T₁ be the result for the upper left quarter of M, and N = CT₁ᵀ with the
    lower left quarter C. Let T₂ be the result for the lower right quarter minus NNᵀ. Then L⁻¹ = [T₁ 0; −T₂NT₁ T₂].
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
