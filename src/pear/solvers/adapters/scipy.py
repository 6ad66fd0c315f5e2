"""SciPy: ``linprog`` for LPs and ``milp`` for MILPs, the fallback that every installation has."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.optimize

from pear.optimality.duals_and_active_sets import Status
from pear.problem.quadratic_program import QuadraticProgram
from pear.solvers import time_limit
from pear.solvers.adapters.batch_arrays import CandidateRows, Group, ProgramArrays, groups, row, stack
from pear.solvers.adapters.milp_units import MilpUnits, cost_unit
from pear.solvers.candidate import Candidate

_LEAST_COST = 2.0**10  # costs are scaled up, because milp cuts off branches that are better by less than 1e-6
_UNCLEAR = 4  # numerical trouble, or "unbounded or infeasible"
_CLAIMS = {0: Status.SOLVED, 2: Status.INFEASIBLE, 3: Status.UNBOUNDED}


def solve(qp: QuadraticProgram, tol: float) -> Candidate:
    """Solve every sample of the linear program ``qp``. ``milp`` has no tolerance to set: its own is 1e-6."""
    batch = ProgramArrays.of(qp)
    candidates = CandidateRows(qp)
    waiting = len(candidates.todo)
    for group in groups(batch, candidates.todo):
        for i in group.members.tolist():
            if batch.integer is None:
                _solve_lp(batch, group, i, tol, candidates)
            else:
                _solve_milp(batch, group, i, time_limit.seconds_left() / waiting, candidates)
            waiting -= 1
    return candidates.candidate()


def _solve_lp(batch: ProgramArrays, group: Group, i: int, tol: float, candidates: CandidateRows) -> None:
    feasibility = min(max(tol, 1e-10), 1e-4)

    def run(presolve: bool) -> Any:
        return scipy.optimize.linprog(
            batch.c[i],
            A_ub=group.G,
            b_ub=row(batch.h, i)[group.rows],
            A_eq=group.A,
            b_eq=row(batch.b, i),
            bounds=np.column_stack([row(batch.lb, i), row(batch.ub, i)]),
            method="highs",
            options={
                "presolve": presolve,
                "primal_feasibility_tolerance": feasibility,
                "dual_feasibility_tolerance": feasibility,
                "time_limit": time_limit.seconds_per_sample(len(batch.c[i]), group.A.shape[0] + group.G.shape[0]),
            },
        )

    result = run(presolve=True)
    if result.status == _UNCLEAR:
        result = run(presolve=False)
    status = _CLAIMS.get(result.status, Status.INACCURATE)
    if status != Status.SOLVED:  # linprog then returns no point, or no multipliers
        candidates.fail(i, status)
        return
    # Its marginals are derivatives of the optimal value by the right-hand sides, our multipliers their negatives.
    bound = -(result.lower.marginals + result.upper.marginals)
    candidates.put(i, status, result.x, group, -result.eqlin.marginals, -result.ineqlin.marginals, bound)


def _solve_milp(batch: ProgramArrays, group: Group, i: int, seconds: float, candidates: CandidateRows) -> None:
    assert batch.integer is not None
    matrix = stack(group.A, group.G)
    units = MilpUnits.of(matrix, batch.integer)
    b, h = row(batch.b, i), row(batch.h, i)[group.rows]
    lower, upper = np.concatenate([b, np.full(h.shape, -np.inf)]) * units.rows, np.concatenate([b, h]) * units.rows
    cost = batch.c[i] * units.columns
    unit = cost_unit(cost, _LEAST_COST)

    def run(presolve: bool) -> Any:
        return scipy.optimize.milp(
            cost * unit,
            integrality=batch.integer,
            bounds=scipy.optimize.Bounds(row(batch.lb, i) / units.columns, row(batch.ub, i) / units.columns),
            constraints=scipy.optimize.LinearConstraint(units.scaled(matrix), lower, upper),
            options={"mip_rel_gap": 0.0, "presolve": presolve, "time_limit": seconds},
        )

    result = run(presolve=True)
    if result.status == _UNCLEAR:
        result = run(presolve=False)
    status = _CLAIMS.get(result.status, Status.INACCURATE)
    if result.x is None or status not in (Status.SOLVED, Status.INACCURATE):
        candidates.fail(i, status)
    else:
        candidates.put(i, status, result.x * units.columns, group)
        candidates.prove(i, result.mip_dual_bound / unit)
