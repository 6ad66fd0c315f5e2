"""The regret of one sample and its gradient."""

from __future__ import annotations

import math

import numpy as np

from pear.compile.jit import inner, refer, span
from pear.optimality.rule import NEGLIGIBLE
from pear.solvers.active_set import kernel_arrays as ix
from pear.solvers.active_set.error_projection import project_error_dual, project_error_primal
from pear.solvers.active_set.kernel_arrays import (
    Array,
    CompiledRegrets,
    CompiledSolutions,
    ProgramData,
    ProgramPair,
    SampleCosts,
    SolutionTable,
    States,
    Workspace,
)
from pear.solvers.active_set.program_products import subtract_row_products
from pear.solvers.active_set.sample_program import load_sample_program, select_sample_program
from pear.solvers.active_set.solution_check import mark_unchecked_solution
from pear.solvers.active_set.solve_sample import solve_sample


@inner
def set_sample_regret(
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
    """Solve both problems of a sample, and write its regret and gradients to row i of ``results``.

    The problem with true costs is solved only if the table does not have its solution. The problem with predicted
    costs starts from this solution if it has no start. See ``batch_kernel.run_batch_kernel`` for the arguments.
    """
    kept = len(samples.slots) > 0
    slot = samples.slots[i] if kept else i
    row = slot if kept else worker
    if not kept:
        table.true.has_start[row] = table.predicted.has_start[row] = 0
    P, at, cost, true, outcome = pair.decision, samples.at[i], samples.predicted[i], samples.true[i], results.outcome
    D = refer(select_sample_program(P, P.Q, at))
    T = refer(select_sample_program(P, pair.true_Q, at))
    mark_unchecked_solution(outcome, i)
    if not (table.best.code[slot] == ix.SOLVED and is_sample_regret_best_kept(table, slot, true)):
        mark_unchecked_solution(table.best, slot)
        if load_sample_program(P, T, true, at, w):
            solve_sample(T, table.true, row, default, np.int64(0), table.best, slot, w)
        if len(table.fingerprints) > 0:
            for j in span(T.n):
                table.fingerprints[slot, j] = true[j]
    if table.best.code[slot] != ix.SOLVED or not load_sample_program(P, D, cost, at, w):
        return
    solve_sample(D, table.predicted, row, table.true, row, outcome, i, w)
    if outcome.code[i] == ix.SOLVED:
        injected, exact = results.injected[i], results.exact[i]
        results.value[i] = measure_sample_regret(T, table.best, slot, w)
        set_sample_regret_error(D, T, pair.curved, cost, true, injected, w)
        dual = w.tally[ix.METHOD] == ix.DUAL
        if not (project_error_dual(D, injected, exact, w) if dual else project_error_primal(D, injected, exact, w)):
            outcome.code[i] = ix.GIVEN_UP
        inject_in_sample_regret(D, pair.factor, i, strength, injected, exact)


@inner
def is_sample_regret_best_kept(table: SolutionTable, slot: int, true: Array) -> bool:
    """Return True if the best decision in row ``slot`` of the table was computed for the true costs ``true`` (n,).

    The result is False if one of these costs is NaN.
    """
    if len(table.fingerprints) == 0:
        return False
    for j in span(len(true)):  # noqa: SIM110 (a plain loop is what compiles well)
        if true[j] != table.fingerprints[slot, j]:
            return False
    return True


@inner
def measure_sample_regret(T: ProgramData, best: CompiledSolutions, slot: int, w: Workspace) -> float:
    """Return the regret of the decision ``w.x`` under the true program T, as a sum of terms that are never negative.

    The terms are ½dᵀHd, where d is the difference to the best decision and H the true Hessian, and the product of
    multiplier and slack for every constraint.
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
                for j in span(T.band[i, 0], T.band[i, 1]):
                    s += T.Q[i, j] * w.step[j]
                curved += T.sign * w.step[i] * s
    for j in span(n):
        curved += T.smoothing * w.step[j] * w.step[j]
    if p < R:
        for i in span(R):
            w.left[i] = w.rhs[i]
        subtract_row_products(T, w.x, w.left)
    for i in span(p, R):
        if best.inequality[slot, i - p] > 0.0:
            total += max(0.0, best.inequality[slot, i - p] * w.left[i])
    return total + max(0.0, 0.5 * curved)


@inner
def set_sample_regret_error(
    D: ProgramData, T: ProgramData, curved: bool, predicted: Array, true: Array, e: Array, w: Workspace
) -> None:
    """Set e to the error ``(ĉ − c) + (Q̂ − Q)x`` of the objective's gradient; hats mark what is predicted.

    The sign that turns a maximum into a minimum is left out, because it cancels in the gradient.
    """
    n = len(e)
    for j in span(n):
        e[j] = predicted[j] - true[j]
    if curved:
        for j in span(n):
            if w.x[j] != 0.0:
                for i in span(D.band[j, 0], D.band[j, 1]):
                    e[i] += (D.Q[j, i] - T.Q[j, i]) * w.x[j]


@inner
def inject_in_sample_regret(D: ProgramData, factor: Array, i: int, strength: float, e: Array, g: Array) -> None:
    """Replace the error e of sample i by g + β (‖g‖/‖v‖) v with v = H⁻¹e − g, in place; see ``add_normal_component``.

    H is the Hessian, g the projection of e, and β is ``strength``. For β = 0 the result is g. For β < 0 the error stays
    as it is.
    """
    n = len(e)
    if strength < 0.0:
        return
    size_n = size_g = size_e = 0.0
    if strength > 0.0:
        if len(factor) > 0:
            solve_in_sample_regret(factor[i if len(factor) > 1 else 0], e)
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
def solve_in_sample_regret(L: Array, e: Array) -> None:
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
