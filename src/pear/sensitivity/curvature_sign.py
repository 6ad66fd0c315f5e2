"""Tests of the curvature H of programs, dense or sparse: whether it is convex, definite or singular."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from pear.optimality.definiteness import is_definite, is_not_definite, is_semidefinite
from pear.optimality.rule import INDEFINITE
from pear.problem.quadratic_program import QuadraticProgram

if TYPE_CHECKING:
    from scipy import sparse

    from pear.solvers.linalg.saddle import SaddlePattern

_LANCZOS = 1e-6  # an estimate of the least eigenvalue below this, relative to H, may be zero


def has_convex_curvature(qp: QuadraticProgram) -> Tensor:
    """Whether H is positive semidefinite up to rounding. Shape (B or 1,), bool."""
    return torch.tensor([curvature_sign(qp) >= 0]) if qp.is_sparse else is_semidefinite(qp.H)


def has_singular_curvature(qp: QuadraticProgram) -> Tensor:
    """Whether H is not positive definite. Shape (B or 1,), bool."""
    return torch.tensor([curvature_sign(qp) <= 0]) if qp.is_sparse and not qp.diagonal else is_not_definite(qp)


def has_nearly_singular_curvature(qp: QuadraticProgram) -> Tensor:
    """Whether H is singular, or so close to singular that a factorisation only just succeeds. Shape (B or 1,), bool."""
    return has_singular_curvature(qp) if qp.diagonal or qp.is_sparse else ~is_definite(qp.H)


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
    pattern = curvature_pattern(qp.H.csr)
    if not pattern.direct:
        return _curvature_sign_by_lanczos(H, top)
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
    pattern = curvature_pattern(H)
    return pattern.direct and pattern.factor(np.full(H.shape[0], -level), np.zeros(0)).is_positive


def _curvature_sign_by_lanczos(H: sparse.csr_array, top: float) -> int:
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


def curvature_pattern(H: sparse.csr_array) -> SaddlePattern:
    """The pattern of a saddle-point system that consists of H (n, n) alone, without constraint rows."""
    from scipy import sparse

    from pear.solvers.linalg.saddle import SaddlePattern  # imports numba, which dense programs do not need

    return SaddlePattern(H, sparse.csr_array((0, H.shape[0])))
