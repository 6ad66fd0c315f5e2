"""Is the curvature definite, and what is H⁻¹e?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import ArpackNoConvergence, eigsh
from torch import Tensor

from pear.problem.sparse import SparseProgram
from pear.solvers.linalg.saddle import Saddle, SaddlePattern

Array = NDArray[Any]

_COARSE = 1e-6  # rounding of a float32 factorisation for each row, with a margin
_INDEFINITE = 1e-10  # an eigenvalue more negative than this, relative to H, is not rounding


def least_curvature(qp: SparseProgram) -> int:
    """The sign of the least eigenvalue of H up to rounding: 1 definite, 0 singular, −1 indefinite. Asked once."""
    if "sign" not in qp.plan:
        qp.plan["sign"] = _sign(qp)
    sign: int = qp.plan["sign"]
    return sign


def inverse_times(qp: SparseProgram, e: Tensor) -> tuple[Tensor, Callable[[], Tensor]]:
    """(B,) bool, where H is not definite, and a function that gives H⁻¹ e for e (B, n)."""
    factor = _curvature_factor(qp)
    flat = torch.full((len(e),), factor is None)

    def solve() -> Tensor:
        assert factor is not None
        none = np.zeros(0)
        return torch.from_numpy(np.stack([factor.solve(row, none)[0] for row in e.numpy()])) if len(e) else e

    return flat, solve


def _curvature_factor(qp: SparseProgram) -> Saddle | None:
    """H factored by itself; None where it is not definite."""
    if "inverse" not in qp.plan:
        qp.plan["inverse"] = None
        if least_curvature(qp) > 0:
            pattern = _alone(qp)
            if pattern.affordable:
                qp.plan["inverse"] = pattern.factor(np.zeros(qp.n), np.zeros(0))
    factor: Saddle | None = qp.plan["inverse"]
    return factor


def _sign(qp: SparseProgram) -> int:
    H, diagonal = _csr(qp.H), _csr(qp.H).diagonal()
    top = float(np.abs(diagonal).max(initial=0.0))
    coupling = np.asarray(abs(H).sum(1)).reshape(-1) - np.abs(diagonal)
    margin = float((diagonal - coupling).min(initial=np.inf))
    if margin > _INDEFINITE * top:
        return 1  # every row outweighs its couplings
    if not coupling.any() or top == 0:
        return -1 if margin < -_INDEFINITE * max(top, 1e-300) else 0
    pattern = _alone(qp)
    if not pattern.direct:
        return _sign_by_lanczos(H, top)
    if pattern.factor(np.full(qp.n, -_INDEFINITE * top), np.zeros(0)).is_positive:
        return 1
    return 0 if pattern.factor(np.full(qp.n, _INDEFINITE * top), np.zeros(0)).is_positive else -1


def _sign_by_lanczos(H: sparse.csr_array, top: float) -> int:
    """For curvature whose factor would fill up."""
    start = np.random.default_rng(0).standard_normal(H.shape[0])
    try:
        least = float(eigsh(H, k=1, which="SA", v0=start, ncv=40, tol=1e-2, maxiter=300, return_eigenvectors=False)[0])
    except ArpackNoConvergence as error:
        # the estimates come down from above; what has not settled is close to zero
        least = float(error.eigenvalues.min()) if len(error.eigenvalues) else 0.0
    if least < -_INDEFINITE * top:
        return -1
    return 1 if least > 1e-6 * top else 0


def _alone(qp: SparseProgram) -> SaddlePattern:
    return SaddlePattern(_csr(qp.H), sparse.csr_array((0, qp.n)))


def _csr(matrix: Any) -> sparse.csr_array:
    return matrix.csr


def is_definite(Q: Tensor, sign: float = 1.0, smoothing: float = 0.0) -> Tensor:
    """(B or 1,) bool: ``sign·Q + smoothing·I`` is certainly positive definite.

    Half the work of being sure of the opposite, too: what a coarser type can factor, after a shift by more than its own
    rounding errors.
    """
    diagonal = sign * Q.diagonal(dim1=1, dim2=2) + smoothing
    top = diagonal.amax(1, keepdim=True)  # which no entry of a definite matrix exceeds
    coarse = Q.float() if sign > 0 else -Q.float()
    coarse.diagonal(dim1=1, dim2=2).copy_(diagonal - _COARSE * Q.shape[1] * top)
    return torch.linalg.cholesky_ex(coarse.nan_to_num()).info == 0


def is_convex(Q: Tensor, sign: float = 1.0, smoothing: float = 0.0) -> Tensor:
    """(B or 1,) bool: ``sign·Q + smoothing·I`` is positive semidefinite up to rounding."""
    convex = is_definite(Q, sign, smoothing)
    rest = (~convex).nonzero()[:, 0]
    if len(rest):
        lifted = sign * Q[rest]
        top = lifted.abs().amax((1, 2))
        lift = smoothing + _INDEFINITE * torch.where(top > 0, top, torch.ones_like(top))
        lifted.diagonal(dim1=1, dim2=2).add_(lift[:, None])
        convex[rest] = torch.linalg.cholesky_ex(lifted.nan_to_num()).info == 0
    return convex
