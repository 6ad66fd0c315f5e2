"""The definiteness of the curvature H of programs, dense or sparse: the sign of the least eigenvalue of H."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from pear.optimality.definiteness import has_flat_curvature, is_definite, is_semidefinite
from pear.optimality.rule import INDEFINITE
from pear.problem.quadratic_program import QuadraticProgram

if TYPE_CHECKING:
    from scipy import sparse

    from pear.solvers.linalg.saddle import SaddlePattern

_LANCZOS = 1e-6  # an estimate of the least eigenvalue below this, relative to H, may be zero


def is_convex_program(qp: QuadraticProgram) -> Tensor:
    """Return whether the curvature H is positive semidefinite up to rounding. Shape (B or 1,), bool."""
    return torch.tensor([convexity_sign(qp) >= 0]) if qp.is_sparse else is_semidefinite(qp.H)


def lacks_strict_convexity(qp: QuadraticProgram) -> Tensor:
    """Return whether the curvature H is not positive definite. Shape (B or 1,), bool."""
    return torch.tensor([convexity_sign(qp) <= 0]) if qp.is_sparse and not qp.diagonal else has_flat_curvature(qp)


def nearly_lacks_strict_convexity(qp: QuadraticProgram) -> Tensor:
    """Return whether H is not positive definite, or so near singular that factoring may fail. Shape (B or 1,), bool."""
    return lacks_strict_convexity(qp) if qp.diagonal or qp.is_sparse else ~is_definite(qp.H)


def convexity_sign(qp: QuadraticProgram) -> int:
    """Return the sign of the least eigenvalue of a sparse curvature H, up to rounding.

    1 means that H is positive definite, 0 that H is singular without a negative eigenvalue, and −1 that H has a
    negative eigenvalue. The sign is computed once and kept in the plan of the programs.
    """
    return qp.prepare_once("sign", _find_convexity_sign)


def _find_convexity_sign(qp: QuadraticProgram) -> int:
    """Return the result of ``convexity_sign``, found by diagonal dominance, factorisations or Lanczos iterations."""
    H: sparse.csr_array = qp.H.csr
    diagonal = H.diagonal()
    top = float(np.abs(diagonal).max(initial=0.0))
    coupling = np.asarray(abs(H).sum(1)).reshape(-1) - np.abs(diagonal)
    margin = float((diagonal - coupling).min(initial=np.inf))
    if margin > INDEFINITE * top:
        return 1  # every diagonal entry exceeds the sum of the other entries of its row
    if not coupling.any() or top == 0:
        return -1 if margin < -INDEFINITE * max(top, 1e-300) else 0
    pattern = convexity_pattern(qp.H.csr)
    if not pattern.direct:
        return _convexity_sign_by_lanczos(H, top)
    if pattern.factor(np.full(qp.n, -INDEFINITE * top), np.zeros(0)).is_positive:
        return 1
    return 0 if pattern.factor(np.full(qp.n, INDEFINITE * top), np.zeros(0)).is_positive else -1


def has_convexity_above(H: sparse.csr_array, level: float) -> bool:
    """Return whether every eigenvalue of a sparse H (n, n) is certainly at least ``level`` > 0.

    The proof is diagonal dominance or a factorisation of H − level·I. The result is False if there is no proof, or if
    the factorisation would take too long.
    """
    diagonal = H.diagonal()
    coupling = np.asarray(abs(H).sum(1)).reshape(-1) - np.abs(diagonal)
    if bool((diagonal - coupling >= level).all()):
        return True
    pattern = convexity_pattern(H)
    return pattern.direct and pattern.factor(np.full(H.shape[0], -level), np.zeros(0)).is_positive


def _convexity_sign_by_lanczos(H: sparse.csr_array, top: float) -> int:
    """Estimate the sign of the least eigenvalue by Lanczos iterations, for an H that is too costly to factor.

    Args:
        H: (n, n) curvature.
        top: the largest absolute diagonal entry of H.

    Returns:
        1, 0 or −1, as in ``convexity_sign``.
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


def convexity_pattern(H: sparse.csr_array) -> SaddlePattern:
    """Analyse the structure of H (n, n) for factorisation, as a saddle-point system without constraint rows."""
    from scipy import sparse

    from pear.solvers.linalg.saddle import SaddlePattern  # imports numba, which dense programs do not need

    return SaddlePattern(H, sparse.csr_array((0, H.shape[0])))
