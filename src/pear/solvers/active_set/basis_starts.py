"""Starts of the primal method: the slack basis, a feasible working set, and the warm start of a sample."""

from __future__ import annotations

import math

from pear.compile.jit import inner, span
from pear.solvers.active_set import kernel_arrays as ix
from pear.solvers.active_set.basis_and_superbasics import set_nonbasic_variables
from pear.solvers.active_set.compiled_sizes import compiled_size_or_one, measure_compiled_least_size
from pear.solvers.active_set.kernel_arrays import ProgramData, States, Workspace
from pear.solvers.active_set.search_phases import search_phase_one
from pear.solvers.active_set.settings import FAR, PIVOT


@inner
def find_feasible_basis_start(D: ProgramData, w: Workspace) -> bool:
    """Find a feasible point by phase one of the search, from the slack basis; return False if none is found."""
    set_slack_basis_start(D, w)
    w.number[ix.PIVOT] = PIVOT
    return set_nonbasic_variables(D, w) and search_phase_one(D, w)


@inner
def find_own_basis_start(D: ProgramData, w: Workspace) -> bool:
    """Find a feasible start for the loaded sample, as if its cost were zero; return False if none is found."""
    least = w.number[ix.LEAST_SIZE]
    for j in span(D.n):
        w.error[j], w.c[j] = w.c[j], 0.0
    measure_compiled_least_size(D, w)
    found = find_feasible_basis_start(D, w)
    for j in span(D.n):
        w.c[j] = w.error[j]
    w.number[ix.LEAST_SIZE] = least
    w.tally[ix.CHANGES] = 1
    return found


@inner
def set_slack_basis_start(D: ProgramData, w: Workspace) -> None:
    """Set the start that every program has: no variable is basic, and all slacks are.

    A variable starts at its lower bound; if this is infinite or far larger than right-hand sides and costs, at its
    upper bound; and if both are, FREE, at zero. At a far larger bound, a slack of size 1 would be lost to rounding.
    """
    R, n = D.J.shape
    size, curvature = 0.0, w.number[ix.MAX_CURVATURE]
    for j in span(n):
        size = max(size, abs(w.c[j]) / curvature if curvature > 0.0 else 0.0)
    for k in span(R):
        size = max(size, abs(w.rhs[k]) / compiled_size_or_one(math.sqrt(w.norm[k])))
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
def load_basis_start(D: ProgramData, states: States, slot: int, w: Workspace) -> None:
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
def save_basis_start(D: ProgramData, states: States, slot: int, moved: bool, w: Workspace) -> None:
    """Save the working set as the start in ``states[slot]``.

    Args:
        D: the program.
        states: the starts.
        slot: the row to write.
        moved: whether the basis has changed since it was loaded. If not, the basis and its inverse are saved only if
            the inverse has been computed anew, which its age shows.
        w: the workspace.
    """
    states.has_start[slot] = ix.BASIS_START
    for j in span(len(D.J) + D.n):
        states.x[slot, j], states.place[slot, j] = w.x[j], w.place[j]
    if moved or states.age[slot] != w.tally[ix.AGE]:
        for b in span(len(w.inverse)):
            states.basis[slot, b] = w.basis[b]
            for k in span(len(w.inverse)):
                states.inverse[slot, b, k] = w.inverse[b, k]
        states.age[slot] = w.tally[ix.AGE]
