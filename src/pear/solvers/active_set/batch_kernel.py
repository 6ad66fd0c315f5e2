"""``run_batch_kernel``, the one compiled function that Python calls for every task and every batch, and its tasks.

Numba compiles an entry point together with everything that it calls. The tasks call nearly the same functions, so that
one entry point for all tasks saves most of the time that compiling takes.
"""

from __future__ import annotations

import numpy as np

from pear.compile.jit import entry, fetch_add, in_threads, inner, refer, span
from pear.solvers.active_set import kernel_arrays as ix
from pear.solvers.active_set.basis_and_superbasics import refresh_basis_inverse
from pear.solvers.active_set.basis_starts import find_feasible_basis_start, save_basis_start
from pear.solvers.active_set.compiled_sizes import measure_compiled_curvature
from pear.solvers.active_set.error_projection import project_error_at_solution
from pear.solvers.active_set.kernel_arrays import (
    CompiledRegrets,
    ProgramPair,
    Programs,
    SampleCosts,
    SolutionTable,
    States,
    ThreadTeam,
    WorkMemory,
    Workspace,
)
from pear.solvers.active_set.sample_program import load_sample_norms, load_sample_program, select_sample_program
from pear.solvers.active_set.sample_regret import set_sample_regret
from pear.solvers.active_set.solution_check import mark_unchecked_solution
from pear.solvers.active_set.solve_sample import solve_sample_decision


@inner
def run_batch_worker(
    task: int,
    pair: ProgramPair,
    samples: SampleCosts,
    table: SolutionTable,
    default: States,
    strength: float,
    results: CompiledRegrets,
    team: ThreadTeam,
    count: int,
) -> None:
    """Run a task as one thread of a team. The thread takes a few samples at a time, until no sample is left.

    The arguments are those of ``run_batch_kernel``.
    """
    worker = fetch_add(team.turn, ix.WORKER, 1)
    w = refer(batch_workspace(team.memory, worker))
    first = fetch_add(team.turn, ix.SAMPLE, team.step)
    while first < count:
        for i in span(first, min(first + team.step, count)):
            if task == ix.REGRET:
                set_sample_regret(pair, samples, i, table, worker, default, strength, results, w)
            else:
                run_batch_task(task, pair.decision, samples, i, table, default, results, w)
            if results.outcome.code[i] == ix.GIVEN_UP:
                write_zero_batch_results(results, i)
        first = fetch_add(team.turn, ix.SAMPLE, team.step)


@inner
def run_batch_task(
    task: int,
    P: Programs,
    samples: SampleCosts,
    i: int,
    table: SolutionTable,
    default: States,
    results: CompiledRegrets,
    w: Workspace,
) -> None:
    """Run one of the tasks START, SOLVE, DECIDE and PROJECT for sample i; see ``run_batch_kernel``."""
    slot, at, cost, outcome = samples.slots[i], samples.at[i], samples.predicted[i], results.outcome
    D = refer(select_sample_program(P, P.Q, at))
    mark_unchecked_solution(outcome, i)
    if task == ix.PROJECT:
        measure_compiled_curvature(D, w)
        load_sample_norms(P, D, at, w)
        if project_error_at_solution(D, cost, table.predicted, slot, results.exact[i], w):
            outcome.code[i] = ix.SOLVED
    elif load_sample_program(P, D, cost, at, w):
        if task == ix.SOLVE or task == ix.DECIDE:
            solve_sample_decision(D, table.predicted, slot, default, outcome, i, task == ix.SOLVE, w)
        elif find_feasible_basis_start(D, w) and refresh_basis_inverse(D, w):  # once, and not by every sample
            save_basis_start(D, table.predicted, slot, np.bool_(True), w)


