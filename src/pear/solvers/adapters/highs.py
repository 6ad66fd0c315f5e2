"""HiGHS: dual simplex for LPs, branch and cut for MILPs. One model serves all samples that share A and G."""

from __future__ import annotations

import highspy
import numpy as np
import scipy.sparse as sp

from pear.optimality.point import Status
from pear.problem.canonical import QuadraticProgram
from pear.problem.sparse import SparseProgram
from pear.solvers.adapters.arrays import Answers, Batch, Group, groups, row, stack, time_limit
from pear.solvers.base import Candidate

_CLAIMS = {
    highspy.HighsModelStatus.kOptimal: Status.SOLVED,
    highspy.HighsModelStatus.kInfeasible: Status.INFEASIBLE,
    highspy.HighsModelStatus.kUnbounded: Status.UNBOUNDED,
}


def solve(qp: QuadraticProgram, tol: float) -> Candidate:
    """Solve every sample of the linear program ``qp``; integer programs to a proven gap of zero."""
    batch = Batch.of(qp)
    answers = Answers(qp)
    highs = _configured(tol, batch.integer is not None or isinstance(qp, SparseProgram))
    columns = np.arange(qp.n, dtype=np.int32)
    for group in groups(batch, answers.todo):
        matrix = sp.csc_matrix(stack(group.A, group.G))
        for position, i in enumerate(group.members.tolist()):
            if position == 0 or not batch.shared_limits:
                highs.passModel(_model(batch, group, matrix, i))
            highs.changeColsCost(qp.n, columns, batch.c[i])
            if batch.integer is None:  # its clock counts all samples together
                highs.setOptionValue("time_limit", highs.getRunTime() + time_limit(qp.n, matrix.shape[0]))
            status = _run(highs)
            if status in (Status.SOLVED, Status.INACCURATE):
                _read(highs, batch, group, i, status, answers)
            else:
                answers.fail(i, status)
    return answers.candidate()


def _configured(tol: float, hard: bool) -> highspy.Highs:
    # What comes out of an integer program is not repaired afterwards, so it is never solved loosely.
    feasibility = min(max(tol, 1e-10), 1e-6 if hard else 1e-4)
    highs = highspy.Highs()
    for name, value in {
        "output_flag": False,
        "threads": 1,
        "presolve": "choose" if hard else "off",  # on a small LP it doubles or triples the time
        "primal_feasibility_tolerance": feasibility,
        "dual_feasibility_tolerance": feasibility,
        "mip_feasibility_tolerance": feasibility,
        "mip_rel_gap": 0.0,
        "mip_abs_gap": 0.0,
    }.items():
        highs.setOptionValue(name, value)
    return highs


def _model(batch: Batch, group: Group, matrix: sp.csc_matrix, i: int) -> highspy.HighsLp:
    """The rows ``matrix`` = [A; G], their limits and the bounds of sample ``i``; the costs come later."""
    b, h = row(batch.b, i), row(batch.h, i)[group.rows]
    lp = highspy.HighsLp()
    lp.num_row_, lp.num_col_ = matrix.shape
    lp.col_cost_ = np.zeros(lp.num_col_)
    lp.col_lower_, lp.col_upper_ = row(batch.lb, i), row(batch.ub, i)
    lp.row_lower_ = np.concatenate([b, np.full(h.shape, -np.inf)])
    lp.row_upper_ = np.concatenate([b, h])
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = matrix.indptr, matrix.indices, matrix.data
    if batch.integer is not None:
        kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
        lp.integrality_ = [kinds[int(is_integer)] for is_integer in batch.integer]
    return lp


def _run(highs: highspy.Highs) -> Status:
    """Solve the model as it stands, from scratch: a basis left by another sample could decide among ties."""
    outcome = _outcome(highs)
    if outcome == highspy.HighsModelStatus.kUnboundedOrInfeasible:
        n = highs.getNumCol()
        highs.changeColsCost(n, np.arange(n, dtype=np.int32), np.zeros(n))
        without_cost = _CLAIMS.get(_outcome(highs), Status.INACCURATE)
        return Status.UNBOUNDED if without_cost == Status.SOLVED else without_cost
    return _CLAIMS.get(outcome, Status.INACCURATE)


def _outcome(highs: highspy.Highs) -> highspy.HighsModelStatus:
    highs.clearSolver()
    if highs.run() == highspy.HighsStatus.kError and highs.getModelStatus() == highspy.HighsModelStatus.kNotset:
        # HiGHS has one thread pool per process and refuses to run where someone opened it with another size.
        highspy.Highs.resetGlobalScheduler(True)
        highs.run()
    return highs.getModelStatus()


def _read(highs: highspy.Highs, batch: Batch, group: Group, i: int, status: Status, answers: Answers) -> None:
    """HiGHS has ``c = [A; G]ᵀ row_dual + col_dual``: our multipliers are its negatives."""
    solution = highs.getSolution()
    if not solution.value_valid:
        answers.fail(i, status)
        return
    x = np.asarray(solution.col_value)
    if batch.integer is not None:
        answers.prove(i, highs.getInfo().mip_dual_bound)
    if batch.integer is not None or not solution.dual_valid:
        answers.put(i, status, x, group)
        return
    p = group.A.shape[0]
    rows = -np.asarray(solution.row_dual)
    answers.put(i, status, x, group, rows[:p], rows[p:], -np.asarray(solution.col_dual))
