"""Functions that refine a solution on its working set, judge it from the data, and write it to the results."""

from __future__ import annotations

import math

import numpy as np

from pear.compile.jit import inner, span
from pear.optimality.rule import (
    EPSILON,
    FEASIBLE,
    FLOOR,
    LOST,
    OPTIMAL,
    SHARE_OF_FORCE,
    SHARE_OF_TERMS,
    SHARP,
    TIGHT,
    WEAK,
)
from pear.solvers.active_set import kernel_arrays as ix
from pear.solvers.active_set.basis_and_superbasics import solve_for_basics
from pear.solvers.active_set.compiled_sizes import compiled_size_or_one, measure_compiled_sizes
from pear.solvers.active_set.kernel_arrays import CompiledSolutions, ProgramData, Workspace
from pear.solvers.active_set.multipliers import (
    centre_multipliers,
    measure_multiplier_sizes,
    most_wrong_multiplier,
    refine_multipliers,
    set_tight_multipliers,
    subtract_multipliers_from_gradient,
)
from pear.solvers.active_set.program_products import (
    add_abs_column_products,
    curvature_terms,
    set_gradient_by_hessian_product,
    subtract_row_products,
)
from pear.solvers.active_set.reduced_hessian import factorise_reduced_hessian, solve_reduced_hessian
from pear.solvers.active_set.settings import BASICS, CLOSE_BY, REFINEMENTS


@inner
def refine_and_check_solution(D: ProgramData, w: Workspace) -> int:
    """Refine the solution on its working set, and check it against the data.

    Returns:
        SOLVED, or a code of ``kernel_arrays`` that says why the solution does not pass: GIVEN_UP, AGAIN, OUTSIDE or
        CLOSE.
    """
    R = len(D.J)
    unbalanced = math.inf
    for attempt in span(REFINEMENTS):
        if attempt > 0:
            if factorise_reduced_hessian(D, w) >= 0:
                return ix.GIVEN_UP
            for t in span(w.tally[ix.SUPERS]):
                w.along[t] = -w.reduced[w.sup[t]]
            solve_reduced_hessian(w, w.tally[ix.SUPERS])
            for t in span(w.tally[ix.SUPERS]):
                w.x[w.sup[t]] += w.along[t]
                for b in span(R):
                    w.x[w.basis[b]] -= w.W[t, b] * w.along[t]
        if not solve_for_basics(D, w, BASICS):
            return ix.GIVEN_UP
        set_gradient_by_hessian_product(D, w)
        refine_multipliers(D, w)
        measure_multiplier_sizes(D, w)
        for j in span(D.n):  # held bounds absorb the reduced gradient, whatever its sign
            w.bound[j] = 0.0 if w.place[j] in (ix.BASIC, ix.SUPER) else -w.reduced[j]
        unbalanced = checked_stationarity_residual(D, w)
        if unbalanced == math.inf:
            return ix.GIVEN_UP
        if unbalanced <= SHARP:
            break
    return check_refined_solution(D, w, unbalanced)


@inner
def check_refined_solution(D: ProgramData, w: Workspace, unbalanced: float) -> int:
    """Check a refined point and its multipliers against the data.

    Args:
        D: the program.
        w: the workspace.
        unbalanced: the residual of stationarity.

    Returns:
        SOLVED, or a code that says why the solution does not pass, as for ``refine_and_check_solution``.
    """
    if not unbalanced <= CLOSE_BY:
        return ix.GIVEN_UP
    if most_wrong_multiplier(D, w, np.bool_(False), np.bool_(False)) >= 0:
        return ix.AGAIN
    if not check_solution_feasibility(D, w):
        return ix.OUTSIDE
    return ix.SOLVED if check_solution_multipliers(D, w) and unbalanced <= FEASIBLE else ix.CLOSE


@inner
def check_solution_multipliers(D: ProgramData, w: Workspace) -> bool:
    """Set the multipliers of tight constraints, and return True if the KKT residual is then small."""
    set_tight_multipliers(D, w)
    return is_kkt_residual_small(D, w)


