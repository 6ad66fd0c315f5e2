"""The interior-point method for sparse programs, one sample after the other, in equilibrated units."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from pear.optimality.active_set_rule import guess_active_set
from pear.optimality.duals_and_active_sets import ActiveSet, Duals
from pear.optimality.status import Status
from pear.problem.quadratic_program import QuadraticProgram
from pear.solvers.candidate import Candidate, Start, empty_candidate
from pear.solvers.interior_point.sparse_iterates import SparseIterates
from pear.solvers.linalg.equilibrated_program import EquilibratedProgram, equilibrated_program

logger = logging.getLogger("pear")


def solve_sparse_interior_point(qp: QuadraticProgram, tol: float, start: Start | Candidate | None = None) -> Candidate:
    """Solve every sample to the relative accuracy ``tol``, or return its best iterate.

    A sample whose factors would be too large has the status INACCURATE and NaN as its point.

    Args:
        qp: the programs.
        tol: relative accuracy.
        start: points to start from, or an earlier candidate whose iterations continue; None for a cold start.
    """
    candidate = empty_candidate(qp.batch, qp.n, qp.p, qp.m, like=qp.c)
    guess = ActiveSet.none(qp.batch, qp.n, qp.m, qp.c.device)
    begun = (
        start.resume
        if isinstance(start, Candidate)
        else [_begin_sparse_interior_point(qp, i, start) for i in range(qp.batch)]
    )
    for i, sample in enumerate(begun):
        if sample is not None:
            at, reached = torch.tensor([i]), sample.iterates.run(tol)
            x, duals = sample.point
            candidate.x[at] = x
            candidate.duals.put(at, duals)
            guess.put(at, sample.guess)
            candidate.status[i] = int(Status.SOLVED if reached else Status.INACCURATE)
    return replace(candidate, guess=guess, resume=begun, exhausted=not bool((candidate.status == Status.SOLVED).any()))


def _begin_sparse_interior_point(qp: QuadraticProgram, i: int, start: Start | None) -> SparseInteriorPoint | None:
    """Prepare the interior-point method of sample i, with its warm start if it has one."""
    at = torch.tensor([i])
    warm = start is not None and bool(start.has_start[i])
    return SparseInteriorPoint.of(qp[at], (start.x[at], start.duals[at]) if start is not None and warm else None)


@dataclass(frozen=True)
class SparseInteriorPoint:
    """The interior-point method for one sample of sparse programs. Its results are in the units of the program.

    The iterations work on equilibrated rows and columns, so that shifts and residuals do not depend on the units of a
    row or variable.

    Attributes:
        qp: the program, a batch of one.
        scaled: the equilibrated matrices of the program.
        iterates: the iterates in equilibrated units.
    """

    qp: QuadraticProgram
    scaled: EquilibratedProgram
    iterates: SparseIterates

    @classmethod
    def of(cls, qp: QuadraticProgram, start: tuple[Tensor, Duals] | None = None) -> SparseInteriorPoint | None:
        """Prepare the method for one program; return None if the factors of its systems would be too large.

        Args:
            qp: the program, a batch of one.
            start: a point near the solution and its multipliers, each a batch of one; None for a cold start.
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
        """The best point so far (1, n) and its multipliers."""
        scaled_x, scaled_v, scaled_bound = self.iterates.point
        units, p = self.scaled.columns, self.qp.p
        values = scaled_x * units, scaled_v * self.scaled.rows, scaled_bound / units
        x, v, bound = (torch.from_numpy(np.nan_to_num(value))[None] for value in values)
        return x, Duals(v[:, :p], v[:, p:].clamp(min=0), bound)

    @property
    def guess(self) -> ActiveSet:
        """The active set as guessed from the best point, in equilibrated units, in which the guess is most reliable."""
        rows, columns = torch.from_numpy(self.scaled.rows[self.qp.p :]), torch.from_numpy(self.scaled.columns)
        return guess_active_set(self.qp, *self.point, scale=(rows, columns))
