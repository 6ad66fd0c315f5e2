"""The interior point for sparse programs, one sample after another, in equilibrated units."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from pear.optimality.active_set_rule import guess_active
from pear.optimality.duals_and_active_sets import ActiveSet, Duals, Status
from pear.problem.quadratic_program import QuadraticProgram
from pear.solvers.candidate import Candidate, Start, empty_candidate
from pear.solvers.interior_point.sparse_iterates import SparseIterates
from pear.solvers.linalg import Array
from pear.solvers.linalg.saddle import SaddlePattern

logger = logging.getLogger("pear")

_EQUILIBRATIONS = 10


def solve_sparse(qp: QuadraticProgram, tol: float, start: Start | Candidate | None = None) -> Candidate:
    """Solve every sample to the relative accuracy ``tol``; a sample that fails gets its best iterate.

    Args:
        qp: the programs.
        tol: relative accuracy.
        start: points to start from, or an earlier candidate whose iterations continue.
    """
    candidate = empty_candidate(qp.batch, qp.n, qp.p, qp.m, like=qp.c)
    guess = ActiveSet.none(qp.batch, qp.n, qp.m, qp.c.device)
    begun = start.resume if isinstance(start, Candidate) else [_begin_sample(qp, i, start) for i in range(qp.batch)]
    for i, sample in enumerate(begun):
        if sample is not None:
            at, reached = torch.tensor([i]), sample.iterates.run(tol)
            x, duals = sample.point
            candidate.x[at] = x
            candidate.duals.put(at, duals)
            guess.put(at, sample.guess)
            candidate.status[i] = int(Status.SOLVED if reached else Status.INACCURATE)
    return replace(candidate, guess=guess, resume=begun, exhausted=not bool((candidate.status == Status.SOLVED).any()))


def _begin_sample(qp: QuadraticProgram, i: int, start: Start | None) -> SampleInteriorPoint | None:
    """Make the interior point of sample i, from its warm start where it has one."""
    at = torch.tensor([i])
    warm = start is not None and bool(start.has_start[i])
    return SampleInteriorPoint.of(qp[at], (start.x[at], start.duals[at]) if start is not None and warm else None)


@dataclass(frozen=True)
class SampleInteriorPoint:
    """The interior point of one sample. Its results are in the units of the program.

    Rows and columns are equilibrated for the iterations, so that shifts and residuals do not depend on the units of a
    row or variable.

    Attributes:
        qp: the program, a batch of one.
        scaled: its equilibrated matrices.
        iterates: the iterates in equilibrated units.
    """

    qp: QuadraticProgram
    scaled: EquilibratedProgram
    iterates: SparseIterates

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
        iterates = SparseIterates(whole.pattern, qp.p, c * columns, rhs, lb / columns, ub / columns, start=point)
        return cls(qp, whole, iterates)

    @property
    def point(self) -> tuple[Tensor, Duals]:
        """Return the best point so far (1, n) and its multipliers."""
        scaled_x, scaled_v, scaled_bound = self.iterates.point
        units, p = self.scaled.columns, self.qp.p
        values = scaled_x * units, scaled_v * self.scaled.rows, scaled_bound / units
        x, v, bound = (torch.from_numpy(np.nan_to_num(value))[None] for value in values)
        return x, Duals(v[:, :p], v[:, p:].clamp(min=0), bound)

    @property
    def guess(self) -> ActiveSet:
        """Guess the active constraints from the point, in the equilibrated units, where they are easiest to tell."""
        rows, columns = torch.from_numpy(self.scaled.rows[self.qp.p :]), torch.from_numpy(self.scaled.columns)
        return guess_active(self.qp, *self.point, scale=(rows, columns))


class EquilibratedProgram(NamedTuple):
    """The matrices of a program with rows and columns scaled to size one.

    Attributes:
        pattern: the scaled matrices H and J = [A; G], analysed for factorisation.
        by_columns: (p + m, n) the scaled J by columns.
        rows: (p + m,) the factors that the rows are multiplied by.
        columns: (n,) the units of the variables: x = columns · x', where x' are the scaled variables.
    """

    pattern: SaddlePattern
    by_columns: sparse.csc_array
    rows: Array
    columns: Array


def equilibrated_program(qp: QuadraticProgram) -> EquilibratedProgram:
    """Return the equilibrated matrices of these programs. They are computed once for a problem."""
    return qp.prepare_once("interior", _equilibrate)


def _equilibrate(qp: QuadraticProgram) -> EquilibratedProgram:
    """Scale the rows and columns of the matrices to size one."""
    J = sparse.csr_array(sparse.vstack([qp.A.csr, qp.G.csr]))
    H = sparse.csr_array(qp.H.csr)
    rows, columns = _equilibration_factors(H, J)
    by_column = sparse.diags_array(columns)
    H, J = sparse.csr_array(by_column @ H @ by_column), sparse.csr_array(sparse.diags_array(rows) @ J @ by_column)
    return EquilibratedProgram(SaddlePattern(H, J), sparse.csc_array(J), rows, columns)


def _equilibration_factors(H: sparse.csr_array, J: sparse.csr_array) -> tuple[Array, Array]:
    """Return powers of two, for the rows and columns of J, that bring the largest entries of [H Jᵀ; J 0] near one.

    They are found by Ruiz's iteration.
    """
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