@inner
def check_centred_solution(D: ProgramData, w: Workspace) -> bool:
    """Centre the multipliers; restore them if the centred ones are inaccurate.

    Returns:
        False if the restored multipliers are inaccurate too.
    """
    R = len(D.J)
    for k in span(R):
        w.error[k] = w.y[k]
    if not centre_multipliers(D, w) or check_solution_multipliers(D, w):
        return True
    for k in span(R):
        w.y[k] = w.error[k]
    subtract_multipliers_from_gradient(D, w)
    return check_solution_multipliers(D, w)


@inner
def checked_stationarity_residual(D: ProgramData, w: Workspace) -> float:
    """Return the largest residual of stationarity, relative to natural sizes; infinite if one is not a number."""
    worst = 0.0
    for j in span(D.n):
        left = w.reduced[j] + w.bound[j]
        if left != 0.0:
            worst = max(worst, abs(left) / w.dual_scale[j])
        if left != left:
            return math.inf
    return worst


@inner
def check_solution_feasibility(D: ProgramData, w: Workspace) -> bool:
    """Measure every slack relative to its natural size, and mark the tight constraints in ``w.held``.

    Returns:
        False if a constraint is violated, or if it is held and has slack, by more than FEASIBLE.
    """
    R, n = D.J.shape
    measure_compiled_sizes(D, w)
    for k in span(R):
        w.left[k] = w.rhs[k]
    subtract_row_products(D, w.x, w.left)
    good = True
    for j in span(n):
        x, lower, upper = w.x[j], math.inf, math.inf
        if w.lo[j] > -math.inf:
            lower = (x - w.lo[j]) / compiled_size_or_one(w.size[j] + abs(w.lo[j]))
        if w.up[j] < math.inf:
            upper = (w.up[j] - x) / compiled_size_or_one(w.size[j] + abs(w.up[j]))
        place = w.place[j]
        good = good and lower >= -FEASIBLE and upper >= -FEASIBLE
        good = good and not (place == ix.LOWER and lower > FEASIBLE) and not (place == ix.UPPER and upper > FEASIBLE)
        above = place == ix.UPPER or upper <= TIGHT
        w.held[j] = 1 if place == ix.LOWER or lower <= TIGHT else (2 if above else 0)
    for k in span(R):
        slack, held = w.left[k] / compiled_size_or_one(w.terms[k]), w.place[n + k] == ix.LOWER
        if k < D.equalities:
            good = good and abs(slack) <= FEASIBLE
            w.held[n + k] = 1
        elif w.lo[n + k] == -math.inf:
            good = good and not held
            w.held[n + k] = 0
        else:
            good = good and slack >= -FEASIBLE and not (held and slack > FEASIBLE)
            w.held[n + k] = 1 if held or slack <= TIGHT else 0
    return good


@inner
def mark_checked_working_set(D: ProgramData, w: Workspace) -> None:
    """Mark only the constraints of the working set as held.

    Other constraints that look tight may turn out not to be tight, once the point has more digits.
    """
    for v in span(len(D.J) + D.n):
        place = w.place[v]
        w.held[v] = 1 if place == ix.LOWER else (2 if place == ix.UPPER else 0)


@inner
def write_checked_solution(D: ProgramData, outcome: CompiledSolutions, k: int, w: Workspace) -> None:
    """Write a checked point to row k of ``outcome``, with multipliers, tight and weakly active constraints."""
    R, n = D.J.shape
    p, weak = D.equalities, np.bool_(False)
    for j in span(n):
        bound = w.bound[j]
        outcome.x[k, j], outcome.bound[k, j] = w.x[j], bound
        pinned = w.lo[j] == w.up[j]
        lower, upper = w.held[j] == 1, w.held[j] == 2
        scaled = bound / w.dual_scale[j]
        outcome.lower[k, j], outcome.upper[k, j] = lower, upper
        outcome.weak_lower[k, j] = lower and -scaled <= WEAK and not pinned
        outcome.weak_upper[k, j] = upper and scaled <= WEAK and not pinned
        weak = weak or outcome.weak_lower[k, j] or outcome.weak_upper[k, j]
    for i in span(p):
        outcome.equality[k, i] = -w.y[i]
    for i in span(p, R):
        multiplier = -w.y[i] if w.y[i] != 0.0 else 0.0
        tight = w.held[n + i] == 1
        outcome.inequality[k, i - p] = multiplier
        outcome.rows[k, i - p] = tight
        outcome.weak_rows[k, i - p] = tight and multiplier / w.dual_scale[n + i] <= WEAK
        weak = weak or outcome.weak_rows[k, i - p]
    outcome.weak[k] = weak
    outcome.changes[k] = w.tally[ix.CHANGES]
    outcome.kkt_residual[k] = w.number[ix.KKT]


