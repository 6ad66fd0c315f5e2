"""Batches of positive definite systems, factored and solved without a look at any number on the way."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pear.problem.canonical import matvec, tmatvec

_BLOCK = 96  # rows up to which substitution is as fast as products of matrices
_FEW = 256  # matrices up to which an inverse takes less time than the substitutions that it saves


@dataclass(frozen=True)
class Factor:
    """The factors LLᵀ of a batch.

    On a GPU triangular solves with one vector each take as long for one matrix as for some hundred; there the inverse
    of L serves small batches. No way to solve looks at a number, and all on a GPU can be captured up to 512 rows.

    Attributes:
        matrix: (B, k, k) L, or its inverse.
        good: (B,) bool, where the matrix was positive definite; elsewhere a solution is of no meaning.
        is_inverse: which of the two is kept.
    """

    matrix: Tensor
    good: Tensor
    is_inverse: bool

    def solve(self, right: Tensor) -> Tensor:
        """Solutions (B, k) for right-hand sides (B, k)."""
        if self.is_inverse:
            return tmatvec(self.matrix, matvec(self.matrix, right))
        column = right.unsqueeze(-1)
        if not right.is_cuda:
            return torch.cholesky_solve(column, self.matrix).squeeze(-1)
        half = torch.linalg.solve_triangular(self.matrix, column, upper=False)
        return torch.linalg.solve_triangular(self.matrix.mT, half, upper=True).squeeze(-1)


def factor(M: Tensor, invert: bool | None = None) -> Factor:
    """Factor M (B, k, k), of which only the lower triangle is looked at.

    Args:
        M: (B, k, k), symmetric.
        invert: whether to keep the inverse; by default for small batches on a GPU.
    """
    L, info = torch.linalg.cholesky_ex(M)
    invert = M.is_cuda and len(M) <= _FEW if invert is None else invert
    return Factor(triangular_inverse(L) if invert else L, info == 0, invert)


def triangular_inverse(L: Tensor) -> Tensor:
    """The inverse of lower triangular L (B, k, k): halves by products of matrices, small blocks by substitution."""
    B, k, _ = L.shape
    if k <= _BLOCK:
        return torch.linalg.solve_triangular(L, torch.eye(k, dtype=L.dtype, device=L.device).expand_as(L), upper=False)
    if k % 2:  # with a one in the corner both halves are of one size
        larger = L.new_zeros(B, k + 1, k + 1)
        larger[:, :k, :k] = L
        larger[:, k, k] = 1.0
        return triangular_inverse(larger)[:, :k, :k].contiguous()
    half = k // 2
    both = triangular_inverse(torch.cat([L[:, :half, :half], L[:, half:, half:]]))
    upper, lower = both[:B], both[B:]
    inverse = torch.zeros_like(L)
    inverse[:, :half, :half] = upper
    inverse[:, half:, half:] = lower
    inverse[:, half:, :half] = torch.bmm(lower, torch.bmm(L[:, half:, :half], upper)).neg_()
    return inverse
