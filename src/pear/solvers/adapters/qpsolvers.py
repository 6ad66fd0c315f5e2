"""The adapter of qpsolvers, a package that calls DAQP, PIQP, Clarabel, ProxQP and many other solvers."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import qpsolvers
import scipy.sparse as sp
from qpsolvers.exceptions import ProblemError, SolverError

from pear.errors import UnknownSolverError
from pear.optimality.status import Status
from pear.problem.quadratic_program import QuadraticProgram
from pear.solvers import time_limit
from pear.solvers.adapters.batch_arrays import Array, Group, ProgramArrays, groups, row
from pear.solvers.adapters.candidate_rows import CandidateRows
from pear.solvers.candidate import Candidate

_FOUR_TOLERANCES = ("eps_abs", "eps_rel", "eps_duality_gap_abs", "eps_duality_gap_rel")
# One accuracy and one limit, as options of each solver. A solver that is not listed runs with its defaults.
_OPTIONS: dict[str, Callable[[float], dict[str, Any]]] = {
    # Below 1e-7 DAQP rejects good vertices of degenerate programs.
    "daqp": lambda tol: {"primal_tol": max(tol, 1e-7), "dual_tol": max(tol, 1e-9)},
    "piqp": lambda tol: dict.fromkeys(_FOUR_TOLERANCES, tol),
    "clarabel": lambda tol: {"tol_feas": tol, "tol_gap_abs": tol, "tol_gap_rel": tol, "max_threads": 1},
    # Without the gap ProxQP stops far from the optimum; its default rho of 1e-6 lets flat programs look infeasible.
    "proxqp": lambda tol: {**dict.fromkeys(_FOUR_TOLERANCES, tol), "check_duality_gap": True, "rho": 1e-2},
    "osqp": lambda tol: {"eps_abs": tol, "eps_rel": tol},
}
_LIMITS: dict[str, Callable[[int, int], dict[str, Any]]] = {
    "daqp": lambda n, rows: {"iter_limit": min(time_limit.iteration_limit_per_sample(n, rows), 10_000)},
    "piqp": lambda n, rows: {"max_iter": min(time_limit.iteration_limit_per_sample(n, rows), 250)},
    "clarabel": lambda n, rows: {"time_limit": time_limit.time_per_sample(n, rows)},
    # An iteration takes up to 1,500 steps. For unbounded programs, ProxQP takes as many iterations as it may.
    "proxqp": lambda n, rows: {"max_iter": min(max(time_limit.iteration_limit_per_sample(n, rows) // 1500, 20), 100)},
    "osqp": lambda n, rows: {"time_limit": time_limit.time_per_sample(n, rows)},
}

# Statuses that solvers report for failures. ProxQP is missing on purpose: at its fixed threshold it calls feasible
# programs with large costs infeasible. DAQP is missing because qpsolvers does not pass on its status.
_CLAIMS = {
    "Status.PIQP_PRIMAL_INFEASIBLE": Status.INFEASIBLE,
    "Status.PIQP_DUAL_INFEASIBLE": Status.UNBOUNDED,
    "PrimalInfeasible": Status.INFEASIBLE,
    "DualInfeasible": Status.UNBOUNDED,
}


def solve(qp: QuadraticProgram, tol: float, name: str) -> Candidate:
    """Solve every sample of ``qp`` to the accuracy ``tol`` with the solver that qpsolvers calls ``name``."""
    if name not in qpsolvers.available_solvers:
        raise UnknownSolverError(
            f"qpsolvers has no solver '{name}' here; it has {', '.join(qpsolvers.available_solvers)}. "
            f"If qpsolvers supports '{name}', install its package"
        )
    if qp.is_sparse and name not in qpsolvers.sparse_solvers:
        raise UnknownSolverError(
            f"solver '{name}' takes dense matrices only, and this problem is sparse; "
            "use auto, interior-point, osqp, piqp or clarabel"
        )
    batch = ProgramArrays.of(qp)
    candidates = CandidateRows(qp)
    options = _OPTIONS[name](tol) | _LIMITS[name](qp.n, qp.p + qp.m) if name in _OPTIONS else {}
    with warnings.catch_warnings():
        # The status of the sample reports the failure.
        warnings.filterwarnings("ignore", message=".*terminated with status", category=UserWarning)
        for group in groups(batch, candidates.todo):
            _solve_qpsolvers_group(batch, group, name, options, tol, candidates)
    return candidates.candidate()


def _solve_qpsolvers_group(
    batch: ProgramArrays, group: Group, name: str, options: dict[str, Any], tol: float, candidates: CandidateRows
) -> None:
    """Solve the samples of one group with the solver ``name``, and write their points to the candidates."""
    dense = name in qpsolvers.dense_solvers and not sp.issparse(group.H)
    matrix = np.ascontiguousarray if dense else sp.csc_matrix
    p, k, bounded = group.A.shape[0], group.G.shape[0], bool(group.bounded.any())
    # qpsolvers solves programs without constraints by least squares; an empty row makes it call the solver.
    vacuous = not dense and not (p or k or bounded)
    H, A = matrix(group.H), matrix(group.A)
    G = matrix(group.G) if not vacuous else sp.csc_matrix((1, group.H.shape[0]))
    for i in group.members.tolist():
        force = _qpsolvers_cost_unit(batch.c[i], group)
        problem = qpsolvers.Problem(
            P=H,
            q=batch.c[i] / force,
            G=G if k or vacuous else None,
            h=np.ones(1) if vacuous else row(batch.h, i)[group.rows] if k else None,
            A=A if p else None,
            b=row(batch.b, i) if p else None,
            lb=row(batch.lb, i) if bounded else None,
            ub=row(batch.ub, i) if bounded else None,
        )
        try:
            solution = qpsolvers.solve_problem(problem, name, **options)
        except (ProblemError, SolverError, ValueError):  # the solver refuses this sample: H is singular, for example
            continue
        status = Status.SOLVED if solution.found else _CLAIMS.get(_read_qpsolvers_status(solution), Status.INACCURATE)
        if solution.x is None or status not in (Status.SOLVED, Status.INACCURATE):
            candidates.fail(i, status)
            continue
        if status == Status.SOLVED and not _is_qpsolvers_point_feasible(batch, group, i, solution.x, 100 * tol):
            status = Status.INACCURATE
        y, z, w = (
            _read_qpsolvers_multipliers(values, size, force)
            for values, size in ((solution.y, p), (solution.z, k), (solution.z_box, len(solution.x)))
        )
        candidates.put(i, status, solution.x, group, equality=y, inequality=z, bound=w)


def _qpsolvers_cost_unit(c: Array, group: Group) -> float:
    """Return the number by which the objective is divided: for an LP, the largest absolute cost.

    The number is 1 if H is not zero or if all costs are zero. Solvers add curvature of a fixed size to an H of zeros.
    Its effect depends on the size of the costs. The costs of LPs are therefore scaled to size one.
    """
    curved = group.H.nnz if sp.issparse(group.H) else group.H.any()
    peak = 0.0 if curved else float(np.abs(c).max(initial=0.0))
    return peak if peak > 0 else 1.0


def _read_qpsolvers_multipliers(values: Any, size: int, force: float) -> Array:
    """Return the multipliers (size,) of the program: ``force`` times those of the solver.

    The result is zero if the solver has returned none.
    """
    return np.zeros(size) if values is None or not len(values) else force * np.asarray(values)[:size]


def _read_qpsolvers_status(solution: qpsolvers.Solution) -> str:
    """Return the status that the solver has reported; empty if qpsolvers does not return it."""
    extras = solution.extras
    return str(extras["info"].status if "info" in extras else extras.get("status", ""))


def _is_qpsolvers_point_feasible(batch: ProgramArrays, group: Group, i: int, x: Array, tol: float) -> bool:
    """Return whether x (n,) is feasible to ``tol``.

    Some solvers claim success although equalities contradict each other.
    """
    b, h, lb, ub = (row(field, i) for field in (batch.b, batch.h, batch.lb, batch.ub))

    def small(excess: Array, matrix: Array, rhs: Array) -> bool:
        return bool(np.all(excess <= tol * (1.0 + np.abs(rhs) + np.abs(matrix) @ np.abs(x))))

    equalities = small(np.abs(group.A @ x - b), group.A, b)
    inequalities = small(group.G @ x - h[group.rows], group.G, h[group.rows])
    margin = tol * (1.0 + np.abs(x))
    return equalities and inequalities and bool(np.all((x >= lb - margin) & (x <= ub + margin)))
