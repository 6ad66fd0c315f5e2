"""The adapter of OSQP, an operator splitting method (ADMM). The samples of a ``Group`` share one factorisation."""

from __future__ import annotations

import numpy as np
import osqp
import scipy.sparse as sp

from pear.optimality.status import Status
from pear.problem.quadratic_program import QuadraticProgram
from pear.solvers import time_limit
from pear.solvers.adapters.batch_arrays import (
    Array,
    Group,
    ProgramArrays,
    group_row_limits,
    groups,
    row,
    stack_matrices,
)
from pear.solvers.adapters.candidate_rows import CandidateRows
from pear.solvers.candidate import Candidate

_RHO = 0.1
_ITERATIONS = 1  # the step size adapts after a number of iterations, never after a time: runs must repeat

_CLAIMS = {
    osqp.SolverStatus.OSQP_SOLVED: Status.SOLVED,
    osqp.SolverStatus.OSQP_PRIMAL_INFEASIBLE: Status.INFEASIBLE,
    osqp.SolverStatus.OSQP_DUAL_INFEASIBLE: Status.UNBOUNDED,
}
# With any other status, the point that OSQP returns is not an iterate but a placeholder.
_WITH_POINT = (
    osqp.SolverStatus.OSQP_SOLVED,
    osqp.SolverStatus.OSQP_SOLVED_INACCURATE,
    osqp.SolverStatus.OSQP_MAX_ITER_REACHED,
    osqp.SolverStatus.OSQP_TIME_LIMIT_REACHED,
)


def solve(qp: QuadraticProgram, tol: float) -> Candidate:
    """Solve every sample of the programs ``qp`` to the absolute and relative tolerance ``tol``."""
    batch = ProgramArrays.of(qp)
    candidates = CandidateRows(qp)
    for group in groups(batch, candidates.todo):
        _solve_osqp_group(batch, group, tol, candidates)
    return candidates.candidate()


def _solve_osqp_group(batch: ProgramArrays, group: Group, tol: float, candidates: CandidateRows) -> None:
    """Solve the samples of one group with one set-up of OSQP, and write their points to the candidates."""
    box = np.flatnonzero(group.bounded)
    n, p, k = group.H.shape[0], group.A.shape[0], group.G.shape[0]
    lower, upper = _osqp_limits(batch, group, box, int(group.members[0]))
    solver = osqp.OSQP()
    try:
        # OSQP scales the objective by the cost of its set-up. With zero, no sample depends on the first sample.
        solver.setup(
            P=sp.csc_matrix(group.H),
            q=np.zeros(n),
            A=sp.csc_matrix(stack_matrices(group.A, group.G, _osqp_bound_rows(group, box))),
            l=lower,
            u=upper,
            **_osqp_settings(tol, time_limit.time_per_sample(n, p + k + len(box))),
        )
    except osqp.OSQPException:  # H has a negative eigenvalue
        return
    for i in group.members.tolist():
        if batch.shared_limits:
            solver.update(q=batch.c[i])
        else:
            lower, upper = _osqp_limits(batch, group, box, i)
            solver.update(q=batch.c[i], l=lower, u=upper)
        result = solver.solve(raise_error=False)
        status = _CLAIMS.get(result.info.status_val, Status.INACCURATE)
        if result.info.status_val in _WITH_POINT:
            bound = np.zeros(n)
            bound[box] = result.y[p + k :]
            candidates.put(i, status, result.x, group, result.y[:p], result.y[p : p + k], bound)
        else:
            candidates.fail(i, status)
        if result.info.rho_updates:
            solver.update_settings(rho=_RHO)


def _osqp_bound_rows(group: Group, box: Array) -> Array:
    """Return the rows of the identity (k, n) for the k variables ``box``, which have a finite bound."""
    n = group.H.shape[0]
    return sp.eye_array(n, format="csr")[box] if sp.issparse(group.H) else np.eye(n)[box]


def _osqp_settings(tol: float, seconds: float) -> dict[str, float | bool]:
    """Return OSQP's settings for this tolerance and time limit."""
    return {
        "eps_abs": tol,
        "eps_rel": tol,
        "eps_prim_inf": min(tol, 1e-4),
        "eps_dual_inf": min(tol, 1e-4),
        "max_iter": 20_000,
        "time_limit": seconds,
        "rho": _RHO,
        "adaptive_rho": _ITERATIONS,
        "warm_starting": False,  # a start from the last sample would make candidates depend on the order
        "polishing": False,
        "verbose": False,
    }


def _osqp_limits(batch: ProgramArrays, group: Group, box: Array, i: int) -> tuple[Array, Array]:
    """Return the lower and upper limits of the rows [A; G; I] of sample ``i``.

    I has one row for each variable in ``box``.
    """
    lower, upper = group_row_limits(batch, group, i)
    return np.concatenate([lower, row(batch.lb, i)[box]]), np.concatenate([upper, row(batch.ub, i)[box]])
