"""The adapter of HiGHS, which solves LPs by the dual simplex method and MILPs by branch and cut."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event, Lock
from typing import Any

import highspy
import numpy as np
import scipy.sparse as sp

from pear.compile import thread_pools
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

_CLAIMS = {
    highspy.HighsModelStatus.kOptimal: Status.SOLVED,
    highspy.HighsModelStatus.kInfeasible: Status.INFEASIBLE,
    highspy.HighsModelStatus.kUnbounded: Status.UNBOUNDED,
    highspy.HighsModelStatus.kTimeLimit: Status.TIME_LIMIT,
    highspy.HighsModelStatus.kInterrupt: Status.TIME_LIMIT,
}
_HAS_POINT = (Status.SOLVED, Status.INACCURATE, Status.TIME_LIMIT)
_INTEGER_TOL = 1e-10  # the smallest value that HiGHS accepts


def solve(qp: QuadraticProgram, tol: float) -> Candidate:
    """Solve every sample of the linear or integer programs ``qp``.

    Integer programs are solved in threads and in scaled units, until the gap is proven to be zero. They stop at Ctrl-C
    or at the time limit.

    Args:
        qp: the programs.
        tol: the tolerance of LPs. Integer programs have the smallest tolerance that HiGHS accepts.
    """
    batch = ProgramArrays.of(qp)
    candidates = CandidateRows(qp)
    if batch.integer is None:
        _solve_highs_lps(batch, candidates, lambda: _new_highs(tol, qp.is_sparse))
    else:
        _solve_highs_milps(batch, candidates)
    return candidates.candidate()


def _solve_highs_lps(batch: ProgramArrays, candidates: CandidateRows, new_highs: Callable[[], highspy.Highs]) -> None:
    """Solve the LPs of the batch in threads, and write their points to the candidates.

    Every thread makes its own solver by ``new_highs``.
    """
    ones, todo, stop = np.ones(batch.c.shape[1]), candidates.todo, Event()

    def solve_highs_job(job: tuple[Group, sp.csc_matrix, Array]) -> None:
        group, matrix, members = job
        highs, units = new_highs(), MilpUnits(np.ones(matrix.shape[0]), ones)
        for position, i in enumerate(members.tolist()):
            if stop.is_set():
                return
            if position == 0 or not batch.shared_limits:
                highs.passModel(_highs_model_without_cost(batch, group, matrix, units, i))
            # HiGHS compares its limit with the time that it has spent on all samples
            seconds = highs.getRunTime() + time_limit.time_per_sample(*matrix.shape[::-1])
            _read_highs_solution(highs, group, i, _run_highs_for_cost(highs, batch.c[i], seconds), candidates)

    jobs = []
    for group in groups(batch, todo):
        matrix = sp.csc_matrix(stack_matrices(group.A, group.G))
        parts = thread_pools.split_for_threads(len(group.members)) if len(todo) > 1 else [slice(None)]
        jobs += [(group, matrix, group.members[part]) for part in parts]
    if len(jobs) == 1:
        solve_highs_job(jobs[0])
    else:
        thread_pools.run_in_threads(solve_highs_job, jobs, stop.set)


def _solve_highs_milps(batch: ProgramArrays, candidates: CandidateRows) -> None:
    """Solve the integer programs of the batch in threads, each within its share of the time that is left."""
    assert batch.integer is not None
    todo, seconds = candidates.todo, time_limit.time_left()
    clock = _HighsClock(
        seconds, len(todo), thread_pools.thread_count() if time_limit.has_even_time_shares() else len(todo)
    )
    jobs = []
    for group in groups(batch, todo):
        matrix = sp.csc_matrix(stack_matrices(group.A, group.G))
        units = MilpUnits.of(matrix, batch.integer)
        scaled = units.scaled(matrix)
        for part in thread_pools.split_for_threads(len(group.members)):
            jobs.append(_HighsMilpJob(batch, group, scaled, units, group.members[part].tolist(), clock, candidates))
    thread_pools.run_in_threads(_HighsMilpJob.run, jobs, clock.stop.set, seconds)


@dataclass
class _HighsClock:
    """The division of the time of one call among its samples.

    Attributes:
        seconds: the seconds for the whole call.
        waiting: the number of samples that have not begun.
        at_a_time: the number of samples that are solved at the same time and share the time evenly; the number of all
            samples if each sample may use all the time that is left.
        stop: set when all samples have to stop.
    """

    seconds: float
    waiting: int
    at_a_time: int
    stop: Event = field(default_factory=Event)
    _began: float = field(default_factory=time.monotonic)
    _lock: Lock = field(default_factory=Lock)

    def next_share(self) -> float:
        """Return the seconds for the next sample.

        The time that is left has to suffice for all waiting samples, of which ``at_a_time`` are solved in parallel. The
        threads of a call share the clock.
        """
        left = max(0.0, self._began + self.seconds - time.monotonic())
        with self._lock:
            share = left * min(1.0, self.at_a_time / max(1, self.waiting))
            self.waiting -= 1
        return share


@dataclass(frozen=True)
class _HighsMilpJob:
    """Integer programs of one group that one thread solves.

    Attributes:
        batch: the programs of the call.
        group: the group.
        matrix: the rows [A; G], scaled by ``units``.
        units: the scale factors of rows and variables.
        members: the positions of the programs in the batch.
        clock: the division of the time.
        candidates: receives the points. No other thread writes to the rows of these programs.
    """

    batch: ProgramArrays
    group: Group
    matrix: sp.csc_matrix
    units: MilpUnits
    members: list[int]
    clock: _HighsClock
    candidates: CandidateRows

    def run(self) -> None:
        """Solve the programs one after another."""
        highs = _new_highs(_INTEGER_TOL, presolve=True)
        highs.cbMipInterrupt.subscribe(self._interrupt)
        for position, i in enumerate(self.members):
            if position == 0 or not self.batch.shared_limits:
                highs.passModel(_highs_model_without_cost(self.batch, self.group, self.matrix, self.units, i))
            self._solve_one(highs, i, self.clock.next_share())

    def _interrupt(self, event: Any) -> None:
        """Interrupt HiGHS if all samples have to stop."""
        if self.clock.stop.is_set():
            event.interrupt()

    def _solve_one(self, highs: highspy.Highs, i: int, seconds: float) -> None:
        """Solve the integer program of sample ``i``, and write its point and proven bound to the candidates."""
        if seconds <= 0 or self.clock.stop.is_set():
            self.candidates.fail(i, Status.TIME_LIMIT)
            return
        cost = self.batch.c[i] * self.units.columns
        unit = milp_cost_unit(cost, 1.0)
        status = _run_highs_for_cost(highs, cost * unit, seconds)
        solution = highs.getSolution()
        if status not in _HAS_POINT or not solution.value_valid:
            self.candidates.fail(i, status)
            return
        self.candidates.put(i, status, np.asarray(solution.col_value) * self.units.columns, self.group)
        # HiGHS cuts off branches that are better by less than its tolerance, and scaled costs may be that small.
        hidden = _INTEGER_TOL if unit * np.abs(cost[cost != 0]).min(initial=math.inf) < 0.5 else 0.0
        self.candidates.prove(i, (highs.getInfo().mip_dual_bound - hidden) / unit)


def _new_highs(tol: float, presolve: bool) -> highspy.Highs:
    """Make a HiGHS solver with this tolerance, with or without presolve."""
    feasibility = min(max(tol, 1e-10), 1e-6 if presolve else 1e-4)
    highs = highspy.Highs()
    for name, value in {
        "output_flag": False,
        "threads": 1,
        "presolve": "choose" if presolve else "off",  # presolve doubles or triples the time of a small LP
        "primal_feasibility_tolerance": feasibility,
        "dual_feasibility_tolerance": feasibility,
        "mip_feasibility_tolerance": feasibility,
        "small_matrix_value": 1e-12,  # the smallest value that HiGHS accepts; smaller coefficients are dropped
        "mip_rel_gap": 0.0,
        "mip_abs_gap": 0.0,
    }.items():
        highs.setOptionValue(name, value)
    return highs


def _highs_model_without_cost(
    batch: ProgramArrays, group: Group, matrix: sp.csc_matrix, units: MilpUnits, i: int
) -> highspy.HighsLp:
    """Make the model of sample ``i`` with costs of zero, in scaled units.

    Args:
        batch: the programs.
        group: the group of the sample.
        matrix: the rows [A; G], scaled by ``units``.
        units: the scale factors of rows and variables.
        i: the position of the sample.
    """
    lower, upper = group_row_limits(batch, group, i)
    lp = highspy.HighsLp()
    lp.num_row_, lp.num_col_ = matrix.shape
    lp.col_cost_ = np.zeros(lp.num_col_)
    lp.col_lower_, lp.col_upper_ = row(batch.lb, i) / units.columns, row(batch.ub, i) / units.columns
    lp.row_lower_, lp.row_upper_ = lower * units.rows, upper * units.rows
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = matrix.indptr, matrix.indices, matrix.data
    if batch.integer is not None:
        kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
        lp.integrality_ = [kinds[int(is_integer)] for is_integer in batch.integer]
    return lp


def _run_highs_for_cost(highs: highspy.Highs, cost: Array, seconds: float) -> Status:
    """Solve the model for a cost (n,), within these seconds, and return the status that HiGHS claims.

    The solve begins without a basis, because the basis of another sample could decide between equal solutions. If
    HiGHS cannot tell whether the model is unbounded or infeasible, a second solve with costs of zero decides.
    """
    columns = np.arange(len(cost), dtype=np.int32)
    highs.setOptionValue("time_limit", seconds)
    highs.changeColsCost(len(cost), columns, cost)
    outcome = _run_highs(highs)
    if outcome == highspy.HighsModelStatus.kUnboundedOrInfeasible:
        highs.changeColsCost(len(cost), columns, np.zeros(len(cost)))
        without_cost = _CLAIMS.get(_run_highs(highs), Status.INACCURATE)
        return Status.UNBOUNDED if without_cost == Status.SOLVED else without_cost
    return _CLAIMS.get(outcome, Status.INACCURATE)


def _run_highs(highs: highspy.Highs) -> highspy.HighsModelStatus:
    """Run HiGHS on its model and return the model's status.

    If the run fails because another user of HiGHS has opened its thread pool with another size, the pool is reset, and
    HiGHS runs again.
    """
    highs.clearSolver()
    if highs.run() == highspy.HighsStatus.kError and highs.getModelStatus() == highspy.HighsModelStatus.kNotset:
        # HiGHS has one thread pool per process and refuses to run if someone opened it with another size.
        highspy.Highs.resetGlobalScheduler(True)
        highs.run()
    return highs.getModelStatus()


def _read_highs_solution(highs: highspy.Highs, group: Group, i: int, status: Status, candidates: CandidateRows) -> None:
    """Write the solution of sample ``i``, or only its status if HiGHS has no solution, to the candidates.

    The duals of HiGHS satisfy ``c = [A; G]ᵀ row_dual + col_dual``. The multipliers are the negatives of these duals.
    """
    solution = highs.getSolution()
    if status not in _HAS_POINT or not solution.value_valid:
        candidates.fail(i, status)
        return
    x, p = np.asarray(solution.col_value), group.A.shape[0]
    if not solution.dual_valid:
        candidates.put(i, status, x, group)
        return
    rows = -np.asarray(solution.row_dual)
    candidates.put(i, status, x, group, rows[:p], rows[p:], -np.asarray(solution.col_dual))
