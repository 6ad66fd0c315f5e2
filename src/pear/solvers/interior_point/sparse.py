"""The interior point for sparse programs, one sample after another."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from pear.optimality.point import Duals, Status
from pear.problem.sparse import SparseProgram
from pear.solvers.base import Candidate, Start, empty_candidate
from pear.solvers.interior_point.method import InteriorPoint
from pear.solvers.linalg.ordering import Array
from pear.solvers.linalg.saddle import SaddlePattern

logger = logging.getLogger("pear")


def solve(qp: SparseProgram, tol: float, start: Start | Candidate | None = None) -> Candidate:
    """Solve every sample to about ``tol``; the point of one that fails is its best iterate.

    Args:
        qp: the programs.
        tol: relative accuracy.
        start: points to start from, or an earlier candidate, whose iterations go on.
    """
    candidate = empty_candidate(qp.batch, qp.n, qp.p, qp.m, like=qp.c)
    begun = start.resume if isinstance(start, Candidate) else [_begin(qp, i, start) for i in range(qp.batch)]
    for i, method in enumerate(begun):
        if method is not None:
            at, reached = torch.tensor([i]), method.run(tol)
            x, duals = method.point
            candidate.x[at] = x
            candidate.duals.put(at, duals)
            candidate.status[i] = int(Status.SOLVED if reached else Status.INACCURATE)
    return replace(candidate, resume=begun, exhausted=not bool((candidate.status == Status.SOLVED).any()))


def _begin(qp: SparseProgram, i: int, start: Start | None) -> Interior | None:
    at = torch.tensor([i])
    sample = qp[at]
    assert isinstance(sample, SparseProgram)
    warm = start is not None and bool(start.has_start[i])
    return Interior.of(sample, (start.x[at], start.duals[at]) if start is not None and warm else None)


class Interior:
    """The interior point of one sample, in the units of the program.

    Inside, every row has length one: neither its shifts nor its measures may depend on the units of a row.
    """

    def __init__(self, qp: SparseProgram, lengths: Array, method: InteriorPoint) -> None:
        self._qp, self._lengths, self._method = qp, lengths, method

    @classmethod
    def of(cls, qp: SparseProgram, start: tuple[Tensor, Duals] | None = None) -> Interior | None:
        """At its start, for a batch of one; None where its systems would fill up.

        Args:
            qp: one program.
            start: a point near the solution and its multipliers, each a batch of one.
        """
        pattern, lengths = qp.prepared("interior", _analysed)
        if not pattern.affordable:
            logger.warning("the systems of the interior point would fill up; name another solver")
            return None
        point = None
        if start is not None:
            rows = torch.cat([start[1].equality, start[1].inequality], 1)[0].numpy() * lengths
            point = start[0][0].numpy(), rows, start[1].bound[0].numpy()
        rhs = torch.cat([qp.b, qp.h], 1)[0].numpy() / lengths
        c, lb, ub = (v[0].numpy() for v in (qp.c, qp.lb, qp.ub))
        return cls(qp, lengths, InteriorPoint(pattern, qp.p, c, rhs, lb, ub, start=point))

    def run(self, tol: float) -> bool:
        """Go on until ``tol``; returns whether it was reached."""
        return self._method.run(tol)

    @property
    def point(self) -> tuple[Tensor, Duals]:
        """The best point so far (1, n) and its multipliers."""
        x, v, bound = (torch.from_numpy(np.nan_to_num(value))[None] for value in self._method.point)
        v = v / torch.from_numpy(self._lengths)
        p = self._qp.p
        return x, Duals(v[:, :p], v[:, p:].clamp(min=0), bound)


def stacked(qp: SparseProgram) -> sparse.csc_array:
    """(p + m, n) the rows of A and G by columns, made once for a problem."""
    return qp.prepared("columns", lambda qp: sparse.csc_array(sparse.vstack([qp.A.csr, qp.G.csr])))


def _analysed(qp: SparseProgram) -> tuple[SaddlePattern, Array]:
    J = sparse.csr_array(stacked(qp))
    squares = np.asarray(J.multiply(J).sum(1)).reshape(-1)
    lengths = np.sqrt(np.where(squares > 0, squares, 1.0))
    unit = sparse.csr_array(sparse.diags_array(1 / lengths) @ J) if len(lengths) else J
    return SaddlePattern(qp.H.csr, unit), lengths  # type: ignore[attr-defined]
