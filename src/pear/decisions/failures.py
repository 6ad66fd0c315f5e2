"""Why a sample has no solution: a question that linear programs answer exactly."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pear.optimality.point import Status
from pear.optimality.rule import DESCENT
from pear.problem.canonical import QuadraticProgram
from pear.sensitivity.uniqueness import linear_program, sample_row
from pear.solvers.adapters.arrays import stack

_INFEASIBLE = 2  # linprog's code


def name_failures(qp: QuadraticProgram) -> Tensor:
    """(B,) int8: INFEASIBLE, UNBOUNDED or INACCURATE for every sample of a batch that is not solved.

    Infeasible: phase one of an LP finds no point. Unbounded: a direction d exists with Hd = 0, Ad = 0, Gd ≤ 0, no bound
    in its way, and cᵀd < 0.
    """
    statuses = [int(_failure(qp, i)) for i in range(qp.batch)]
    return torch.tensor(statuses, dtype=torch.int8, device=qp.c.device)


def _failure(qp: QuadraticProgram, i: int) -> Status:
    fields = (qp.H, qp.c, qp.A, qp.b, qp.G, qp.h, qp.lb, qp.ub)
    H, c, A, b, G, h, lb, ub = (sample_row(v, i) for v in fields)
    present = np.isfinite(h)
    G, h = G[present], h[present]
    if linear_program(np.zeros_like(c), A, b, G, h, lb, ub).status == _INFEASIBLE:
        return Status.INFEASIBLE
    flat = stack(A, H)
    lower, upper = np.where(np.isfinite(lb), 0.0, -1.0), np.where(np.isfinite(ub), 0.0, 1.0)
    steepest = linear_program(c, flat, np.zeros(flat.shape[0]), G, np.zeros(len(h)), lower, upper)
    if steepest.status == 0 and steepest.fun < -DESCENT * np.abs(c).max():
        return Status.UNBOUNDED
    return Status.INACCURATE
