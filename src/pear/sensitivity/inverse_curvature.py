"""Products H⁻¹e with the curvature H of programs, dense or sparse."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pear.optimality.dense_inverse import apply_dense_inverse
from pear.optimality.duals_and_active_sets import ActiveSet
from pear.optimality.natural_sizes import positive_size
from pear.problem.matrix import SparseMatrix, matrix_row_squares
from pear.problem.quadratic_program import QuadraticProgram
from pear.sensitivity.convexity import convexity_pattern, lacks_strict_convexity
from pear.sensitivity.kept_by_sets import keep_by_sets

if TYPE_CHECKING:
    from pear.solvers.linalg.saddle import Saddle


def apply_inverse_curvature(qp: QuadraticProgram, e: Tensor) -> Tensor:
    """Compute H⁻¹e. Shape (B, n).

    Args:
        qp: programs with a positive definite H.
        e: (B, n) vectors.
    """
    if qp.diagonal or (isinstance(qp.H, SparseMatrix) and qp.H.is_diagonal):
        return e / qp.H.diagonal(dim1=1, dim2=2)
    if qp.is_sparse:
        factor: Saddle = qp.prepare_once(
            "inverse", lambda qp: convexity_pattern(qp.H.csr).factor(np.zeros(qp.n), np.zeros(0))
        )
        rows = [factor.solve(row, np.zeros(0))[0] for row in e.numpy()]
        return torch.from_numpy(np.stack(rows)) if rows else e
    return torch.cholesky_solve(e.unsqueeze(-1), torch.linalg.cholesky(qp.H)).squeeze(-1)


def apply_inverse_curvature_on_rows(qp: QuadraticProgram, active: ActiveSet, e: Tensor) -> Tensor:
    """Compute H⁻¹e, or ``(H + ρJᵀJ)⁻¹ e`` if H is singular, where J are the active constraints. Shape (B, n).

    Rows of J have length one, bounds are rows of the identity, and ρ is the largest diagonal entry of H. The matrix
    H + ρJᵀJ is positive definite if the decision is unique.

    Args:
        qp: the programs.
        active: the active inequalities and bounds.
        e: (B, n) vectors.
    """
    if qp.is_sparse or qp.diagonal:
        if not bool(lacks_strict_convexity(qp).expand(len(e)).any()):
            return apply_inverse_curvature(qp, e)
        if qp.is_sparse:
            return _apply_sparse_inverse_curvature(qp, active, e)
    return apply_dense_inverse(qp.H, qp.A, qp.G, active, e)


def _apply_sparse_inverse_curvature(qp: QuadraticProgram, active: ActiveSet, e: Tensor) -> Tensor:
    """Compute ``x = (H + ρJᵀJ)⁻¹ e`` (B, n) for sparse programs, by the system ``[H Jᵀ; J −I/ρ][x; y] = [e; 0]``.

    H, J and ρ are those of ``apply_inverse_curvature_on_rows``.
    """
    from scipy import sparse
    from scipy.sparse.linalg import SuperLU, splu

    H, lengths = qp.H.csr, [positive_size(matrix_row_squares(rows).sqrt())[0].numpy() for rows in (qp.A, qp.G)]
    A, G = (sparse.diags_array(1 / length) @ rows.csr for rows, length in zip((qp.A, qp.G), lengths, strict=True))
    size = float(H.diagonal().max(initial=0.0)) or 1.0

    def factor(rows: NDArray[np.bool_], fixed: NDArray[np.bool_]) -> SuperLU:
        J = sparse.vstack([A, G[rows]])
        shift, none = sparse.diags_array(size * fixed.astype(float)), sparse.diags_array(np.full(J.shape[0], -1 / size))
        return splu(sparse.csc_array(sparse.block_array([[H + shift, J.T], [J, none]])))

    solved = []
    for rows, fixed, one in zip(active.rows.numpy(), active.fixed.numpy(), e.numpy(), strict=True):
        system = keep_by_sets(qp, "rows beside H", (rows, fixed), partial(factor, rows, fixed), lambda lu: 12 * lu.nnz)
        padding = np.zeros(system.shape[0] - qp.n)
        solved.append(system.solve(np.concatenate([one, padding]))[: qp.n])
    return torch.from_numpy(np.stack(solved))
