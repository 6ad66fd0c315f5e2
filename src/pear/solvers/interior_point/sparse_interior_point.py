"""The interior point for sparse programs, one sample after another."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from pear.optimality.active_set_rule import guess_active
from pear.optimality.duals_and_active_sets import ActiveSet, Duals, Status
from pear.problem.quadratic_program import QuadraticProgram
from pear.solvers.candidate import Candidate, Start, empty_candidate
from pear.solvers.interior_point.mehrotra import InteriorPoint
from pear.solvers.linalg import Array
from pear.solvers.linalg.saddle import SaddlePattern

logger = logging.getLogger("pear")

_EQUILIBRATIONS = 10


def solve(qp: QuadraticProgram, tol: float, start: Start | Candidate | None = None) -> Candidate:
    """Solve every sample to the relative accuracy ``tol``; a sample that fails gets its best iterate.

    Args:
        qp: the programs.
        tol: relative accuracy.
        start: points to start from, or an earlier candidate whose iterations continue.
    """
    candidate = empty_candidate(qp.batch, qp.n, qp.p, qp.m, like=qp.c)
    guess = ActiveSet.none(qp.batch, qp.n, qp.m, qp.c.device)
    begun = start.resume if isinstance(start, Candidate) else [_begin(qp, i, start) for i in range(qp.batch)]
    for i, method in enumerate(begun):
        if method is not None:
            at, reached = torch.tensor([i]), method.run(tol)
            x, duals = method.point
            candidate.x[at] = x
            candidate.duals.put(at, duals)
            guess.put(at, method.guess)
            candidate.status[i] = int(Status.SOLVED if reached else Status.INACCURATE)
    return replace(candidate, guess=guess, resume=begun, exhausted=not bool((candidate.status == Status.SOLVED).any()))


def _begin(qp: QuadraticProgram, i: int, start: Start | None) -> SampleInteriorPoint | None:
    at = torch.tensor([i])
    sample = qp[at]
    warm = start is not None and bool(start.has_start[i])
    return SampleInteriorPoint.of(sample, (start.x[at], start.duals[at]) if start is not None and warm else None)


class SampleInteriorPoint:
    """The interior point of one sample, in the units of the program.

    Internally, rows and columns are equilibrated, so that shifts and residuals do not depend on the units of a row or
    variable.
    """

    def __init__(self, qp: QuadraticProgram, scaled: EquilibratedProgram, method: InteriorPoint) -> None:
        self._qp, self._scaled, self._method = qp, scaled, method

    @classmethod
    def of(cls, qp: QuadraticProgram, start: tuple[Tensor, Duals] | None = None) -> SampleInteriorPoint | None:
        """Make the method for a batch of one; None where the factors of its systems would be too large.

        Args:
            qp: one program.
            start: a point near the solution and its multipliers, each a batch of one.
        """
        whole = equilibrated_program(qp)
        if not whole.pattern.affordable:
            logger.debug("the systems of the interior point would fill up; name another solver")
            return None
        rows, columns, point = whole.rows, whole.columns, None
        if start is not None:
            v = torch.cat([start[1].equality, start[1].inequality], 1)[0].numpy() / rows
            point = start[0][0].numpy() / columns, v, start[1].bound[0].numpy() * columns
        rhs = torch.cat([qp.b, qp.h], 1)[0].numpy() * rows
        c, lb, ub = (v[0].numpy() for v in (qp.c, qp.lb, qp.ub))
        method = InteriorPoint(whole.pattern, qp.p, c * columns, rhs, lb / columns, ub / columns, start=point)
        return cls(qp, whole, method)

    def run(self, tol: float) -> bool:
        """Iterate until ``tol`` is reached; return whether it was."""
        return self._method.run(tol)

    @property
    def point(self) -> tuple[Tensor, Duals]:
        """Return the best point so far (1, n) and its multipliers."""
        scaled_x, scaled_v, scaled_bound = self._method.point
        units, p = self._scaled.columns, self._qp.p
        values = scaled_x * units, scaled_v * self._scaled.rows, scaled_bound / units
        x, v, bound = (torch.from_numpy(np.nan_to_num(value))[None] for value in values)
        return x, Duals(v[:, :p], v[:, p:].clamp(min=0), bound)

    @property
    def guess(self) -> ActiveSet:
        """Guess the active constraints from the point, in the equilibrated units, where they are easiest to tell."""
        rows, columns = torch.from_numpy(self._scaled.rows[self._qp.p :]), torch.from_numpy(self._scaled.columns)
        return guess_active(self._qp, *self.point, scale=(rows, columns))


class EquilibratedProgram(NamedTuple):
    """The matrices with rows and columns scaled to size one: x = columns · x', and row k is multiplied by rows[k]."""

    pattern: SaddlePattern
    by_columns: sparse.csc_array
    rows: Array
    columns: Array


def equilibrated_program(qp: QuadraticProgram) -> EquilibratedProgram:
    """Return the equilibrated matrices of these programs, made once for a problem."""
    return qp.prepare_once("interior", _equilibrate)


def _equilibrate(qp: QuadraticProgram) -> EquilibratedProgram:
    J = sparse.csr_array(sparse.vstack([qp.A.csr, qp.G.csr]))
    H = sparse.csr_array(qp.H.csr)
    rows, columns = _equilibration(H, J)
    by_column = sparse.diags_array(columns)
    H, J = sparse.csr_array(by_column @ H @ by_column), sparse.csr_array(sparse.diags_array(rows) @ J @ by_column)
    return EquilibratedProgram(SaddlePattern(H, J), sparse.csc_array(J), rows, columns)


def _equilibration(H: sparse.csr_array, J: sparse.csr_array) -> tuple[Array, Array]:
    """Powers of two that bring the largest entry of every row and column of [H Jᵀ; J 0] near one (Ruiz's iteration)."""
    H, J = sparse.coo_array(abs(H)), sparse.coo_array(abs(J))
    rows, columns = np.ones(J.shape[0]), np.ones(H.shape[0])
    for _ in range(_EQUILIBRATIONS):
        h, j = H.data * columns[H.row] * columns[H.col], J.data * rows[J.row] * columns[J.col]
        in_rows, in_columns, curved = np.zeros_like(rows), np.zeros_like(columns), np.zeros_like(columns)
        np.maximum.at(in_rows, J.row, j)
        np.maximum.at(in_columns, J.col, j)
        np.maximum.at(curved, H.row, h)
        # the unit of the objective is arbitrary, so that curvature is relative to its median
        middle = np.median(curved[curved > 0]) if curved.any() else 1.0
        in_columns = np.maximum(in_columns, curved / middle)
        rows /= np.sqrt(np.where(in_rows > 0, in_rows, 1.0))
        columns /= np.sqrt(np.where(in_columns > 0, in_columns, 1.0))
    return np.exp2(np.round(np.log2(rows))), np.exp2(np.round(np.log2(columns)))
