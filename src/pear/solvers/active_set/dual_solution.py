"""What follows the dual search: the solution is refined and judged, and errors are projected at it."""

from __future__ import annotations

import math

from pear.compile.jit import inner, span
from pear.optimality.rule import NEGLIGIBLE, PROJECTED, RANK, ROUNDOFF, SHARP
from pear.solvers.active_set import kernel_arrays as ix
from pear.solvers.active_set.dual_search import (
    begin_dual,
    count_constraints,
    gram_row,
    hold_constraint,
    load_working_set,
    lower_limit,
    search_dual,
    set_free_minimum,
    solve_factor,
    solve_transposed_factor,
    upper_limit,
)
from pear.solvers.active_set.kernel_arrays import Array, ProgramData, States, Workspace
from pear.solvers.active_set.multipliers import measure_dual_scales, set_reduced_gradient
from pear.solvers.active_set.program_products import largest_size, positive_or_one, set_slope
from pear.solvers.active_set.settings import DUAL_ATTEMPTS, DUAL_DRIFT, NOISE, REFINEMENTS
from pear.solvers.active_set.solution_check import judge_refined_point, stationarity_residual
from pear.solvers.active_set.tangent_space import set_projection_residual, write_projection


@inner
def solve_dual(D: ProgramData, states: States, slot: int, fallback: States, fallback_slot: int, w: Workspace) -> bool:
    """Solve the loaded sample by the dual method, from the working set in ``states[slot]`` where there is one.

    A sample without a start there takes ``fallback[fallback_slot]``. Starts of the primal method do not serve: they are
    corners, far from the minimum without inequalities. Without a start, the search begins with an empty working set.

    Returns:
        True where the solution is judged SOLVED. Its working set then holds every tight constraint that does not depend
        on others.
    """
    w.tally[ix.METHOD] = ix.DUAL
    set_free_minimum(D, w)
    if states.has_start[slot] == ix.DUAL_START:
        load_working_set(D, w, states, slot)
    elif len(fallback.has_start) > fallback_slot and fallback.has_start[fallback_slot] == ix.DUAL_START:
        load_working_set(D, w, fallback, fallback_slot)
        w.tally[ix.CHANGES] += 1
    else:
        w.tally[ix.CHANGES] += 1
    for _ in span(DUAL_ATTEMPTS):
        if not search_dual(D, w):
            return False
        code = judge_refined_point(D, w, refine_dual_solution(D, w))
        if code == ix.SOLVED:
            held = hold_tight_values(D, w)
            if has_kept_places(D, states, slot, w):
                w.tally[ix.CHANGES] = 0
            return held
        if code != ix.OUTSIDE:
            return False
        set_exact_values(D, w)
    return False


@inner
def has_kept_places(D: ProgramData, states: States, slot: int, w: Workspace) -> bool:
    """True where the solution has the working set that ``states[slot]`` holds.

    Constraints that are tight with multiplier zero may have left it and returned in between.
    """
    if states.has_start[slot] != ix.DUAL_START:
        return False
    for v in span(len(D.J) + D.n):  # noqa: SIM110 (a plain loop is what compiles well)
        if states.place[slot, v] != w.place[v]:
            return False
    return True


@inner
def refine_dual_solution(D: ProgramData, w: Workspace) -> float:
    """Refine point and multipliers on the working set, from the data; return the residual of stationarity."""
    n = D.n
    for j in span(n):
        w.x[j] = w.value[j]
    set_places(D, w)
    unbalanced = math.inf
    for attempt in span(REFINEMENTS):
        if attempt > 0:
            correct_dual_solution(D, w)
        for a in span(w.tally[ix.WORKING]):
            if w.sup[a] < n:
                w.x[w.sup[a]] = held_limit(D, w, w.sup[a])
        set_slope(D, w)
        set_row_multipliers(D, w)
        set_reduced_gradient(D, w)
        measure_dual_scales(D, w)
        for j in span(n):  # held bounds absorb the reduced gradient, whatever its sign
            w.bound[j] = 0.0 if w.place[j] == ix.SUPER else -w.reduced[j]
        unbalanced = stationarity_residual(D, w)
        if unbalanced == math.inf or unbalanced <= SHARP:
            break
    return unbalanced


@inner
def set_places(D: ProgramData, w: Workspace) -> None:
    """Write the place of every variable and slack: held at a limit, or SUPER."""
    R, n = D.J.shape
    for v in span(n + R):
        w.place[v] = ix.SUPER
    for k in span(D.equalities):
        w.place[n + k] = ix.LOWER
    for a in span(w.tally[ix.WORKING]):
        hold_place(D, w, w.sup[a])


@inner
def hold_place(D: ProgramData, w: Workspace, i: int) -> None:
    """Mark constraint i as held, at the limit that its value is nearer to."""
    if i >= D.n:
        w.place[D.equalities + i] = ix.LOWER
    else:
        nearer = abs(w.value[i] - w.lo[i]) <= abs(w.up[i] - w.value[i])
        w.place[i] = ix.LOWER if nearer else ix.UPPER


@inner
def held_limit(D: ProgramData, w: Workspace, i: int) -> float:
    """Return the limit at which the working set holds constraint i."""
    return lower_limit(D, w, i) if i < D.n and w.place[i] == ix.LOWER else upper_limit(D, w, i)


