"""Solutions of the dual method: found by the dual search, then refined and checked."""

from __future__ import annotations

import math

from pear.compile.jit import inner, span
from pear.optimality.rule import SHARP
from pear.solvers.active_set import kernel_arrays as ix
from pear.solvers.active_set.dual_search import restart_dual_search, run_dual_search, start_dual_search
from pear.solvers.active_set.dual_working_set import (
    held_dual_working_set_limit,
    hold_tight_in_dual_working_set,
    is_dual_working_set_kept,
    load_dual_working_set,
    mark_dual_working_set,
)
from pear.solvers.active_set.gram_matrix import (
    gram_constraint_value,
    gram_row,
    solve_gram_factor,
    solve_transposed_gram_factor,
)
from pear.solvers.active_set.kernel_arrays import ProgramData, States, Workspace
from pear.solvers.active_set.multipliers import measure_multiplier_sizes, subtract_multipliers_from_gradient
from pear.solvers.active_set.program_products import set_gradient_by_hessian_product
from pear.solvers.active_set.settings import DUAL_ATTEMPTS, REFINEMENTS
from pear.solvers.active_set.solution_check import check_refined_solution, checked_stationarity_residual


@inner
def find_dual_solution(
    D: ProgramData, states: States, slot: int, fallback: States, fallback_slot: int, w: Workspace
) -> bool:
    """Solve the loaded sample by the dual method, from the working set in ``states[slot]`` if there is one.

    A sample without a start of the dual method takes that of ``fallback[fallback_slot]``. Starts of the primal method
    are not used, because they are vertices far from the minimum without inequalities. Without a start, the search
    begins with an empty working set.

    Returns:
        True if the solution is SOLVED, and its working set holds every tight constraint that does not depend on others.
    """
    w.tally[ix.METHOD] = ix.DUAL
    start_dual_search(D, w)
    if states.has_start[slot] == ix.DUAL_START:
        load_dual_working_set(D, w, states, slot)
    elif len(fallback.has_start) > fallback_slot and fallback.has_start[fallback_slot] == ix.DUAL_START:
        load_dual_working_set(D, w, fallback, fallback_slot)
        w.tally[ix.CHANGES] += 1
    else:
        w.tally[ix.CHANGES] += 1
    for _ in span(DUAL_ATTEMPTS):
        if not run_dual_search(D, w):
            return False
        code = check_refined_solution(D, w, refine_dual_solution(D, w))
        if code == ix.SOLVED:
            held = hold_tight_in_dual_working_set(D, w)
            if is_dual_working_set_kept(D, states, slot, w):
                w.tally[ix.CHANGES] = 0
            return held
        if code != ix.OUTSIDE:
            return False
        restart_dual_search(D, w)
    return False


@inner
def refine_dual_solution(D: ProgramData, w: Workspace) -> float:
    """Refine the point and its multipliers on the working set, from the data; return the residual of stationarity."""
    n = D.n
    for j in span(n):
        w.x[j] = w.value[j]
    mark_dual_working_set(D, w)
    unbalanced = math.inf
    for attempt in span(REFINEMENTS):
        if attempt > 0:
            correct_dual_solution(D, w)
        for a in span(w.tally[ix.WORKING]):
            if w.sup[a] < n:
                w.x[w.sup[a]] = held_dual_working_set_limit(D, w, w.sup[a])
        set_gradient_by_hessian_product(D, w)
        set_dual_solution_multipliers(D, w)
        subtract_multipliers_from_gradient(D, w)
        measure_multiplier_sizes(D, w)
        for j in span(n):  # held bounds absorb the reduced gradient, whatever its sign
            w.bound[j] = 0.0 if w.place[j] == ix.SUPER else -w.reduced[j]
        unbalanced = checked_stationarity_residual(D, w)
        if unbalanced == math.inf or unbalanced <= SHARP:
            break
    return unbalanced


@inner
def set_dual_solution_multipliers(D: ProgramData, w: Workspace) -> None:
    """Set ``w.y`` to the multipliers of the rows.

    The multipliers of inequalities are those of the working set. The multipliers of equalities follow from the gradient
    and the held constraints.
    """
    R, n = D.J.shape
    p = D.equalities
    for k in span(R):
        w.y[k] = 0.0
    for j in span(n):
        w.step[j] = w.grad[j]
    for a in span(w.tally[ix.WORKING]):
        i = w.sup[a]
        if i < n:
            w.step[i] += w.force[a]
        else:
            w.y[p + i - n] = -w.force[a]
            for j in span(n):
                w.step[j] += w.force[a] * D.J[p + i - n, j]
    for j in span(n):
        if w.step[j] != 0.0:
            for k in span(p):
                w.y[k] += D.origin[j, k] * w.step[j]


@inner
def correct_dual_solution(D: ProgramData, w: Workspace) -> None:
    """Correct x and the multipliers once, by the residuals of stationarity and of the rows."""
    n, p, size = D.n, D.equalities, w.tally[ix.WORKING]
    for j in span(n):
        w.error[j] = w.reduced[j]
        w.step[j] = 0.0
    for a in span(size):
        if w.sup[a] < n:
            w.error[w.sup[a]] += w.force[a]
    for j in span(n):
        s = 0.0
        for i in span(n):
            s -= D.response[j, i] * w.error[i]
        w.step[j] = s
    for k in span(p):
        s = w.rhs[k]
        for j in span(n):
            s -= D.J[k, j] * w.x[j]
        if s != 0.0:
            for j in span(n):
                w.step[j] += D.origin[j, k] * s
    for j in span(n):
        w.x[j] += w.step[j]
    for a in span(size):
        w.pull[a] = gram_constraint_value(D, w.x, w.sup[a]) - held_dual_working_set_limit(D, w, w.sup[a])
    solve_gram_factor(w, size, w.pull)
    solve_transposed_gram_factor(w, size, w.pull)
    for a in span(size):
        w.force[a] += w.pull[a]
        row = gram_row(D, w, w.sup[a])
        for j in span(n):
            w.x[j] -= w.pull[a] * row[j]
