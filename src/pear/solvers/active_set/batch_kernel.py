"""``run``, the one compiled function that Python calls for every task and every batch, and the tasks themselves.

There is only one entry point, because each would be compiled with everything that it calls, and the tasks share nearly
all of that.
"""

from __future__ import annotations

import math

import numpy as np

from pear.compile.jit import entry, fetch_add, in_threads, inner, refer, span
from pear.optimality.rule import NEGLIGIBLE
from pear.solvers.active_set import kernel_arrays as ix
from pear.solvers.active_set import solve_sample
from pear.solvers.active_set.dual_solution import project_dual, restore_factor
from pear.solvers.active_set.kernel_arrays import (
    Array,
    CompiledRegrets,
    CompiledSolutions,
    ProgramData,
    ProgramPair,
    Programs,
    SampleCosts,
    SolutionTable,
    States,
    ThreadTeam,
    WorkMemory,
    Workspace,
)
from pear.solvers.active_set.program_products import subtract_rows
from pear.solvers.active_set.solution_check import accept_centred_multipliers, mark_working_set, write_solution
from pear.solvers.active_set.tangent_space import project_error
from pear.solvers.active_set.working_set import hold_tight_constraints, set_superbasic_columns


@inner
def run_worker(
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
    """Run a task as one of the threads of a team: take a few samples at a time until none is left."""
    worker = fetch_add(team.turn, ix.WORKER, 1)
    w = refer(worker_workspace(team.memory, worker))
    first = fetch_add(team.turn, ix.SAMPLE, team.step)
    while first < count:
        for i in span(first, min(first + team.step, count)):
            if task == ix.REGRET:
                set_regret(pair, samples, i, table, worker, default, strength, results, w)
            else:
                run_task(task, pair.decision, samples, i, table, default, results, w)
            if results.outcome.code[i] == ix.GIVEN_UP:
                write_zero_results(results, i)
        first = fetch_add(team.turn, ix.SAMPLE, team.step)


@inner
def run_task(
    task: int,
    P: Programs,
    samples: SampleCosts,
    i: int,
    table: SolutionTable,
    default: States,
    results: CompiledRegrets,
    w: Workspace,
) -> None:
    """Run a task other than REGRET for one sample."""
    slot, at, cost, outcome = samples.slots[i], samples.at[i], samples.predicted[i], results.outcome
    D = refer(solve_sample.select_program(P, P.Q, at))
    mark_given_up(outcome, i)
    if task == ix.PROJECT:
        solve_sample.measure_curvature(D, w)
        solve_sample.load_norms(P, D, at, w)
        if project_at_solution(D, cost, table.predicted, slot, results.exact[i], w):
            outcome.code[i] = ix.SOLVED
    elif solve_sample.load_program(P, D, cost, at, w):
        if task == ix.SOLVE or task == ix.DECIDE:
            solve_decision(D, table.predicted, slot, default, outcome, i, task == ix.SOLVE, w)
        elif solve_sample.find_feasible_start(D, w) and solve_sample.refresh_inverse(D, w):
            solve_sample.save_start(D, table.predicted, slot, np.bool_(True), w)


@inner
def worker_workspace(m: WorkMemory, worker: int) -> Workspace:
    """Return the memory of one worker as a ``Workspace``, which has a name for every row."""
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
def solve_decision(
    D: ProgramData,
    states: States,
    slot: int,
    default: States,
    outcome: CompiledSolutions,
    i: int,
    centred: bool,
    w: Workspace,
) -> None:
    """Solve the loaded sample.

    Where multipliers are not unique, and ``centred`` is True, the result has some with few zeros. Only the primal
    method looks for them: it solves again where the dual method has left a tight constraint without a multiplier.
    """
    if solve_sample.solve_by_dual(D, states, slot, default, np.int64(0), outcome, i, w):
        if not (centred and outcome.weak[i]):
            return
        mark_given_up(outcome, i)
    code = solve_sample.solve_from(D, states, slot, default, np.int64(0), w)
    if code == ix.CLOSE:
        mark_working_set(D, w)
        write_solution(D, outcome, i, w)
        outcome.code[i] = code
    elif code == ix.SOLVED:
        held = hold_tight_constraints(w)
        if not centred or accept_centred_multipliers(D, w):
            solve_sample.write_and_keep(D, states, slot, outcome, i, held, w)


@inner
def project_at_solution(D: ProgramData, error: Array, states: States, slot: int, g: Array, w: Workspace) -> bool:
    """Project an error at the solution in ``states[slot]``; False where there is no solution or no projection."""
    if states.has_start[slot] == ix.DUAL_START:
        restore_factor(D, states, slot, w)
        return project_dual(D, error, g, w)
    if states.has_start[slot] != ix.BASIS_START:
        return False
    solve_sample.load_start(D, states, slot, w)
    set_superbasic_columns(D, w)
    return project_error(D, error, g, w)


@inner
def set_regret(
    pair: ProgramPair,
    samples: SampleCosts,
    i: int,
    table: SolutionTable,
    worker: int,
    default: States,
    strength: float,
    results: CompiledRegrets,
    w: Workspace,
) -> None:
    """Solve both problems of a sample, and write its regret and gradient."""
    kept = len(samples.slots) > 0
    slot = samples.slots[i] if kept else i
    row = slot if kept else worker
    if not kept:
        table.true.has_start[row] = table.predicted.has_start[row] = 0
    P, at, cost, true, outcome = pair.decision, samples.at[i], samples.predicted[i], samples.true[i], results.outcome
    D, T = refer(solve_sample.select_program(P, P.Q, at)), refer(solve_sample.select_program(P, pair.true_Q, at))
    mark_given_up(outcome, i)
    if not (table.best.code[slot] == ix.SOLVED and is_best_current(table, slot, true)):
        mark_given_up(table.best, slot)
        if solve_sample.load_program(P, T, true, at, w):
            solve_sample.solve_sample(T, table.true, row, default, np.int64(0), table.best, slot, w)
        if len(table.fingerprints) > 0:
            for j in span(T.n):
                table.fingerprints[slot, j] = true[j]
    if table.best.code[slot] != ix.SOLVED or not solve_sample.load_program(P, D, cost, at, w):
        return
    solve_sample.solve_sample(D, table.predicted, row, table.true, row, outcome, i, w)
    if outcome.code[i] == ix.SOLVED:
        injected, exact = results.injected[i], results.exact[i]
        results.value[i] = realised_regret(T, table.best, slot, w)
        set_cost_error(D, T, pair.curved, cost, true, injected, w)
        dual = w.tally[ix.METHOD] == ix.DUAL
        if not (project_dual(D, injected, exact, w) if dual else project_error(D, injected, exact, w)):
            outcome.code[i] = ix.GIVEN_UP
        inject_normal(D, pair.factor, i, strength, injected, exact)


@inner
def mark_given_up(outcome: CompiledSolutions, k: int) -> None:
    """Mark row k as given up; a solution overwrites this mark."""
    outcome.code[k] = ix.GIVEN_UP
    outcome.changes[k] = 0


@inner
def write_zero_results(results: CompiledRegrets, k: int) -> None:
    """Write zeros to row k, for a sample that was given up."""
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
    if len(results.exact) > 0:
        for j in span(results.exact.shape[1]):
            results.exact[k, j] = 0.0
    if len(results.injected) > 0:
        for j in span(results.injected.shape[1]):
            results.injected[k, j] = 0.0


@inner
def is_best_current(table: SolutionTable, slot: int, true: Array) -> bool:
    """True where the best decision in the table was computed for these true costs, none of which is NaN."""
    if len(table.fingerprints) == 0:
        return False
    for j in span(len(true)):  # noqa: SIM110 (a plain loop is what compiles well)
        if true[j] != table.fingerprints[slot, j]:
            return False
    return True


@inner
def realised_regret(T: ProgramData, best: CompiledSolutions, slot: int, w: Workspace) -> float:
    """Return the regret of w's x under the true program T, as a sum of terms that are never negative.

    The terms are ½dᵀHd, where d is the distance to the best decision, and multiplier times slack.
    """
    R, n = T.J.shape
    p, total = T.equalities, 0.0
    for j in span(n):
        w.step[j] = w.x[j] - best.x[slot, j]
        total += max(0.0, -best.bound[slot, j] * w.step[j])
    curved = 0.0
    if len(T.Q) > 0:
        for i in span(n):
            if w.step[i] != 0.0:
                s = 0.0
                for j in span(n):
                    s += T.Q[i, j] * w.step[j]
                curved += T.sign * w.step[i] * s
    for j in span(n):
        curved += T.smoothing * w.step[j] * w.step[j]
    if p < R:
        for i in span(R):
            w.left[i] = w.rhs[i]
        subtract_rows(T, w.x, w.left)
    for i in span(p, R):
        if best.inequality[slot, i - p] > 0.0:
            total += max(0.0, best.inequality[slot, i - p] * w.left[i])
    return total + max(0.0, 0.5 * curved)


@inner
def set_cost_error(
    D: ProgramData, T: ProgramData, curved: bool, predicted: Array, true: Array, e: Array, w: Workspace
) -> None:
    """Write the error ``e = (ĉ − c) + (Q̂ − Q)x`` of the objective's gradient.

    The sign that turns a maximum into a minimum is left out, because it cancels from the gradient.
    """
    n = len(e)
    for j in span(n):
        e[j] = predicted[j] - true[j]
    if curved:
        for j in span(n):
            if w.x[j] != 0.0:
                for i in span(n):
                    e[i] += (D.Q[j, i] - T.Q[j, i]) * w.x[j]


@inner
def inject_normal(D: ProgramData, factor: Array, i: int, strength: float, e: Array, g: Array) -> None:
    """Replace the error e of sample i by g + β (‖g‖/‖n‖) n with n = H⁻¹e − g, in place; see ``fused.add_normal``.

    For β = 0 it becomes g. For β < 0 it does not change.
    """
    n = len(e)
    if strength < 0.0:
        return
    size_n = size_g = size_e = 0.0
    if strength > 0.0:
        if len(factor) > 0:
            solve_factored(factor[i if len(factor) > 1 else 0], e)
        for j in span(n):
            if len(factor) == 0:
                e[j] /= D.smoothing
            size_n += (e[j] - g[j]) ** 2
            size_g += g[j] ** 2
            size_e += e[j] ** 2
    real = math.sqrt(size_n) > NEGLIGIBLE * math.sqrt(size_e)
    ratio = strength * math.sqrt(size_g / size_n) if strength > 0.0 and real else 0.0
    for j in span(n):
        e[j] = g[j] + ratio * (e[j] - g[j]) if ratio > 0.0 else g[j]


@inner
def solve_factored(L: Array, e: Array) -> None:
    """Solve ``L Lᵀ x = e`` in place, with a lower triangular L (n, n)."""
    n = len(e)
    for i in span(n):
        s = e[i]
        for j in span(i):
            s -= L[i, j] * e[j]
        e[i] = s / L[i, i]
    for back in span(n):
        i = n - 1 - back
        e[i] /= L[i, i]
        for j in span(i):
            e[j] -= L[i, j] * e[i]


@entry
def run_batch(
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
    START    find a feasible working set and keep it in ``table.predicted``, which stays empty if there is none
    SOLVE    solve the problems of the decision, from ``table.predicted`` to ``results.outcome``
    DECIDE   the same where the decisions alone matter: multipliers that are not unique are not centred
    PROJECT  project ``samples.predicted`` at the solutions in ``table.predicted``, to ``results.exact``; the code of
             the outcome is SOLVED where the projection converged
    REGRET   solve both problems, then compute regret, projection and injection
    =======  ==========================================================================================================

    Args:
        task: START, SOLVE, DECIDE, PROJECT or REGRET.
        pair: the problem of the decision and, for REGRET, what else the regret needs.
        samples: the costs of the samples.
        table: warm starts. Sample i starts from row ``slots[i]`` and is written back there. A predicted problem without
            a start takes the solution of the true one. Without slots nothing is kept: ``best`` has row i for sample i,
            and the states have a row for each worker.
        default: the start of samples that have none, as States with one row; without rows, each sample finds its own
            start. It must not depend on other samples, so that no result does.
        strength: β of the injection. Where it is negative, the error is returned instead.
        results: written, row i for sample i.
        team: the threads, the counter by which they share the samples, and memory for each thread.
        count: the number of samples.
    """
    inputs = refer(pair), refer(samples), refer(table), refer(default)
    in_threads(team.openmp, team.threads, run_worker, (task, *inputs, strength, refer(results), refer(team), count))
