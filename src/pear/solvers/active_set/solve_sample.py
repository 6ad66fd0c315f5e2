"""The solution of one sample: from its data and a start to a checked solution."""

from __future__ import annotations

import math

from pear.compile.jit import inner, span
from pear.optimality.rule import LARGEST, SHARP
from pear.solvers.active_set import kernel_arrays as ix
from pear.solvers.active_set.dual_solution import save_working_set, solve_dual
from pear.solvers.active_set.kernel_arrays import Array, CompiledSolutions, ProgramData, Programs, States, Workspace
from pear.solvers.active_set.program_products import positive_or_one
from pear.solvers.active_set.search_phases import enter_free_variables, phase_one, phase_two
from pear.solvers.active_set.settings import FAR, FINE_PIVOT, PIVOT, REFRESH, VERDICTS
from pear.solvers.active_set.solution_check import refine_and_judge, write_solution
from pear.solvers.active_set.working_set import (
    hold_tight_constraints,
    invert_basis,
    set_basic_variables,
    set_superbasic_columns,
)


@inner
def select_program(P: Programs, curvature: Array, r: int) -> ProgramData:
    """Return the data of row r, with its Q from ``curvature``; shared fields have one row only."""
    Q = curvature[r if len(curvature) > 1 else 0]
    J = P.J[r if len(P.J) > 1 else 0]
    value = P.value[r if len(P.value) > 1 else 0]
    _, n = J.shape
    dual = P.dual
    shared = dual.response, dual.origin, dual.gram, dual.weight, dual.freedom
    return ProgramData(Q, P.sign, P.smoothing, J, P.start, P.row, value, P.equalities, n, *shared)


@inner
def solve_from(D: ProgramData, states: States, slot: int, fallback: States, fallback_slot: int, w: Workspace) -> int:
    """Solve the loaded sample from the start in ``states[slot]``.

    A sample without a start there takes ``fallback[fallback_slot]``. Where ``fallback`` is empty, it finds a feasible
    start of its own. If the search fails, it is repeated from the slack basis, then with finer pivots, and last from
    the first start, with rows judged by their natural sizes.

    Returns:
        SOLVED, CLOSE or GIVEN_UP.
    """
    code = ix.GIVEN_UP
    w.tally[ix.METHOD] = ix.PRIMAL
    for attempt in span(4):
        w.number[ix.PIVOT] = PIVOT if attempt != 2 else FINE_PIVOT
        w.tally[ix.PATIENT] = 1 if attempt == 3 else 0
        if attempt == 1 or attempt == 2:
            set_slack_basis(D, w)
        elif states.has_start[slot] == ix.BASIS_START:
            load_start(D, states, slot, w)
        elif len(fallback.has_start) > fallback_slot and fallback.has_start[fallback_slot] == ix.BASIS_START:
            load_start(D, fallback, fallback_slot, w)
            w.tally[ix.CHANGES] += 1
        elif len(fallback.has_start) > 0 or not find_own_start(D, w):
            continue
        code = search_and_check(D, w) if refresh_inverse(D, w) else ix.GIVEN_UP
        if code != ix.GIVEN_UP:
            break
    return code


@inner
def refresh_inverse(D: ProgramData, w: Workspace) -> bool:
    """Compute the inverse of the basic columns anew after many pivots; False where they are dependent.

    The start that samples share is kept refreshed, so that they do not repeat this work.
    """
    return w.tally[ix.AGE] <= REFRESH or invert_basis(D, w)


@inner
def write_and_keep(
    D: ProgramData, states: States, slot: int, outcome: CompiledSolutions, k: int, held: bool, w: Workspace
) -> None:
    """Write a solution to row k of ``outcome``, and keep it in ``states[slot]``.

    It is kept only where ``held`` is True: then the working set contains all tight constraints.
    """
    write_solution(D, outcome, k, w)
    outcome.code[k] = ix.SOLVED
    if held:
        save_start(D, states, slot, outcome.changes[k] > 0, w)
    else:
        states.has_start[slot] = ix.NO_START


@inner
def solve_sample(
    D: ProgramData,
    states: States,
    slot: int,
    fallback: States,
    fallback_slot: int,
    outcome: CompiledSolutions,
    k: int,
    w: Workspace,
) -> None:
    """Solve the loaded sample, add the tight constraints to its working set, and write the results.

    See ``solve_from`` and ``write_and_keep`` for the arguments.
    """
    if solve_by_dual(D, states, slot, fallback, fallback_slot, outcome, k, w):
        return
    if solve_from(D, states, slot, fallback, fallback_slot, w) == ix.SOLVED:
        held = hold_tight_constraints(w)
        write_and_keep(D, states, slot, outcome, k, held, w)
        if not held:  # no projection is possible from this working set
            outcome.code[k] = ix.GIVEN_UP


