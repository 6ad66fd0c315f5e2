"""Tests of the curvature H of programs, dense or sparse: whether it is convex, definite or singular. Products H⁻¹e."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pear.optimality.definiteness import is_convex, is_definite, is_singular
from pear.optimality.duals_and_active_sets import ActiveSet
from pear.optimality.inverse_curvature import apply_dense_inverse
from pear.optimality.natural_sizes import positive
from pear.optimality.rule import INDEFINITE
from pear.problem.matrix import matrix_row_squares
from pear.problem.quadratic_program import QuadraticProgram
from pear.sensitivity.kept_by_sets import keep_by_sets

if TYPE_CHECKING:
    from scipy import sparse

    from pear.solvers.linalg.saddle import Saddle, SaddlePattern

_LANCZOS = 1e-6  # an estimate of the least eigenvalue below this, relative to H, may be zero


def is_convex_program(qp: QuadraticProgram) -> Tensor:
    """Whether H is positive semidefinite up to rounding. Shape (B or 1,), bool."""
    return torch.tensor([curvature_sign(qp) >= 0]) if qp.is_sparse else is_convex(qp.H)


def is_singular_program(qp: QuadraticProgram) -> Tensor:
    """Whether H is not positive definite. Shape (B or 1,), bool."""
    return torch.tensor([curvature_sign(qp) <= 0]) if qp.is_sparse and not qp.diagonal else is_singular(qp)


def is_nearly_singular(qp: QuadraticProgram) -> Tensor:
    """Whether H is singular, or so close to singular that a factorisation only just succeeds. Shape (B or 1,), bool."""
    return is_singular_program(qp) if qp.diagonal or qp.is_sparse else ~is_definite(qp.H)


def apply_inverse_curvature(qp: QuadraticProgram, e: Tensor) -> Tensor:
    """Compute H⁻¹ e. Shape (B, n).

    Args:
        qp: the programs, with a positive definite H. Where H is diagonal, e is divided by the diagonal.
        e: (B, n) vectors.
    """
    if qp.diagonal:
        return e / qp.H.diagonal(dim1=1, dim2=2)
    if qp.is_sparse:
        factor: Saddle = qp.prepare_once(
            "inverse", lambda qp: _curvature_pattern(qp.H.csr).factor(np.zeros(qp.n), np.zeros(0))
        )
        rows = [factor.solve(row, np.zeros(0))[0] for row in e.numpy()]
        return torch.from_numpy(np.stack(rows)) if rows else e
    return torch.cholesky_solve(e.unsqueeze(-1), torch.linalg.cholesky(qp.H)).squeeze(-1)


def apply_inverse_on_rows(qp: QuadraticProgram, active: ActiveSet, e: Tensor) -> Tensor:
    """Compute H⁻¹ e, or ``(H + ρJᵀJ)⁻¹ e`` where H is singular, with the active constraints J. Shape (B, n).

    The rows are scaled to length one, bounds are rows of the identity, and ρ is the largest diagonal entry of H. The
    matrix is definite where the decision is unique.

    Args:
        qp: the programs.
        active: the active inequalities and bounds.
        e: (B, n) vectors.
    """
    if not (qp.is_sparse or qp.diagonal):
        return apply_dense_inverse(qp.H, qp.A, qp.G, active, e)
    flat = is_singular_program(qp).expand(len(e))
    if not bool(flat.any()):
        return apply_inverse_curvature(qp, e)
    if not qp.is_sparse:
        return apply_dense_inverse(qp.H, qp.A, qp.G, active, e)
    solved, rest = torch.empty_like(e), (~flat).nonzero()[:, 0]
    if len(rest):
        solved[rest] = apply_inverse_curvature(qp[rest], e[rest])
    singular = flat.nonzero()[:, 0]
    solved[singular] = _solve_sparse_on_rows(qp[singular], active[singular], e[singular])
    return solved


def _solve_sparse_on_rows(qp: QuadraticProgram, active: ActiveSet, e: Tensor) -> Tensor:
    """Solve ``(H + ρJᵀJ) x = e`` for sparse programs, (B, n), by the system ``[H Jᵀ; J −I/ρ][x; y] = [e; 0]``."""
    from scipy import sparse
    from scipy.sparse.linalg import SuperLU, splu

    H, lengths = qp.H.csr, [positive(matrix_row_squares(rows).sqrt())[0].numpy() for rows in (qp.A, qp.G)]
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


def curvature_sign(qp: QuadraticProgram) -> int:
    """The sign of the least eigenvalue of a sparse H up to rounding: 1 definite, 0 singular, −1 indefinite.

    The sign is computed once and kept in the plan of the program.
    """
    return qp.prepare_once("sign", _find_curvature_sign)


def _find_curvature_sign(qp: QuadraticProgram) -> int:
    """Compute the sign that ``curvature_sign`` returns: by diagonal dominance, by factorisations, or by Lanczos."""
    H: sparse.csr_array = qp.H.csr
    diagonal = H.diagonal()
    top = float(np.abs(diagonal).max(initial=0.0))
    coupling = np.asarray(abs(H).sum(1)).reshape(-1) - np.abs(diagonal)
    margin = float((diagonal - coupling).min(initial=np.inf))
    if margin > INDEFINITE * top:
        return 1  # every diagonal entry exceeds the sum of the other entries of its row
    if not coupling.any() or top == 0:
        return -1 if margin < -INDEFINITE * max(top, 1e-300) else 0
    pattern = _curvature_pattern(qp.H.csr)
    if not pattern.direct:
        return _sign_by_lanczos(H, top)
    if pattern.factor(np.full(qp.n, -INDEFINITE * top), np.zeros(0)).is_positive:
        return 1
    return 0 if pattern.factor(np.full(qp.n, INDEFINITE * top), np.zeros(0)).is_positive else -1


def has_curvature_above(H: sparse.csr_array, level: float) -> bool:
    """Whether every eigenvalue of a sparse H (n, n) is certainly at least ``level`` > 0.

    Diagonal dominance or a factorisation of H − level·I shows it; where both fail or would take too long, the result is
    False.
    """
    diagonal = H.diagonal()
    coupling = np.asarray(abs(H).sum(1)).reshape(-1) - np.abs(diagonal)
    if bool((diagonal - coupling >= level).all()):
        return True
    pattern = _curvature_pattern(H)
    return pattern.direct and pattern.factor(np.full(H.shape[0], -level), np.zeros(0)).is_positive


def _sign_by_lanczos(H: sparse.csr_array, top: float) -> int:
    """Find the sign of the least eigenvalue by Lanczos iterations; for an H that is too costly to factor.

    Args:
        H: (n, n) curvature.
        top: the largest absolute diagonal entry of H.
    """
    from scipy.sparse.linalg import ArpackNoConvergence, eigsh  # takes long to import, and few programs need it

    start = np.random.default_rng(0).standard_normal(H.shape[0])
    try:
        least = float(eigsh(H, k=1, which="SA", v0=start, ncv=40, tol=1e-2, maxiter=300, return_eigenvectors=False)[0])
    except ArpackNoConvergence as error:
        # the estimates decrease to the eigenvalue; one that has not converged is close to zero
        least = float(error.eigenvalues.min()) if len(error.eigenvalues) else 0.0
    if least < -INDEFINITE * top:
        return -1
    return 1 if least > _LANCZOS * top else 0


def _curvature_pattern(H: sparse.csr_array) -> SaddlePattern:
    """The pattern of a saddle-point system that consists of H (n, n) alone, without constraint rows."""
    from scipy import sparse

    from pear.solvers.linalg.saddle import SaddlePattern  # imports numba, which dense programs do not need

    return SaddlePattern(H, sparse.csr_array((0, H.shape[0])))
