"""The solution of one sample, from a start to a checked solution.

Most functions share these arguments. D is the program, w the workspace, ``states[slot]`` the row of the
sample's warm start, ``fallback[fallback_slot]`` the start of a sample without a warm start, and ``outcome[k]`` the row
of its solution.
"""

from __future__ import annotations

import numpy as np

from pear.compile.jit import inner, span
from pear.optimality.rule import SHARP
from pear.solvers.active_set import kernel_arrays as ix
from pear.solvers.active_set.basis_and_superbasics import (
    invert_basis,
    make_tight_nonbasic,
    refresh_basis_inverse,
    set_nonbasic_variables,
    set_superbasic_columns,
    solve_for_basics,
)
from pear.solvers.active_set.basis_starts import (
    find_own_basis_start,
    load_basis_start,
    save_basis_start,
    set_slack_basis_start,
)
from pear.solvers.active_set.dual_solution import find_dual_solution
from pear.solvers.active_set.dual_working_set import save_dual_working_set
from pear.solvers.active_set.kernel_arrays import CompiledSolutions, ProgramData, States, Workspace
from pear.solvers.active_set.search_phases import begin_phase_two, search_phase_one, search_phase_two
from pear.solvers.active_set.settings import FINE_PIVOT, PIVOT, VERDICTS
from pear.solvers.active_set.solution_check import (
    check_centred_solution,
    mark_checked_working_set,
    mark_unchecked_solution,
    refine_and_check_solution,
    write_checked_solution,
)


@inner
def solve_sample_from_start(
    D: ProgramData, states: States, slot: int, fallback: States, fallback_slot: int, w: Workspace
) -> int:
    """Solve the loaded sample by the primal method, from the start in ``states[slot]``.

    If there is no such start, the sample takes ``fallback[fallback_slot]``. If ``fallback`` has no rows, the sample
    finds a feasible start from its constraints. If the search fails, up to three further attempts follow: from the
    slack basis; from the slack basis with smaller pivots; and from the start of the first attempt, with the residuals
    of rows compared with natural sizes.

    Returns:
        SOLVED, CLOSE or GIVEN_UP.
    """
    code = ix.GIVEN_UP
    w.tally[ix.METHOD] = ix.PRIMAL
    for attempt in span(4):
        w.number[ix.PIVOT] = PIVOT if attempt != 2 else FINE_PIVOT
        w.tally[ix.PATIENT] = 1 if attempt == 3 else 0
        if attempt == 1 or attempt == 2:
            set_slack_basis_start(D, w)
        elif states.has_start[slot] == ix.BASIS_START:
            load_basis_start(D, states, slot, w)
        elif len(fallback.has_start) > fallback_slot and fallback.has_start[fallback_slot] == ix.BASIS_START:
            load_basis_start(D, fallback, fallback_slot, w)
            w.tally[ix.CHANGES] += 1
        elif len(fallback.has_start) > 0 or not find_own_basis_start(D, w):
            continue
        code = solve_sample_from_working_set(D, w) if refresh_basis_inverse(D, w) else ix.GIVEN_UP
        if code != ix.GIVEN_UP:
            break
    return code


@inner
def write_solved_sample(
    D: ProgramData, states: States, slot: int, outcome: CompiledSolutions, k: int, held: bool, w: Workspace
) -> None:
    """Write a solution to row k of ``outcome``, and keep it in ``states[slot]`` as a start if ``held`` is True.

    ``held`` says that the working set contains all tight constraints. If it is False, ``states[slot]`` becomes empty.
    """
    write_checked_solution(D, outcome, k, w)
    outcome.code[k] = ix.SOLVED
    if held:
        save_basis_start(D, states, slot, outcome.changes[k] > 0, w)
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

    If the working set cannot hold the tight constraints, the sample is given up, because the working set then does not
    define the tangent space onto which errors are projected.
    """
    if solve_sample_by_dual(D, states, slot, fallback, fallback_slot, outcome, k, w):
        return
    if solve_sample_from_start(D, states, slot, fallback, fallback_slot, w) == ix.SOLVED:
        held = make_tight_nonbasic(w)
        write_solved_sample(D, states, slot, outcome, k, held, w)
        if not held:  # no projection is possible from this working set
            outcome.code[k] = ix.GIVEN_UP


@inner
def solve_sample_by_dual(
    D: ProgramData,
    states: States,
    slot: int,
    fallback: States,
    fallback_slot: int,
    outcome: CompiledSolutions,
    k: int,
    w: Workspace,
) -> bool:
    """Solve the loaded sample by the dual method, if the programs have a plan for it, and write the results.

    Returns:
        False if the primal method has to solve the sample.
    """
    if len(D.response) == 0 or not find_dual_solution(D, states, slot, fallback, fallback_slot, w):
        return False
    write_checked_solution(D, outcome, k, w)
    outcome.code[k] = ix.SOLVED
    save_dual_working_set(D, states, slot, w)
    return True


@inner
def solve_sample_from_working_set(D: ProgramData, w: Workspace) -> int:
    """Search from the working set in ``w`` by the primal method, and check the solution.

    Returns:
        SOLVED, CLOSE or GIVEN_UP.
    """
    if not (set_nonbasic_variables(D, w) and search_phase_one(D, w)):
        return ix.GIVEN_UP
    begin_phase_two(D, w)
    for attempt in span(VERDICTS):
        if not search_phase_two(D, w, attempt > 0):
            return ix.GIVEN_UP
        verdict = refine_and_check_solution(D, w)
        if verdict == ix.SOLVED:
            return verdict
        if verdict != ix.AGAIN:
            fresh = w.tally[ix.AGE] == 0
            if (fresh and verdict != ix.OUTSIDE) or not invert_basis(D, w):
                return verdict
            solve_for_basics(D, w, SHARP)
            set_superbasic_columns(D, w)
            if verdict == ix.OUTSIDE and not search_phase_one(D, w):
                return ix.GIVEN_UP
    return ix.GIVEN_UP


@inner
def solve_sample_decision(
    D: ProgramData,
    states: States,
    slot: int,
    default: States,
    outcome: CompiledSolutions,
    i: int,
    centred: bool,
    w: Workspace,
) -> None:
    """Solve the loaded sample for its decision, and write the results to row i of ``outcome``.

    If multipliers are not unique and ``centred`` is True, they are chosen such that few of them are zero. Only the
    primal method does so. It therefore solves the sample again if the dual method has left a tight constraint with a
    multiplier of zero.
    """
    if solve_sample_by_dual(D, states, slot, default, np.int64(0), outcome, i, w):
        if not (centred and outcome.weak[i]):
            return
        mark_unchecked_solution(outcome, i)
    code = solve_sample_from_start(D, states, slot, default, np.int64(0), w)
    if code == ix.CLOSE:
        mark_checked_working_set(D, w)
        write_checked_solution(D, outcome, i, w)
        outcome.code[i] = code
    elif code == ix.SOLVED:
        held = make_tight_nonbasic(w)
        if not centred or check_centred_solution(D, w):
            write_solved_sample(D, states, slot, outcome, i, held, w)
