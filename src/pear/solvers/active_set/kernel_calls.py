"""Calls of the batch kernel from Python, one function for each task, and conversion of its results to tensors."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray

from pear.compile import thread_pools
from pear.optimality.duals_and_active_sets import ActiveSet, Duals
from pear.solvers.active_set.kernel_arrays import (
    DECIDE,
    PROJECT,
    REGRET,
    SOLVE,
    SOLVED,
    START,
    Array,
    CompiledRegrets,
    CompiledSolutions,
    Index,
    ProgramPair,
    Programs,
    SampleCosts,
    SolutionTable,
    States,
    new_kernel_regrets,
    new_kernel_solutions,
    new_kernel_states,
)
from pear.solvers.active_set.kernel_threads import count_kernel_threads, kernel_threads_for_batch
from pear.solvers.active_set.program_packing import pack_program_pair

_NO_ROWS, _NO_VALUES = np.zeros((0, 0)), np.zeros(0)


def call_kernel_for_start(P: Programs) -> States:
    """Return the start of all samples that have no warm start: one feasible working set.

    The result depends on the constraints alone, so that no solution depends on the other samples of a batch. If
    samples have constraints of their own, the result has no rows, and the kernel finds a start for each sample.
    """
    n, rows = P.lb.shape[1], P.J.shape[1]
    if max(len(field) for field in (P.J, P.rhs, P.lb, P.ub)) > 1:
        return new_kernel_states(0, n, rows)
    states, first = new_kernel_states(1, n, rows), np.zeros(1, np.int64)
    outcome = new_kernel_solutions(1, n, P.equalities, rows - P.equalities)
    _call_kernel_without_regrets(
        START, P, SampleCosts(np.zeros((1, n)), _NO_ROWS, first, first), states, states, outcome
    )
    return states


def call_kernel_to_solve(
    P: Programs, cost: Array, at: Index, states: States, slots: Index, default: States, centred: bool = True
) -> CompiledSolutions:
    """Solve a batch, and return its solutions.

    Args:
        P: the programs.
        cost: (B, n) costs.
        at: (B,) the row of each sample in the fields of P that differ by sample.
        states: warm starts. Sample i starts from row ``slots[i]``, and its solution is written back to this row.
        slots: (B,) row numbers in ``states``.
        default: the start of samples that have no warm start; see ``call_kernel_for_start``.
        centred: whether multipliers that are not unique are chosen such that few of them are zero. The decisions do
            not depend on it.
    """
    outcome = new_kernel_solutions(len(cost), cost.shape[1], P.equalities, P.J.shape[1] - P.equalities)
    samples = SampleCosts(cost, _NO_ROWS, at, slots)
    _call_kernel_without_regrets(SOLVE if centred else DECIDE, P, samples, states, default, outcome)
    return outcome


def call_kernel_to_project(
    P: Programs, error: Array, at: Index, states: States, slots: Index
) -> tuple[Array, NDArray[np.bool_]]:
    """Project errors (B, n) at the solutions in ``states``; see ``call_kernel_to_solve`` for the other arguments.

    A projection does not converge if the objective is flat along a tangent direction, or if rounding prevents
    refinement. Only a rank-revealing factorisation can tell these two cases apart.

    Returns:
        (B, n) projections, and (B,) bool, True if the projection converged.
    """
    outcome, g = new_kernel_solutions(len(error), 0, 0, 0), np.empty(error.shape)
    _call_kernel_without_regrets(PROJECT, P, SampleCosts(error, _NO_ROWS, at, slots), states, states, outcome, g)
    return g, outcome.code == SOLVED


def call_kernel_for_regrets(
    pair: ProgramPair, samples: SampleCosts, table: SolutionTable, default: States, strength: float
) -> CompiledRegrets:
    """Return regrets and gradients of a batch; see ``batch_kernel.run_batch_kernel`` for the arguments.

    If ``samples`` has no slots, ``table`` must be a result of ``kernel_thread_table``.
    """
    (B, n), p = samples.predicted.shape, pair.decision.equalities
    results = new_kernel_regrets(B, n, p, pair.decision.J.shape[1] - p)
    _call_kernel(REGRET, pair, samples, table, default, strength, results)
    return results


def kernel_duals(outcome: CompiledSolutions) -> Duals:
    """Return the multipliers of the kernel's solutions as tensors."""
    return Duals(*map(torch.from_numpy, (outcome.equality, outcome.inequality, outcome.bound)))


def kernel_active_set(outcome: CompiledSolutions) -> ActiveSet:
    """Return the active sets of the kernel's solutions as tensors."""
    return ActiveSet(*map(torch.from_numpy, (outcome.rows, outcome.lower, outcome.upper)))


def _call_kernel_without_regrets(
    task: int,
    P: Programs,
    samples: SampleCosts,
    states: States,
    default: States,
    outcome: CompiledSolutions,
    g: Array = _NO_ROWS,
) -> None:
    """Run a task other than REGRET. The task reads and writes ``states``, and writes ``outcome`` and projections g."""
    table, results = SolutionTable(states, states, outcome, _NO_ROWS), CompiledRegrets(outcome, _NO_VALUES, g, _NO_ROWS)
    _call_kernel(task, pack_program_pair(P, P.Q), samples, table, default, 0.0, results)


def _call_kernel(
    task: int,
    pair: ProgramPair,
    samples: SampleCosts,
    table: SolutionTable,
    default: States,
    strength: float,
    results: CompiledRegrets,
) -> None:
    """Run a task for all samples, in several threads if the batch is large enough.

    Without OpenMP, the threads come from a pool. Each of them calls the kernel for a few samples at a time.
    """
    run_batch_kernel = _import_kernel()
    (B, n), rows = samples.predicted.shape, pair.decision.J.shape[1]
    count, team = count_kernel_threads(B, n, rows), kernel_threads_for_batch(B, n, rows)
    call = task, pair, samples, table, default, strength, results
    if team.threads == count:
        run_batch_kernel(*call, team, B)
        return
    parts = iter(range(0, B, team.step))

    def call_kernel_for_parts(worker: int) -> None:
        for first in parts:
            own = team._replace(turn=np.array([first, worker]))
            run_batch_kernel(*call, own, min(first + team.step, B))

    pool = thread_pools.shared_thread_pool(count, "active-set")
    for future in [pool.submit(call_kernel_for_parts, worker) for worker in range(count)]:
        future.result()


@cache
def _import_kernel() -> Callable[..., None]:
    """Return ``run_batch_kernel``. It is imported late because its module imports numba, which takes a moment."""
    from pear.solvers.active_set.batch_kernel import run_batch_kernel

    kernel: Callable[..., None] = run_batch_kernel
    return kernel
