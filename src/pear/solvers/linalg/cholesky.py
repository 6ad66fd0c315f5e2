"""Batches of positive definite systems, factored and solved without a look at any number on the way."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from pear.problem.canonical import matvec, tmatvec

Solve = Callable[[Tensor], Tensor]
"""Right-hand sides (B, k) in, solutions (B, k) out."""


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
    eye = torch.eye(L.shape[1], dtype=L.dtype, device=L.device)
    T = torch.linalg.solve_triangular(L, eye.expand_as(L), upper=False)
    return lambda right: tmatvec(T, matvec(T, right))
