"""Batches of positive definite systems, factored and solved without a look at any number on the way."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from pear.problem.canonical import matvec, tmatvec

Solve = Callable[[Tensor], Tensor]
"""Right-hand sides (B, k) in, solutions (B, k) out."""

_BLOCK = 96  # rows up to which substitution is as fast as products of matrices


def factor(M: Tensor) -> tuple[Solve, Tensor]:
    """Factor M (B, k, k); gives the function that solves with it, and (B,) bool, where M is positive definite.

    Where it is not, what the function gives is of no meaning.
    """
    L, info = torch.linalg.cholesky_ex(M)
    return by_inverse(L) if M.is_cuda else by_substitution(L), info == 0


def by_substitution(L: Tensor) -> Solve:
    """Solve with LLᵀ (B, k, k)."""
    return lambda right: torch.cholesky_solve(right.unsqueeze(-1), L).squeeze(-1)


def by_inverse(L: Tensor) -> Solve:
    """The same by the inverse of L.

    On a GPU a batch of triangular solves with one vector each is slow, and in some libraries cannot be captured.
    """
    T = triangular_inverse(L)
    return lambda right: tmatvec(T, matvec(T, right))


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
