"""Questions that only a linear program answers exactly: why a sample has no solution, and whether it has only one."""

from __future__ import annotations

import numpy as np
import torch
from scipy.optimize import OptimizeResult, linprog
from torch import Tensor

from pear.problem.canonical import QuadraticProgram
from pear.solvers.solution import ActiveSet, Status

_INFEASIBLE = 2  # linprog's code
_DESCENT = 1e-9


def diagnose(qp: QuadraticProgram) -> Tensor:
    """(B,) int8: INFEASIBLE, UNBOUNDED or INACCURATE for every sample of a batch that could not be solved.

    Infeasible: phase one of an LP finds no point. Unbounded: a direction d exists with Hd = 0, Ad = 0, Gd ≤ 0, no bound
    in its way, and cᵀd < 0.
    """
    fates = [_fate(qp[torch.tensor([i], device=qp.c.device)]) for i in range(qp.batch)]
    return torch.tensor([int(fate) for fate in fates], dtype=torch.int8, device=qp.c.device)


def is_unique(qp: QuadraticProgram, active: ActiveSet, weak: ActiveSet) -> Tensor:
    """(B,) bool: no other point is optimal too, for programs whose H may be singular.

    Another one exists if some d ≠ 0 has Hd = 0, Jd = 0 for the constraints with a multiplier, and Jd ≤ 0 for those
    without. Where all tight constraints leave no flat direction, it is enough to ask whether one of those without can
    be left behind.
    """
    answers = []
    for i in range(qp.batch):
        H, A, G = (v[i if v.shape[0] > 1 else 0].cpu().numpy() for v in (qp.H, qp.A, qp.G))
        eye = np.eye(qp.n)
        rows, lower, upper = (v[i].cpu().numpy() for v in (active.rows, active.lower, active.upper))
        slack_rows, slack_lower, slack_upper = (v[i].cpu().numpy() for v in (weak.rows, weak.lower, weak.upper))
        held = np.vstack([H, A, G[rows & ~slack_rows], eye[(lower & ~slack_lower) | (upper & ~slack_upper)]])
        loose = np.vstack([G[slack_rows], -eye[slack_lower], eye[slack_upper]])
        box = np.ones(qp.n)
        leave = _linprog(loose.sum(0), held, np.zeros(len(held)), loose, np.zeros(len(loose)), -box, box)
        answers.append(bool(leave.status == 0 and leave.fun > -_DESCENT))
    return torch.tensor(answers, dtype=torch.bool, device=qp.c.device)


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
