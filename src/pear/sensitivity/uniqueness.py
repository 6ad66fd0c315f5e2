"""Is a decision the only one? A question that a linear program answers exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import OptimizeResult, linprog
from torch import Tensor

from pear.optimality.point import ActiveSet
from pear.problem.canonical import QuadraticProgram
from pear.problem.sparse import SparseProgram

Array = NDArray[Any]

DESCENT = 1e-9


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
        leave = linear_program(loose.sum(0), held, np.zeros(len(held)), loose, np.zeros(len(loose)), -box, box)
        answers.append(bool(leave.status == 0 and leave.fun > -DESCENT))
    return torch.tensor(answers, dtype=torch.bool, device=qp.c.device)


def cannot_leave(qp: SparseProgram, active: ActiveSet, weak: ActiveSet) -> bool:
    """Whether no weakly active constraint of one sample can be left along a direction without curvature."""
    rows, lower, upper = (v[0].numpy() for v in (active.rows, active.lower, active.upper))
    slack_rows, slack_lower, slack_upper = (v[0].numpy() for v in (weak.rows, weak.lower, weak.upper))
    pinned = (lower & ~slack_lower) | (upper & ~slack_upper)
    held = sparse.csr_array(sparse.vstack([csr_of(qp.H), csr_of(qp.A), csr_of(qp.G)[rows & ~slack_rows]]))
    # bounds that stay in one box: a variable at a bound may only move inward, one held there not at all
    low = np.where(pinned | slack_lower, 0.0, -1.0)
    high = np.where(pinned | slack_upper, 0.0, 1.0)
    loose = csr_of(qp.G)[slack_rows]
    gain = np.asarray(loose.sum(0)).reshape(-1) - slack_lower.astype(float) + slack_upper.astype(float)
    leave = linear_program(gain, held, np.zeros(held.shape[0]), loose, np.zeros(loose.shape[0]), low, high)
    return bool(leave.status == 0 and leave.fun > -DESCENT)


def csr_of(matrix: Any) -> sparse.csr_array:
    """SciPy's form of a field of a sparse program."""
    return matrix.csr


def linear_program(c: Array, A: Any, b: Array, G: Any, h: Array, lb: Array, ub: Array) -> OptimizeResult:
    """SciPy's answer to ``min cᵀx, Ax = b, Gx ≤ h, lb ≤ x ≤ ub``; A and G dense or sparse."""
    return linprog(
        c,
        A_ub=G if G.shape[0] else None,
        b_ub=h if G.shape[0] else None,
        A_eq=A if A.shape[0] else None,
        b_eq=b if A.shape[0] else None,
        bounds=np.column_stack([lb, ub]),
        method="highs",
    )
