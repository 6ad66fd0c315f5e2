"""The rules by which the compiled active-set method accepts its own points, applied to points from elsewhere."""

from __future__ import annotations

import numpy as np

from pear.compile.jit import entry, inner, refer, span
from pear.optimality.rule import FEASIBLE
from pear.solvers.active_set import batch_kernel as kernels
from pear.solvers.active_set import kernel_arrays as ix
from pear.solvers.active_set import sample_program as sample
from pear.solvers.active_set.kernel_arrays import (
    Array,
    CompiledSolutions,
    ProgramData,
    Programs,
    SampleCosts,
    WorkMemory,
    Workspace,
)
from pear.solvers.active_set.kernel_threads import kernel_thread_team
from pear.solvers.active_set.multipliers import (
    measure_multiplier_sizes,
    most_wrong_multiplier,
    subtract_multipliers_from_gradient,
)
from pear.solvers.active_set.program_products import set_gradient_by_hessian_product
from pear.solvers.active_set.solution_check import (
    check_solution_feasibility,
    checked_stationarity_residual,
    is_kkt_residual_small,
    write_checked_solution,
)


def judge(P: Programs, cost: Array, point: CompiledSolutions) -> CompiledSolutions:
    """Return the verdict on row 0 of ``point``, whose active set serves as its working set."""
    n, rows = len(cost), P.J.shape[1]
    outcome = ix.new_kernel_solutions(1, n, P.equalities, rows - P.equalities)
    for part in outcome:
        part[...] = 0
    outcome.code[...] = ix.GIVEN_UP  # the kernel below writes a code only where the point passes
    samples = SampleCosts(cost[None], np.zeros((0, 0)), np.zeros(1, np.int64), np.zeros(1, np.int64))
    run(P, samples, point, outcome, kernel_thread_team(n, rows).memory)
    return outcome


@inner
def load_point(D: ProgramData, point: CompiledSolutions, k: int, w: Workspace) -> None:
    """Copy row ``k`` of ``point``, with its multipliers, into the workspace; its active set becomes the working set."""
    R, n = D.J.shape
    p = D.equalities
    for j in span(n):
        w.x[j], w.bound[j] = point.x[k, j], point.bound[k, j]
        w.place[j] = ix.LOWER if point.lower[k, j] else (ix.UPPER if point.upper[k, j] else ix.BASIC)
    for i in span(R):
        w.y[i] = -point.equality[k, i] if i < p else -point.inequality[k, i - p]
        w.place[n + i] = ix.LOWER if i < p or point.rows[k, i - p] else ix.BASIC


@inner
def verify(D: ProgramData, point: CompiledSolutions, k: int, outcome: CompiledSolutions, i: int, w: Workspace) -> None:
    """Judge row ``k`` of ``point`` as the solver judges its own points; write the verdict to row ``i`` of ``outcome``.

    The checks are stationarity, signs of the multipliers, feasibility and the KKT residual. The working set is given by
    ``point.rows``, ``point.lower`` and ``point.upper``.
    """
    load_point(D, point, k, w)
    set_gradient_by_hessian_product(D, w)
    subtract_multipliers_from_gradient(D, w)
    measure_multiplier_sizes(D, w)
    good = checked_stationarity_residual(D, w) <= FEASIBLE
    good = check_solution_feasibility(D, w) and good
    good = is_kkt_residual_small(D, w) and good
    write_checked_solution(D, outcome, i, w)
    for j in span(D.n):  # the signs that count are those of the given multipliers
        w.reduced[j] = -w.bound[j]
    if good and most_wrong_multiplier(D, w, np.bool_(False), np.bool_(False)) < 0:
        outcome.code[i] = ix.SOLVED


@entry
def run(
    P: Programs, samples: SampleCosts, point: CompiledSolutions, outcome: CompiledSolutions, memory: WorkMemory
) -> None:
    """Load the program, and judge the point if the program could be loaded."""
    programs = refer(P)
    w = refer(kernels.batch_workspace(refer(memory), 0))
    D = refer(sample.select_sample_program(programs, programs.Q, 0))
    if sample.load_sample_program(programs, D, refer(samples).predicted[0], 0, w):
        verify(D, refer(point), 0, refer(outcome), 0, w)
