"""Dense programs of some dozens of variables or more on their non-zeros, where few of their entries are any."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from scipy import sparse
from torch import Tensor

from pear.problem.canonical import QuadraticProgram
from pear.problem.sparse import SparseMatrix, SparseProgram

_LEAST_VARIABLES = 30
"""Below, a dense factorisation takes less time than the analysis of a sparse one."""
_MAX_SHARE = 0.15
"""Largest share of non-zeros among the entries of H, A and G together."""
_PLAN = "nonzeros"


def on_nonzeros(qp: QuadraticProgram) -> SparseProgram | None:
    """The same programs with sparse matrices; None where they are small, dense, on a GPU or differ between samples.

    The matrices and what solvers work out about them are kept with the plan of the constraints, for the last H.
    """
    if isinstance(qp, SparseProgram):
        return qp
    if qp.n < _LEAST_VARIABLES or qp.c.is_cuda or any(len(M) > 1 for M in (qp.H, qp.A, qp.G)):
        return None
    H, found = qp.plan.get(_PLAN, (None, None))
    if H is None or not torch.equal(H, qp.H):
        found = _converted(qp)
        qp.plan[_PLAN] = qp.H, found
    if found is None:
        return None
    vectors: dict[str, Tensor] = {name: getattr(qp, name) for name in ("c", "b", "h", "lb", "ub")}
    program: SparseProgram = replace(found, **vectors)
    return program


def _converted(qp: QuadraticProgram) -> SparseProgram | None:
    matrices = {name: getattr(qp, name)[0] for name in ("H", "A", "G")}
    entries = sum(M.numel() for M in matrices.values())
    count = sum(int(M.count_nonzero()) for M in matrices.values())
    if count > _MAX_SHARE * entries or not all(bool(M.isfinite().all()) for M in matrices.values()):
        return None
    kept: dict[str, Any] = {
        name: SparseMatrix(sparse.csr_array(M.numpy()), shared=True) for name, M in matrices.items()
    }
    vectors = {name: getattr(qp, name) for name in ("c", "b", "h", "lb", "ub")}
    return SparseProgram(**kept, **vectors, integer=qp.integer, diagonal=qp.diagonal, plan={})
