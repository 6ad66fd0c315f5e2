"""``CandidateRows``: a candidate that an adapter fills in, one row for each sample."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from pear.optimality.program_screen import screen_programs
from pear.optimality.status import Status
from pear.problem.quadratic_program import QuadraticProgram
from pear.solvers.adapters.batch_arrays import Array, Group
from pear.solvers.candidate import Candidate, empty_candidate


class CandidateRows:
    """The rows of a ``Candidate``, which an adapter fills in sample by sample.

    The numbers of a row that is not filled in are NaN, and its status is INACCURATE.

    Args:
        qp: the programs. A sample gets its final status at once if its data alone shows that it has no solution.
    """

    def __init__(self, qp: QuadraticProgram) -> None:
        self._device = qp.c.device
        self._candidate = empty_candidate(qp.batch, qp.n, qp.p, qp.m, like=qp.c.detach().cpu())
        if qp.integer is not None and bool(qp.integer.any()):
            self._candidate = replace(self._candidate, bound=torch.full_like(self._candidate.x[:, 0], torch.nan))
        self._status = self._candidate.status.numpy()
        settled = screen_programs(qp).cpu().numpy()
        self._status[:] = np.where(settled == Status.SOLVED, Status.INACCURATE, settled)

    @property
    def todo(self) -> Array:
        """The positions of the samples that need a solver."""
        return np.flatnonzero(self._status == Status.INACCURATE)

    def fail(self, i: int, status: Status) -> None:
        """Set the status of sample ``i``, for which the solver has no point."""
        self._status[i] = status

    def put(
        self,
        i: int,
        status: Status,
        x: Array,
        group: Group,
        equality: Array | float = 0.0,
        inequality: Array | float = 0.0,
        bound: Array | float = 0.0,
    ) -> None:
        """Write the point of sample ``i`` and its multipliers.

        Args:
            i: the position of the sample.
            status: the status that the solver claims.
            x: (n,) the point.
            group: the group of the sample.
            equality: (p,) multipliers of the equalities, with the signs of ``Duals``.
            inequality: (k,) multipliers of the k inequalities of the group. Negative numbers, which the tolerance of a
                solver permits, become zero.
            bound: (n,) multipliers of the bounds, with the signs of ``Duals``.
        """
        duals = self._candidate.duals
        self._status[i] = status
        self._candidate.x.numpy()[i] = x
        duals.equality.numpy()[i] = equality
        duals.inequality.numpy()[i] = 0.0
        duals.inequality.numpy()[i, group.rows] = np.maximum(inequality, 0.0)
        duals.bound.numpy()[i] = bound

    def prove(self, i: int, bound: float) -> None:
        """Record that the integer program ``i`` has no point with an objective below ``bound``."""
        assert self._candidate.bound is not None
        self._candidate.bound.numpy()[i] = bound

    def candidate(self) -> Candidate:
        """Return the candidate, on the device of the programs."""
        candidate: Candidate = self._candidate.to(self._device)
        return candidate
