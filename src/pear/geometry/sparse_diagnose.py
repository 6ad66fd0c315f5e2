"""Questions about large sparse programs: is the curvature definite, why is there no solution, and is there only one?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import OptimizeResult, linprog
from scipy.sparse.linalg import ArpackNoConvergence, eigsh
from torch import Tensor

from pear.problem.sparse import SparseProgram
from pear.solvers.solution import ActiveSet, Status
from pear.solvers.sparse_kkt import Saddle, SaddlePattern

Array = NDArray[Any]

_INFEASIBLE = 2  # linprog's code
_DESCENT = 1e-9
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


def fate(qp: SparseProgram) -> Status:
    """INFEASIBLE, UNBOUNDED or INACCURATE for one sample that could not be solved, by linear programs."""
    c, b, h, lb, ub = (v[0].numpy() for v in (qp.c, qp.b, qp.h, qp.lb, qp.ub))
    if (lb > ub).any() or (h == -np.inf).any() or (lb == np.inf).any() or (ub == -np.inf).any():
        return Status.INFEASIBLE
    present = np.isfinite(h)
    G, h = _csr(qp.G)[present], h[present]
    if _linprog(np.zeros_like(c), _csr(qp.A), b, G, h, lb, ub).status == _INFEASIBLE:
        return Status.INFEASIBLE
    flat = sparse.csr_array(sparse.vstack([_csr(qp.A), _csr(qp.H)]))
    lower, upper = np.where(np.isfinite(lb), 0.0, -1.0), np.where(np.isfinite(ub), 0.0, 1.0)
    steepest = _linprog(c, flat, np.zeros(flat.shape[0]), G, np.zeros(len(h)), lower, upper)
    if steepest.status == 0 and steepest.fun < -_DESCENT * np.abs(c).max():
        return Status.UNBOUNDED
    return Status.INACCURATE


def cannot_leave(qp: SparseProgram, active: ActiveSet, weak: ActiveSet) -> bool:
    """Whether no weakly active constraint of one sample can be left along a direction without curvature."""
    rows, lower, upper = (v[0].numpy() for v in (active.rows, active.lower, active.upper))
    slack_rows, slack_lower, slack_upper = (v[0].numpy() for v in (weak.rows, weak.lower, weak.upper))
    pinned = (lower & ~slack_lower) | (upper & ~slack_upper)
    held = sparse.csr_array(sparse.vstack([_csr(qp.H), _csr(qp.A), _csr(qp.G)[rows & ~slack_rows]]))
    # bounds that stay in one box: a variable at a bound may only move inward, one held there not at all
    low = np.where(pinned | slack_lower, 0.0, -1.0)
    high = np.where(pinned | slack_upper, 0.0, 1.0)
    loose = _csr(qp.G)[slack_rows]
    gain = np.asarray(loose.sum(0)).reshape(-1) - slack_lower.astype(float) + slack_upper.astype(float)
    leave = _linprog(gain, held, np.zeros(held.shape[0]), loose, np.zeros(loose.shape[0]), low, high)
    return bool(leave.status == 0 and leave.fun > -_DESCENT)


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


def _linprog(
    c: Array, A: sparse.csr_array, b: Array, G: sparse.csr_array, h: Array, lb: Array, ub: Array
) -> OptimizeResult:
    return linprog(
        c,
        A_ub=G if G.shape[0] else None,
        b_ub=h if G.shape[0] else None,
        A_eq=A if A.shape[0] else None,
        b_eq=b if A.shape[0] else None,
        bounds=np.column_stack([lb, ub]),
        method="highs",
    )