@inner
def set_row_multipliers(D: ProgramData, w: Workspace) -> None:
    """Compute y: of inequalities from the working set, of equalities from the slope that these leave over."""
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
    """Take one step of refinement: correct x and the multipliers by the residuals of stationarity and of the rows."""
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
        w.pull[a] = constraint_value(D, w.x, w.sup[a]) - held_limit(D, w, w.sup[a])
    solve_factor(w, size, w.pull)
    solve_transposed_factor(w, size, w.pull)
    for a in span(size):
        w.force[a] += w.pull[a]
        row = gram_row(D, w, w.sup[a])
        for j in span(n):
            w.x[j] -= w.pull[a] * row[j]


@inner
def constraint_value(D: ProgramData, x: Array, i: int) -> float:
    """Return the value of constraint i at x."""
    if i < D.n:
        return x[i]
    s = 0.0
    for j in span(D.n):
        s += D.J[D.equalities + i - D.n, j] * x[j]
    return s


@inner
def set_exact_values(D: ProgramData, w: Workspace) -> None:
    """Compute ``w.value`` at the refined point, where rounding is smaller than it was during the search."""
    largest = 0.0
    for i in span(count_constraints(D)):
        w.value[i] = constraint_value(D, w.x, i)
        largest = max(largest, abs(w.value[i]))
    w.number[ix.DRIFT] = DUAL_DRIFT * largest


@inner
def hold_tight_values(D: ProgramData, w: Workspace) -> bool:
    """Add every tight constraint to the working set, unless it depends on others.

    Returns:
        False where one can neither be added nor depends on others: it is too nearly parallel to them.
    """
    n, p, parallel = D.n, D.equalities, 0
    for i in span(count_constraints(D)):
        v = i if i < n else p + i
        if w.held[v] != 0 and w.place[v] == ix.SUPER:
            if not hold_constraint(D, w, i) > RANK and w.weight[i] > 0.0 and not is_combination(D, w, i):
                parallel += 1
            w.place[v] = ix.LOWER if w.held[v] == 1 else ix.UPPER
    return parallel == 0


@inner
def is_combination(D: ProgramData, w: Workspace, i: int) -> bool:
    """True where the row of constraint i combines those of the working set, up to rounding.

    A pivot shows the square of the difference, in which nearly parallel rows cannot be told from dependent ones.
    ``hold_constraint`` has left the row of the factor.
    """
    n, size, row = D.n, w.tally[ix.WORKING], gram_row(D, w, i)
    if size == len(w.L) - 1:
        return True
    for a in span(size):
        w.pull[a] = w.L[size, a]
    solve_transposed_factor(w, size, w.pull)
    for j in span(n):
        w.step[j] = row[j]
    for a in span(size):
        held = gram_row(D, w, w.sup[a])
        for j in span(n):
            w.step[j] -= w.pull[a] * held[j]
    return largest_size(w.step, n) <= ROUNDOFF * largest_size(row, n)


@inner
def project_dual(D: ProgramData, error: Array, g: Array, w: Workspace) -> bool:
    """Compute ``g = P error`` at the working set of w, which must contain every tight constraint.

    Returns:
        False where refinement has not converged, or where the result is of the size of rounding.
    """
    n, size = D.n, w.tally[ix.WORKING]
    top = 0.0
    for j in span(n):
        g[j] = w.step[j] = 0.0
        w.error[j] = error[j]
        top = max(top, abs(error[j]))
        if not abs(error[j]) < math.inf:  # the projection of NaN or infinity is NaN
            top = math.nan
    if top != top:
        for j in span(n):
            g[j] = math.nan
        return True
    if size >= D.freedom:
        return True
    noise = NEGLIGIBLE * top / positive_or_one(w.number[ix.MAX_CURVATURE])
    largest, change = 0.0, math.inf
    for attempt in span(REFINEMENTS):
        if attempt > 0:
            set_projection_residual(D, error, w)
        change = add_projection(D, w)
        if attempt == 0:
            largest = change
        elif change <= max(SHARP * largest, NOISE * noise):
            break
    if not change <= max(PROJECTED * largest, noise):
        return False
    return write_projection(D, w, g, noise)


@inner
def add_projection(D: ProgramData, w: Workspace) -> float:
    """Add the projection of ``w.error`` to ``w.step``; return the largest change. Held variables do not move."""
    n, size = D.n, w.tally[ix.WORKING]
    for j in span(n):
        s = 0.0
        for i in span(n):
            s += D.response[j, i] * w.error[i]
        w.reduced[j] = s
    for a in span(size):
        w.pull[a] = constraint_value(D, w.reduced, w.sup[a])
    solve_factor(w, size, w.pull)
    solve_transposed_factor(w, size, w.pull)
    for a in span(size):
        row = gram_row(D, w, w.sup[a])
        for j in span(n):
            w.reduced[j] -= w.pull[a] * row[j]
    for a in span(size):
        if w.sup[a] < n:
            w.reduced[w.sup[a]] = 0.0
    change = 0.0
    for j in span(n):
        w.step[j] += w.reduced[j]
        change = max(change, abs(w.reduced[j]))
    return change


@inner
def save_working_set(D: ProgramData, states: States, slot: int, w: Workspace) -> None:
    """Save point and working set in ``states[slot]``, for the dual method alone: there is no basis."""
    R, n = D.J.shape
    states.has_start[slot] = ix.DUAL_START
    for v in span(n + R):
        states.place[slot, v] = w.place[v]
        states.x[slot, v] = w.x[v] if v < n else 0.0


@inner
def restore_factor(D: ProgramData, states: States, slot: int, w: Workspace) -> None:
    """Factor the saved working set of a solution, for a projection."""
    begin_dual(D, w)
    for i in span(count_constraints(D)):
        if states.place[slot, i if i < D.n else D.equalities + i] != ix.SUPER:
            hold_constraint(D, w, i)
