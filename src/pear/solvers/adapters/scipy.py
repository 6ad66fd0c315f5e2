"""The adapter of SciPy: ``linprog`` for LPs and ``milp`` for MILPs, which every installation has."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

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
from pear.solvers.adapters.milp_units import MilpUnits, milp_cost_unit
from pear.solvers.candidate import Candidate

if TYPE_CHECKING:
    import scipy.optimize  # takes long; SciPy imports it when it is first used
    from scipy.optimize import OptimizeResult

_LEAST_COST = 2.0**10  # costs are scaled up, because milp cuts off branches that are better by less than 1e-6
_UNCLEAR = 4  # numerical trouble, or "unbounded or infeasible"
_CLAIMS = {0: Status.SOLVED, 2: Status.INFEASIBLE, 3: Status.UNBOUNDED}


def solve(qp: QuadraticProgram, tol: float) -> Candidate:
    """Solve every sample of the linear or integer programs ``qp``.

    Args:
        qp: the programs.
        tol: the tolerance of LPs. The tolerance of ``milp`` is always 1e-6.
    """
    batch = ProgramArrays.of(qp)
    candidates = CandidateRows(qp)
    waiting = len(candidates.todo)
    for group in groups(batch, candidates.todo):
        for i in group.members.tolist():
            if batch.integer is None:
                _solve_scipy_lp(batch, group, i, tol, candidates)
            else:
                shares = waiting if time_limit.has_even_time_shares() else 1
                _solve_scipy_milp(batch, group, i, time_limit.time_left() / shares, candidates)
            waiting -= 1
    return candidates.candidate()


def solve_with_linprog(
    c: Array, A: Any, b: Array, G: Any, h: Array, lb: Array, ub: Array, **options: Any
) -> OptimizeResult:
    """Solve ``min cᵀx, Ax = b, Gx ≤ h, lb ≤ x ≤ ub`` by ``linprog`` of SciPy, which runs HiGHS.

    Args:
        c, lb, ub: (n,) costs and bounds.
        A, b: (p, n), dense or sparse, and (p,).
        G, h: (m, n), dense or sparse, and (m,).
        **options: options of HiGHS.
    """
    inequalities = {"A_ub": G, "b_ub": h} if G.shape[0] else {}
    equalities = {"A_eq": A, "b_eq": b} if A.shape[0] else {}
    bounds = np.column_stack([lb, ub])
    return scipy.optimize.linprog(c, **inequalities, **equalities, bounds=bounds, method="highs", options=options)


def _solve_scipy_lp(batch: ProgramArrays, group: Group, i: int, tol: float, candidates: CandidateRows) -> None:
    """Solve the LP of sample ``i`` by ``linprog``, and write its point and multipliers to the candidates."""
    b, h, lb, ub = (row(field, i) for field in (batch.b, batch.h, batch.lb, batch.ub))
    feasibility = min(max(tol, 1e-10), 1e-4)
    options: dict[str, Any] = {
        "primal_feasibility_tolerance": feasibility,
        "dual_feasibility_tolerance": feasibility,
        "time_limit": time_limit.time_per_sample(len(lb), group.A.shape[0] + group.G.shape[0]),
    }
    program = batch.c[i], group.A, b, group.G, h[group.rows], lb, ub
    result, status = _run_scipy_twice(lambda presolve: solve_with_linprog(*program, presolve=presolve, **options))
    if status != Status.SOLVED:  # linprog then returns no point, or no multipliers
        candidates.fail(i, status)
        return
    # The marginals are derivatives of the optimal value by the right-hand sides; multipliers are their negatives.
    bound = -(result.lower.marginals + result.upper.marginals)
    candidates.put(i, status, result.x, group, -result.eqlin.marginals, -result.ineqlin.marginals, bound)


def _solve_scipy_milp(batch: ProgramArrays, group: Group, i: int, seconds: float, candidates: CandidateRows) -> None:
    """Solve the MILP of sample ``i`` by ``milp``, and write its point and proven bound to the candidates."""
    assert batch.integer is not None
    matrix = stack_matrices(group.A, group.G)
    units = MilpUnits.of(matrix, batch.integer)
    lower, upper = (limits * units.rows for limits in group_row_limits(batch, group, i))
    cost = batch.c[i] * units.columns
    unit = milp_cost_unit(cost, _LEAST_COST)
    result, status = _run_scipy_twice(
        lambda presolve: scipy.optimize.milp(
            cost * unit,
            integrality=batch.integer,
            bounds=scipy.optimize.Bounds(row(batch.lb, i) / units.columns, row(batch.ub, i) / units.columns),
            constraints=scipy.optimize.LinearConstraint(units.scaled(matrix), lower, upper),
            options={"mip_rel_gap": 0.0, "presolve": presolve, "time_limit": seconds},
        )
    )
    if result.x is None or status not in (Status.SOLVED, Status.INACCURATE):
        candidates.fail(i, status)
    else:
        candidates.put(i, status, result.x * units.columns, group)
        candidates.prove(i, result.mip_dual_bound / unit)


def _run_scipy_twice(run: Callable[[bool], OptimizeResult]) -> tuple[OptimizeResult, Status]:
    """Call ``run(presolve)`` with True, and again with False if the status after the first call is unclear.

    Returns:
        The result of SciPy, and the status that SciPy claims.
    """
    result = run(True)
    if result.status == _UNCLEAR:
        result = run(False)
    return result, _CLAIMS.get(result.status, Status.INACCURATE)