@inner
def batch_workspace(m: WorkMemory, worker: int) -> Workspace:
    """Return the memory of one worker as a ``Workspace``, whose fields are views of this memory."""
    v, k = m.v[worker], m.k[worker]
    return Workspace(
        *(v[0], v[1], v[2], v[3], v[4], v[5], v[6]),
        *(v[7], v[8], v[9], v[10]),
        *(v[11], v[12], v[13], v[14], v[15], v[16]),
        *(v[17], v[18], v[19], v[20], v[21], v[22]),
        *(k[0], k[1], k[2], k[3], k[4]),
        *(m.tally[worker], m.inverse[worker], m.scratch[worker], m.W[worker], m.L[worker], m.gram[worker]),
    )


@inner
def write_zero_batch_results(results: CompiledRegrets, k: int) -> None:
    """Write zeros to row k of the results, which belongs to a sample of status GIVEN_UP. The status stays."""
    outcome, no = results.outcome, np.bool_(False)
    for j in span(outcome.x.shape[1]):
        outcome.x[k, j] = outcome.bound[k, j] = 0.0
        outcome.lower[k, j] = outcome.upper[k, j] = outcome.weak_lower[k, j] = outcome.weak_upper[k, j] = no
    for j in span(outcome.equality.shape[1]):
        outcome.equality[k, j] = 0.0
    for j in span(outcome.inequality.shape[1]):
        outcome.inequality[k, j] = 0.0
        outcome.rows[k, j] = outcome.weak_rows[k, j] = no
    outcome.kkt_residual[k], outcome.weak[k] = 0.0, no
    if len(results.value) > 0:
        results.value[k] = 0.0
    for j in span(results.exact.shape[1]):
        results.exact[k, j] = 0.0
    for j in span(results.injected.shape[1]):
        results.injected[k, j] = 0.0


@entry
def run_batch_kernel(
    task: int,
    pair: ProgramPair,
    samples: SampleCosts,
    table: SolutionTable,
    default: States,
    strength: float,
    results: CompiledRegrets,
    team: ThreadTeam,
    count: int,
) -> None:
    """Run one task for the first ``count`` samples of a batch.

    =======  ==========================================================================================================
    START    find a feasible working set and keep it in ``table.predicted``, which stays empty if none is found
    SOLVE    solve the programs with predicted costs from the starts in ``table.predicted``; write ``results.outcome``
    DECIDE   as SOLVE, for calls that need decisions alone: multipliers that are not unique are not centred
    PROJECT  project the errors in ``samples.predicted`` at the solutions in ``table.predicted``; write the projections
             to ``results.exact``, and SOLVED to the code of the outcome if the projection succeeded
    REGRET   solve the programs with predicted and with true costs, then compute regret, projection and injection
    =======  ==========================================================================================================

    Args:
        task: START, SOLVE, DECIDE, PROJECT or REGRET.
        pair: the programs with the predicted objective. For REGRET, it also describes the true objective.
        samples: the costs of the samples; for PROJECT, the errors.
        table: warm starts and best decisions. Sample i reads and writes row ``samples.slots[i]``. For REGRET, a sample
            without a start for its predicted costs begins at its solution for the true costs. For REGRET, ``slots`` may
            also be empty. Nothing is kept then: sample i writes row i of ``table.best``, and each worker overwrites one
            row of ``table.predicted`` and of ``table.true`` again and again.
        default: the start of samples without a warm start, as States with one row; without rows, each sample finds a
            start from its constraints. The start must not depend on the samples of a batch, so that no result depends
            on the other samples.
        strength: β ≥ 0, the strength of the normal injection; see ``add_normal_component``. A negative number leaves
            the injection to the caller: ``results.injected`` is then the error of the objective's gradient.
        results: written, row i for sample i.
        team: the threads, the counter by which they share the samples, and memory for each thread.
        count: the number of samples.
    """
    inputs = refer(pair), refer(samples), refer(table), refer(default)
    in_threads(
        team.openmp, team.threads, run_batch_worker, (task, *inputs, strength, refer(results), refer(team), count)
    )
