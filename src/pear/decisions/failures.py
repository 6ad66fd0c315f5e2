"""Why a sample has no solution: a question that a linear program answers exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from pear.optimality.point import Status
from pear.problem.canonical import QuadraticProgram
from pear.problem.sparse import SparseProgram
from pear.sensitivity.uniqueness import DESCENT, csr_of, linear_program

Array = NDArray[Any]

_INFEASIBLE = 2  # linprog's code


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
    if linear_program(np.zeros_like(c), A, b, G, h, lb, ub).status == _INFEASIBLE:
        return Status.INFEASIBLE
    flat = np.vstack([A, H])
    lower = np.where(np.isfinite(lb), 0.0, -1.0)
    upper = np.where(np.isfinite(ub), 0.0, 1.0)
    steepest = linear_program(c, flat, np.zeros(len(flat)), G, np.zeros(len(h)), lower, upper)
    if steepest.status == 0 and steepest.fun < -DESCENT * np.abs(c).max():
        return Status.UNBOUNDED
    return Status.INACCURATE


def fate(qp: SparseProgram) -> Status:
    """INFEASIBLE, UNBOUNDED or INACCURATE for one sample that could not be solved, by linear programs."""
    c, b, h, lb, ub = (v[0].numpy() for v in (qp.c, qp.b, qp.h, qp.lb, qp.ub))
    if (lb > ub).any() or (h == -np.inf).any() or (lb == np.inf).any() or (ub == -np.inf).any():
        return Status.INFEASIBLE
    present = np.isfinite(h)
    G, h = csr_of(qp.G)[present], h[present]
    if linear_program(np.zeros_like(c), csr_of(qp.A), b, G, h, lb, ub).status == _INFEASIBLE:
        return Status.INFEASIBLE
    flat = sparse.csr_array(sparse.vstack([csr_of(qp.A), csr_of(qp.H)]))
    lower, upper = np.where(np.isfinite(lb), 0.0, -1.0), np.where(np.isfinite(ub), 0.0, 1.0)
    steepest = linear_program(c, flat, np.zeros(flat.shape[0]), G, np.zeros(len(h)), lower, upper)
    if steepest.status == 0 and steepest.fun < -DESCENT * np.abs(c).max():
        return Status.UNBOUNDED
    return Status.INACCURATE
