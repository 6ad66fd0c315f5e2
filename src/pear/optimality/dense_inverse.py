"""The product of the inverse of a dense curvature H and vectors, also for a singular H with tight constraints."""

from __future__ import annotations

import torch
from torch import Tensor

from pear.optimality.definiteness import is_singular
from pear.optimality.duals_and_active_sets import ActiveSet
from pear.optimality.natural_sizes import positive_size
from pear.optimality.rule import RANK
from pear.problem.matrix import matrix_row_squares


def apply_dense_inverse(H: Tensor, A: Tensor, G: Tensor, active: ActiveSet, e: Tensor) -> Tensor:
    """Compute H⁻¹e, or ``(H + ρJᵀJ)⁻¹ e`` if H is singular, where the rows of J are the tight constraints.

    J has the rows of A and the tight rows of G, scaled to length one, and for each tight bound a row of the identity. ρ
    is the largest diagonal entry of H. The matrix H + ρJᵀJ is definite if the decision is unique. If it is singular,
    the result is the least-squares solution of least norm.

    Args:
        H: (B or 1, n, n) convex curvature.
        A: (B or 1, p, n) equality rows.
        G: (B or 1, m, n) inequality rows.
        active: the tight inequalities and bounds of B samples.
        e: (B, n) vectors.

    Returns:
        (B, n).
    """
    flat = is_singular(H).expand(len(e))
    solved, rest, singular = torch.empty_like(e), (~flat).nonzero()[:, 0], flat.nonzero()[:, 0]
    if len(rest):
        solved[rest] = _solve_dense(torch.linalg.cholesky(_dense_samples(H, rest)), e[rest])
    if len(singular):
        some = [_dense_samples(matrix, singular) for matrix in (H, A, G)]
        solved[singular] = _invert_dense_on_rows(some[0], some[1], some[2], active[singular], e[singular])
    return solved


def _invert_dense_on_rows(H: Tensor, A: Tensor, G: Tensor, active: ActiveSet, e: Tensor) -> Tensor:
    """Solve ``(H + ρJᵀJ) x = e`` for x (B, n), with ρ and J as in ``apply_dense_inverse``.

    If the matrix is singular, x has the least norm.
    """
    size = positive_size(H.diagonal(dim1=1, dim2=2).amax(1))[:, None, None]
    A, G = (rows / positive_size(matrix_row_squares(rows).sqrt())[..., None] for rows in (A, G))
    gram = A.mT @ A + (G * active.rows[..., None]).mT @ G + torch.diag_embed(active.fixed.double())
    K = H + size * gram
    factor, info = torch.linalg.cholesky_ex(K)
    solved = _solve_dense(factor, e)
    rest = (info > 0).nonzero()[:, 0]
    if len(rest):
        solved[rest] = (torch.linalg.pinv(K[rest], rtol=RANK, hermitian=True) @ e[rest].unsqueeze(-1)).squeeze(-1)
    return solved


def _solve_dense(factor: Tensor, e: Tensor) -> Tensor:
    """Solve LLᵀx = e for x (B, n), with the Cholesky factors L (B or 1, n, n)."""
    return torch.cholesky_solve(e.unsqueeze(-1), factor).squeeze(-1)


def _dense_samples(matrix: Tensor, index: Tensor) -> Tensor:
    """Select the matrices of the samples at ``index`` (k,). A matrix that all samples share is returned unchanged."""
    return matrix if len(matrix) == 1 else matrix[index]
