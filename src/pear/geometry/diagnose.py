"""Why a sample has no solution: decided by linear programs that are exact about it, whatever solver was asked."""

from __future__ import annotations

import numpy as np
import torch
from scipy.optimize import OptimizeResult, linprog
from torch import Tensor

from pear.problem.canonical import QuadraticProgram
from pear.solvers.solution import Status

_INFEASIBLE = 2  # linprog's code
_DESCENT = 1e-9


def diagnose(qp: QuadraticProgram) -> Tensor:
    """(B,) int8: INFEASIBLE, UNBOUNDED or INACCURATE for every sample of a batch that could not be solved.

    Infeasible: phase one of an LP finds no point. Unbounded: a direction d exists with Hd = 0, Ad = 0, Gd ≤ 0, no bound
    in its way, and cᵀd < 0.
    """
    fates = [_fate(qp[torch.tensor([i], device=qp.c.device)]) for i in range(qp.batch)]
    return torch.tensor([int(fate) for fate in fates], dtype=torch.int8, device=qp.c.device)


def _fate(qp: QuadraticProgram) -> Status:
    H, c, A, b, G, h, lb, ub = (v[0].cpu().numpy() for v in (qp.H, qp.c, qp.A, qp.b, qp.G, qp.h, qp.lb, qp.ub))
    if (lb > ub).any() or (h == -np.inf).any():
        return Status.INFEASIBLE
    present = np.isfinite(h)
    G, h = G[present], h[present]
    if _linprog(np.zeros_like(c), A, b, G, h, lb, ub).status == _INFEASIBLE:
        return Status.INFEASIBLE
    flat = np.vstack([A, H])
    lower = np.where(np.isfinite(lb), 0.0, -1.0)
    upper = np.where(np.isfinite(ub), 0.0, 1.0)
    steepest = _linprog(c, flat, np.zeros(len(flat)), G, np.zeros(len(h)), lower, upper)
    if steepest.status == 0 and steepest.fun < -_DESCENT * np.abs(c).max():
        return Status.UNBOUNDED
    return Status.INACCURATE


def _linprog(
    c: np.ndarray, A: np.ndarray, b: np.ndarray, G: np.ndarray, h: np.ndarray, lb: np.ndarray, ub: np.ndarray
) -> OptimizeResult:
    return linprog(
        c,
        A_ub=G if len(G) else None,
        b_ub=h if len(G) else None,
        A_eq=A if len(A) else None,
        b_eq=b if len(A) else None,
        bounds=np.column_stack([lb, ub]),
        method="highs",
    )