@inner
def solve_by_dual(
    D: ProgramData,
    states: States,
    slot: int,
    fallback: States,
    fallback_slot: int,
    outcome: CompiledSolutions,
    k: int,
    w: Workspace,
) -> bool:
    """Solve the loaded sample by the dual method, where the programs have a plan for it, and write the results.

    Returns:
        False where the primal method has to solve it.
    """
    if len(D.response) == 0 or not solve_dual(D, states, slot, fallback, fallback_slot, w):
        return False
    write_solution(D, outcome, k, w)
    outcome.code[k] = ix.SOLVED
    save_working_set(D, states, slot, w)
    return True


@inner
def find_feasible_start(D: ProgramData, w: Workspace) -> bool:
    """Find a feasible point from the slack basis; False where there is none."""
    set_slack_basis(D, w)
    w.number[ix.PIVOT] = PIVOT
    return set_nonbasics(D, w) and phase_one(D, w)


@inner
def find_own_start(D: ProgramData, w: Workspace) -> bool:
    """Find a feasible working set for the loaded sample, from its constraints alone."""
    R, n = D.J.shape
    least = w.number[ix.LEAST_SIZE]
    for j in span(n):
        w.error[j], w.c[j] = w.c[j], 0.0
    measure_least_size(D, w)
    found = find_feasible_start(D, w)
    for j in span(n):
        w.c[j] = w.error[j]
    w.number[ix.LEAST_SIZE] = least
    supers = 0
    for j in span(n + R):
        if w.place[j] == ix.SUPER:
            w.sup[supers] = j
            supers += 1
    w.tally[ix.SUPERS], w.tally[ix.FACTORED], w.tally[ix.CHANGES] = supers, 0, 1
    return found


@inner
def load_program(P: Programs, D: ProgramData, cost: Array, r: int, w: Workspace) -> bool:
    """Load the data of row r into the workspace.

    Returns:
        False where a number is not finite, or where bounds contradict each other.
    """
    R, n = D.J.shape
    good = True
    lb, ub = P.lb[r if len(P.lb) > 1 else 0], P.ub[r if len(P.ub) > 1 else 0]
    for j in span(n):
        w.c[j] = D.sign * cost[j]
        w.lo[j], w.up[j] = lb[j], ub[j]
        good = good and abs(w.c[j]) <= LARGEST and lb[j] <= ub[j] and lb[j] < math.inf and ub[j] > -math.inf
    good = measure_curvature(D, w) < math.inf and good
    load_norms(P, D, r, w)
    rhs = P.rhs[r if len(P.rhs) > 1 else 0]
    for k in span(R):
        absent = k >= D.equalities and rhs[k] == math.inf
        good = good and (absent or abs(rhs[k]) < math.inf)
        w.rhs[k] = 0.0 if absent else rhs[k]
        w.lo[n + k] = -math.inf if absent else 0.0
        w.up[n + k] = 0.0 if k < D.equalities else math.inf
    measure_least_size(D, w)
    w.tally[ix.CHANGES] = w.tally[ix.PATIENT] = 0
    return good


@inner
def load_norms(P: Programs, D: ProgramData, r: int, w: Workspace) -> None:
    """Load the squared lengths of the constraint rows of program r."""
    norm = P.norm[r if len(P.norm) > 1 else 0]
    for k in span(len(D.J)):
        w.norm[k] = norm[k]


@inner
def measure_least_size(D: ProgramData, w: Workspace) -> None:
    """Compute the least size that the data suggests for a decision; 1 where it suggests none."""
    R, n = D.J.shape
    curvature, largest, least = w.number[ix.MAX_CURVATURE], 0.0, math.inf
    for j in span(n):
        largest = max(largest, abs(w.c[j]))
        least = smaller_nonzero(smaller_nonzero(least, w.lo[j]), w.up[j])
    for k in span(D.equalities, R):
        least = smaller_nonzero(least, w.rhs[k] / positive_or_one(math.sqrt(w.norm[k])))
    if curvature > 0.0:
        least = smaller_nonzero(least, largest / curvature)
    w.number[ix.LEAST_SIZE] = least if least < math.inf else 1.0


@inner
def smaller_nonzero(least: float, size: float) -> float:
    """Return the smaller of two sizes; a ``size`` of zero does not count."""
    return abs(size) if size != 0.0 and abs(size) < least else least


@inner
def measure_curvature(D: ProgramData, w: Workspace) -> float:
    """Return the largest diagonal entry of the curvature; infinite where an entry is not a number."""
    curvature = D.smoothing
    if len(D.Q) > 0:
        for j in span(D.n):
            entry = D.smoothing + D.sign * D.Q[j, j]
            curvature = max(curvature, entry if abs(entry) < math.inf else math.inf)
    w.number[ix.MAX_CURVATURE] = curvature
    return curvature


