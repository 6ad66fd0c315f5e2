"""The product H⁻¹e with a dense curvature, also where H is singular and the tight constraints make up for that."""

from __future__ import annotations

import torch
from torch import Tensor

from pear.optimality.definiteness import is_only_semidefinite
from pear.optimality.duals_and_active_sets import ActiveSet
from pear.optimality.natural_sizes import positive_size
from pear.optimality.rule import RANK
from pear.problem.matrix import matrix_row_squares


def apply_dense_inverse(H: Tensor, A: Tensor, G: Tensor, active: ActiveSet, e: Tensor) -> Tensor:
    """Compute H⁻¹ e, or ``(H + ρJᵀJ)⁻¹ e`` where H is singular, with the tight constraints J. Shape (B, n).

    The rows are scaled to length one, bounds are rows of the identity, and ρ is the largest diagonal entry of H. The
    matrix is definite where the decision is unique; where it is singular, the result has the least norm.

    Args:
        H: (B or 1, n, n) convex curvature.
        A: (B or 1, p, n) equality rows.
        G: (B or 1, m, n) inequality rows.
        active: the tight inequalities and bounds of B samples.
        e: (B, n) vectors.
    """
    flat = is_only_semidefinite(H).expand(len(e))
    solved, rest, singular = torch.empty_like(e), (~flat).nonzero()[:, 0], flat.nonzero()[:, 0]
    if len(rest):
        solved[rest] = _solve(torch.linalg.cholesky(_rows_of(H, rest)), e[rest])
    if len(singular):
        some = [_rows_of(matrix, singular) for matrix in (H, A, G)]
        solved[singular] = _solve_on_rows(some[0], some[1], some[2], active[singular], e[singular])
    return solved


def _solve_on_rows(H: Tensor, A: Tensor, G: Tensor, active: ActiveSet, e: Tensor) -> Tensor:
    """Solve ``(H + ρJᵀJ) x = e``, (B, n); with the least norm where the matrix is singular."""
    size = positive_size(H.diagonal(dim1=1, dim2=2).amax(1))[:, None, None]
    A, G = (rows / positive_size(matrix_row_squares(rows).sqrt())[..., None] for rows in (A, G))
    gram = A.mT @ A + (G * active.rows[..., None]).mT @ G + torch.diag_embed(active.fixed.double())
    K = H + size * gram
    factor, info = torch.linalg.cholesky_ex(K)
    solved = _solve(factor, e)
    rest = (info > 0).nonzero()[:, 0]
    if len(rest):
        solved[rest] = (torch.linalg.pinv(K[rest], rtol=RANK, hermitian=True) @ e[rest].unsqueeze(-1)).squeeze(-1)
    return solved


def _solve(factor: Tensor, e: Tensor) -> Tensor:
    return torch.cholesky_solve(e.unsqueeze(-1), factor).squeeze(-1)


def _rows_of(matrix: Tensor, index: Tensor) -> Tensor:
    """Return the matrices of some samples; one that all samples share stays as it is."""
    return matrix if len(matrix) == 1 else matrix[index]
