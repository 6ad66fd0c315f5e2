"""The binary solver: it groups 0-1 programs by plan and searches for their best selections in threads."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from pear.compile import thread_pools
from pear.optimality.program_screen import screen_programs
from pear.optimality.status import Status
from pear.problem.quadratic_program import QuadraticProgram
from pear.solvers import time_limit
from pear.solvers.adapters.batch_arrays import ProgramArrays
from pear.solvers.binary.binary_plan import (
    BinaryPlan,
    BinaryResult,
    group_by_binary_plan,
)
from pear.solvers.binary.selection_search import NOTHING, PROVEN, SPENT, Ints, SelectionSearch, selection_search_nodes
from pear.solvers.binary.tightened_rows import Array
from pear.solvers.candidate import Candidate, empty_candidate

_SMALL = 50_000  # the largest number of coefficients; larger programs go to branch and cut
_STATUS = {PROVEN: Status.SOLVED, SPENT: Status.INACCURATE, NOTHING: Status.INFEASIBLE}


def supports(qp: QuadraticProgram) -> bool:
    """Return whether the programs are dense, linear and small, with integer variables only.

    ``solve`` gives up a program in which some variable has more than two values, or every variable only one.
    """
    if qp.is_sparse or qp.integer is None:
        return False
    return bool(qp.integer.all()) and qp.is_linear and (qp.p + qp.m) * qp.n <= _SMALL


def solve(qp: QuadraticProgram, tol: float) -> Candidate:
    """Solve a batch of 0-1 programs with proofs of optimality.

    Programs that this solver does not take or gives up have the status INACCURATE and no point.

    Args:
        qp: the programs.
        tol: ignored, because solutions are exact.
    """
    found = empty_candidate(qp.batch, qp.n, qp.p, qp.m, like=qp.c.detach().cpu())
    found = replace(found, bound=torch.full((qp.batch,), torch.nan, dtype=torch.float64))
    for multipliers in (found.duals.equality, found.duals.inequality, found.duals.bound):
        multipliers.zero_()
    if qp.batch and supports(qp):
        _solve_binary_programs(qp, found)
    result: Candidate = found.to(qp.c.device)
    return result


def _solve_binary_programs(qp: QuadraticProgram, found: Candidate) -> None:
    """Solve the programs, and write points, statuses and bounds into the candidate ``found``."""
    assert found.bound is not None
    batch, settled = ProgramArrays.of(qp), screen_programs(qp).cpu().numpy()
    x, status, bound = found.x.numpy(), found.status.numpy(), found.bound.numpy()
    status[:] = np.where(settled == Status.SOLVED, Status.INACCURATE, settled)
    low, high = BinaryPlan.whole_bounds(batch.lb, batch.ub)
    takes = (status == Status.INACCURATE) & (high - low <= 1).all(1) & (high > low).any(1)
    for plan, members, answers in _answer_by_binary_plan(batch, np.flatnonzero(takes)):
        status[members] = [_STATUS[answer.outcome] for answer in answers]
        decisions = [(i, *answer) for i, answer in zip(members.tolist(), answers, strict=True) if answer.bits]
        if decisions:
            proven, bits, most, _ = zip(*decisions, strict=True)
            x[proven, :] = plan.low
            x[np.ix_(proven, plan.free)] += BinaryPlan.unpack_bits(bits, len(plan.free))
            bound[list(proven)] = batch.c[list(proven)] @ plan.low - most


class _BinaryJob(NamedTuple):
    """Programs of one plan that one thread solves.

    Attributes:
        plan: the plan of their constraints.
        keys: the bytes of the values of each program.
        values: (B, k) the values of the k free variables in B programs.
        starts: (B, k) selections to start from; None if there are none.
        budget: (1,) the number of nodes that each search may visit; 0 stops the searches.
    """

    plan: BinaryPlan
    keys: list[bytes]
    values: Array
    starts: Array | None
    budget: Ints

    def run(self) -> dict[bytes, BinaryResult]:
        """Search for the best selections, and return the results by key."""
        if not self.plan.possible:
            return dict.fromkeys(self.keys, BinaryResult(b"", np.nan, NOTHING))
        found = SelectionSearch(self.values, self.plan.rows, self.starts, self.budget).run()
        parts = zip(self.keys, BinaryPlan.pack_bits(found.z), found.most.tolist(), found.outcome.tolist(), strict=True)
        return {key: BinaryResult(bits if how == PROVEN else b"", most, how) for key, bits, most, how in parts}


def _answer_by_binary_plan(
    batch: ProgramArrays, todo: NDArray[np.intp]
) -> list[tuple[BinaryPlan, NDArray[np.intp], list[BinaryResult]]]:
    """Solve the samples at the positions ``todo``.

    Returns:
        For each plan: the plan, the positions of its samples, and one result per sample.
    """
    groups, jobs = [], []
    for plan, members in group_by_binary_plan(batch, todo):
        values = -batch.c[members][:, plan.free] + 0.0  # −0.0 is 0.0
        keys = [value.tobytes() for value in values]
        answers = dict(zip(keys, plan.answers.find(keys), strict=True))
        budget = selection_search_nodes(plan.rows)
        groups.append((plan, members, keys, answers, budget))
        new = list({key: i for i, key in enumerate(keys) if answers[key] is None}.values())
        starts = plan.starts(values[new]) if new else None
        for part in thread_pools.split_for_threads(len(new)):
            start = None if starts is None else starts[part]
            jobs.append(_BinaryJob(plan, [keys[i] for i in new[part]], values[new[part]], start, budget))
    found: dict[bytes, dict[bytes, BinaryResult]] = defaultdict(dict)
    for job, result in zip(jobs, _run_binary_jobs(jobs), strict=True):
        found[job.plan.key] |= result
    for plan, _, _, answers, budget in groups:
        if new_answers := found.get(plan.key):
            # the result of a search that was stopped is not kept, because the next search may succeed
            plan.keep({key: a for key, a in new_answers.items() if a.outcome != SPENT or budget[0] > 0})
            answers.update(new_answers)
    return [(plan, members, [answers[key] for key in keys]) for plan, members, keys, answers, _ in groups]


def _run_binary_jobs(jobs: list[_BinaryJob]) -> list[dict[bytes, BinaryResult]]:
    """Run all jobs in threads, within half of the time that is left, and return their results.

    The other half is for solvers by branch and cut.
    """

    def stop() -> None:
        for job in jobs:
            job.budget[0] = 0

    return thread_pools.run_in_threads(_BinaryJob.run, jobs, stop, 0.5 * time_limit.time_left())