@inner
def load_start(D: ProgramData, states: States, slot: int, w: Workspace) -> None:
    """Load the start in ``states[slot]`` into the workspace."""
    R, n = D.J.shape
    supers = 0
    for j in span(n + R):
        w.place[j] = states.place[slot, j]
        if w.place[j] == ix.SUPER:
            w.sup[supers] = j
            supers += 1
        w.x[j] = states.x[slot, j]
    for b in span(R):
        w.basis[b] = states.basis[slot, b]
        for k in span(R):
            w.inverse[b, k] = states.inverse[slot, b, k]
    w.tally[ix.SUPERS], w.tally[ix.FACTORED], w.tally[ix.AGE] = supers, 0, states.age[slot]


@inner
def save_start(D: ProgramData, states: States, slot: int, moved: bool, w: Workspace) -> None:
    """Save the working set as the start in ``states[slot]``; the inverse only where it changed."""
    states.has_start[slot] = ix.BASIS_START
    for j in span(len(D.J) + D.n):
        states.x[slot, j], states.place[slot, j] = w.x[j], w.place[j]
    if moved or states.age[slot] != w.tally[ix.AGE]:
        for b in span(len(w.inverse)):
            states.basis[slot, b] = w.basis[b]
            for k in span(len(w.inverse)):
                states.inverse[slot, b, k] = w.inverse[b, k]
        states.age[slot] = w.tally[ix.AGE]


@inner
def set_slack_basis(D: ProgramData, w: Workspace) -> None:
    """Set the start that every program has: all variables at a bound, all slacks basic.

    A variable whose bounds are both far larger than the right-hand sides and costs starts free, at zero. At such a
    bound a slack of size 1 would have no digits left.
    """
    R, n = D.J.shape
    size, curvature = 0.0, w.number[ix.MAX_CURVATURE]
    for j in span(n):
        size = max(size, abs(w.c[j]) / curvature if curvature > 0.0 else 0.0)
    for k in span(R):
        size = max(size, abs(w.rhs[k]) / positive_or_one(math.sqrt(w.norm[k])))
    far = FAR * size if size > 0.0 else math.inf
    for j in span(n):
        above = ix.UPPER if abs(w.up[j]) <= far else ix.FREE
        w.place[j] = ix.LOWER if abs(w.lo[j]) <= far else above
    for k in span(R):
        w.place[n + k] = ix.BASIC
        w.basis[k] = n + k
        w.x[n + k] = 0.0  # not the value that another sample left
        for b in span(R):
            w.inverse[k, b] = 1.0 if b == k else 0.0
    w.tally[ix.SUPERS] = w.tally[ix.FACTORED] = w.tally[ix.AGE] = 0
    w.tally[ix.CHANGES] += 1


@inner
def search_and_check(D: ProgramData, w: Workspace) -> int:
    """Solve from the working set in ``w``, and check the solution; return SOLVED, CLOSE or GIVEN_UP."""
    if not (set_nonbasics(D, w) and phase_one(D, w)):
        return ix.GIVEN_UP
    enter_free_variables(D, w)
    for attempt in span(VERDICTS):
        if not phase_two(D, w, attempt > 0):
            return ix.GIVEN_UP
        verdict = refine_and_judge(D, w)
        if verdict == ix.SOLVED:
            return verdict
        if verdict != ix.AGAIN:
            fresh = w.tally[ix.AGE] == 0
            if (fresh and verdict != ix.OUTSIDE) or not invert_basis(D, w):
                return verdict
            set_basic_variables(D, w, SHARP)
            set_superbasic_columns(D, w)
            if verdict == ix.OUTSIDE and not phase_one(D, w):
                return ix.GIVEN_UP
    return ix.GIVEN_UP


@inner
def set_nonbasics(D: ProgramData, w: Workspace) -> bool:
    """Put nonbasic variables on bounds that exist and superbasic ones between theirs; compute the basic ones.

    Returns:
        False where the basic variables cannot be computed accurately.
    """
    R, n = D.J.shape
    for j in span(n + R):
        place = w.place[j]
        if place == ix.BASIC:
            continue
        if place == ix.SUPER:
            w.x[j] = min(max(w.x[j], w.lo[j]), w.up[j])
            continue
        if place == ix.LOWER and w.lo[j] == -math.inf:
            place = ix.UPPER
        if place == ix.UPPER and w.up[j] == math.inf:
            place = ix.LOWER if w.lo[j] > -math.inf else ix.FREE
        if place == ix.FREE and not w.lo[j] < 0.0 < w.up[j]:
            place = ix.LOWER if w.lo[j] > -math.inf else ix.UPPER
        w.place[j] = place
        w.x[j] = w.lo[j] if place == ix.LOWER else (w.up[j] if place == ix.UPPER else 0.0)
    for b in span(R):
        if not abs(w.x[w.basis[b]]) < math.inf:
            w.x[w.basis[b]] = 0.0
    if not set_basic_variables(D, w, SHARP) and (
        w.tally[ix.AGE] == 0 or not invert_basis(D, w) or not set_basic_variables(D, w, SHARP)
    ):
        return False
    set_superbasic_columns(D, w)
    return True