@inner
def is_kkt_residual_small(D: ProgramData, w: Workspace) -> bool:
    """Return True if the KKT residual is at most OPTIMAL, and its rounding errors at most LOST.

    ``w.left`` must hold the slacks of the rows. The residual is kept in ``w.number``.
    """
    dual = checked_dual_unit(D, w)
    w.number[ix.KKT] = checked_kkt_residual(D, dual, w)
    return w.number[ix.KKT] <= OPTIMAL and checked_stationarity_rounding(D, dual, w) <= LOST


@inner
def checked_kkt_residual(D: ProgramData, dual: float, w: Workspace) -> float:
    """Compute the KKT residual in the dual unit ``dual``, as ``pear.optimality.kkt_residual`` defines it."""
    R, n = D.J.shape
    p = D.equalities
    size = FLOOR * w.number[ix.LEAST_SIZE]
    for j in span(n):
        size = max(size, abs(w.x[j]))
    worst = 0.0
    for j in span(n):
        bound = w.bound[j]
        worst = max(worst, abs(w.reduced[j] + bound) / dual)
        # an absent constraint must have multiplier zero
        slack = (w.x[j] - w.lo[j]) / size if w.lo[j] > -math.inf else 1.0
        worst = max(worst, -slack, abs(slack * min(bound, 0.0) / dual))
        slack = (w.up[j] - w.x[j]) / size if w.up[j] < math.inf else 1.0
        worst = max(worst, -slack, abs(slack * max(bound, 0.0) / dual))
    for i in span(R):
        norm = compiled_size_or_one(math.sqrt(w.norm[i]))
        slack = w.left[i] / norm / size if w.lo[n + i] > -math.inf else 1.0
        if i < p:
            worst = max(worst, abs(slack))
        else:
            multiplier = -w.y[i] * norm / dual
            worst = max(worst, -slack, -multiplier, abs(slack * multiplier))
    return worst


@inner
def checked_dual_unit(D: ProgramData, w: Workspace) -> float:
    """Return the dual unit of the KKT residual, as ``pear.optimality.kkt_residual`` defines it."""
    dual, cost = FLOOR * w.number[ix.LEAST_SIZE] * w.number[ix.MAX_CURVATURE], 0.0
    for j in span(D.n):
        cost = max(cost, abs(w.c[j]))
    limit = cost / SHARE_OF_FORCE if cost > 0.0 else math.inf
    dual = max(dual, min(SHARE_OF_TERMS * curvature_terms(D, w), limit))
    for j in span(D.n):
        dual = max(dual, abs(w.c[j]), abs(w.grad[j] - w.c[j]))
    return compiled_size_or_one(dual)


@inner
def checked_stationarity_rounding(D: ProgramData, dual: float, w: Workspace) -> float:
    """Bound the rounding of stationarity in the dual unit ``dual``, as ``pear.optimality.kkt_residual`` defines it.

    If multipliers have ordinary sizes, the result is a larger bound that is cheap to compute.
    """
    n, force = D.n, 0.0
    for k in span(len(D.J)):
        force += abs(w.y[k]) * math.sqrt(w.norm[k])
    coarse = EPSILON * (2.0 + force / dual)  # no entry of Hx, of the cost or of a row is larger
    if coarse <= LOST:
        return coarse
    for j in span(n):
        w.step[j] = abs(w.grad[j] - w.c[j]) + abs(w.c[j])
    add_abs_column_products(D, w.y, w.step)
    worst = 0.0
    for j in span(n):
        if w.lo[j] != w.up[j]:
            worst = max(worst, (EPSILON * w.step[j] - abs(w.bound[j])) / dual)
    return worst


@inner
def mark_unchecked_solution(outcome: CompiledSolutions, k: int) -> None:
    """Mark row k as GIVEN_UP. If the sample is solved, its code replaces this mark."""
    outcome.code[k] = ix.GIVEN_UP
    outcome.changes[k] = 0
