"""The compiled active-set method as a backend like any other."""

from __future__ import annotations

import numpy as np
import torch

from pear.errors import UnknownSolverError
from pear.optimality.point import Duals, Status
from pear.problem.canonical import QuadraticProgram
from pear.problem.sparse import SparseProgram
from pear.solvers.active_set import batch
from pear.solvers.base import Candidate, empty_candidate


def solve(qp: QuadraticProgram, tol: float) -> Candidate:
    """Solve a batch of LPs or QPs; to rounding, whatever ``tol`` is.

    Programs that are too large for it, and those that it has to give up, come back as INACCURATE, without a point.
    """
    if isinstance(qp, SparseProgram):
        raise UnknownSolverError(
            "solver 'active-set' takes dense matrices only, and this problem is sparse; leave it to solver='auto', or "
            "pass dense matrices"
        )
    candidate = empty_candidate(qp.batch, qp.n, qp.p, qp.m, qp.c)
    if qp.batch and batch.supports(qp.n, qp.p + qp.m):
        device = qp.c.device
        rows = np.arange(qp.batch)
        states = batch.new_states(qp.batch, qp.n, qp.p + qp.m)
        cost = np.ascontiguousarray(qp.c.cpu().numpy())
        programs = batch.programs_of(qp)
        found = batch.solve(programs, cost, rows, states, rows, batch.default_start(programs))
        index = torch.from_numpy(np.flatnonzero(found.code == batch.SOLVED))
        duals = Duals(*(torch.from_numpy(v) for v in (found.equality, found.inequality, found.bound)))
        solved = torch.full((qp.batch,), int(Status.SOLVED), dtype=torch.int8)
        candidate.put(index.to(device), Candidate(torch.from_numpy(found.x), duals, solved)[index].to(device))
    return candidate
