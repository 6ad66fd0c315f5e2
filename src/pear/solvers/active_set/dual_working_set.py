"""The working set of the dual method: the constraints that it holds, each at one of its limits.

``w.sup`` lists the constraints, numbered as in ``gram_matrix``, and ``w.force`` their multipliers.
"""

from __future__ import annotations

import math

from pear.compile.jit import inner, span
from pear.optimality.rule import RANK, ROUNDOFF
from pear.solvers.active_set import kernel_arrays as ix
from pear.solvers.active_set.compiled_sizes import largest_compiled_size
from pear.solvers.active_set.gram_matrix import (
    add_gram_rows,
    append_gram_factor_row,
    gram_row,
    gram_size,
    solve_gram_factor,
    solve_transposed_gram_factor,
)
from pear.solvers.active_set.kernel_arrays import ProgramData, States, Workspace


@inner
def dual_working_set_limit(D: ProgramData, w: Workspace, i: int, place: int) -> float:
    """Return the limit of constraint i on the side ``place``, which is LOWER or UPPER.

    An inequality row has an upper limit only, which is infinite if the row is absent.
    """
    if i < D.n:
        return w.lo[i] if place == ix.LOWER else w.up[i]
    k = D.equalities + i - D.n
    return w.rhs[k] if w.lo[D.n + k] > -math.inf else math.inf


@inner
def hold_in_dual_working_set(D: ProgramData, w: Workspace, i: int) -> float:
    """Add constraint i to the working set with multiplier zero, unless it depends on the others or there is no room.

    Returns:
        The square of the constraint's pivot, relative to the largest possible one. It is at most the threshold RANK if
        the constraint was not added.
    """
    size, room = w.tally[ix.WORKING], gram_row(D, w, i)[i]
    pivot = append_gram_factor_row(D, w, i) if w.weight[i] > 0.0 and size < len(w.L) - 1 else 0.0
    if not pivot > RANK * room:
        return pivot / room if room > 0.0 else 0.0
    w.L[size, size] = math.sqrt(pivot)
    w.sup[size], w.force[size] = i, 0.0
    w.tally[ix.WORKING] = size + 1
    return pivot / room


@inner
def drop_from_dual_working_set(w: Workspace, leaving: int) -> None:
    """Drop the constraint at position ``leaving`` of the working set, and update the factor by rotations."""
    last = w.tally[ix.WORKING] - 1
    for a in span(leaving, last):
        w.sup[a], w.force[a] = w.sup[a + 1], w.force[a + 1]
        for b in span(a + 2):
            w.L[a, b] = w.L[a + 1, b]
    for a in span(leaving, last):
        radius = math.hypot(w.L[a, a], w.L[a, a + 1])
        cosine, sine = w.L[a, a] / radius, w.L[a, a + 1] / radius
        w.L[a, a], w.L[a, a + 1] = radius, 0.0
        for b in span(a + 1, last):
            x, y = w.L[b, a], w.L[b, a + 1]
            w.L[b, a], w.L[b, a + 1] = cosine * x + sine * y, cosine * y - sine * x
    w.tally[ix.WORKING] = last
    w.tally[ix.CHANGES] += 1


@inner
def load_dual_working_set(D: ProgramData, w: Workspace, states: States, slot: int) -> None:
    """Load the working set in ``states[slot]``, and drop its constraints whose multipliers have a wrong sign.

    ``w.value`` must hold the values of the constraints at the minimum without inequalities.
    """
    n = D.n
    for i in span(gram_size(D)):
        place = states.place[slot, i if i < n else D.equalities + i]
        held = place == ix.LOWER or place == ix.UPPER
        if held and abs(dual_working_set_limit(D, w, i, place)) < math.inf:
            hold_in_dual_working_set(D, w, i)
    wrong = True
    while wrong and w.tally[ix.WORKING] > 0:
        wrong = False
        size = w.tally[ix.WORKING]
        for a in span(size):
            w.force[a] = w.value[w.sup[a]] - dual_working_set_limit(D, w, w.sup[a], states.place[slot, w.sup[a]])
        solve_gram_factor(w, size, w.force)
        solve_transposed_gram_factor(w, size, w.force)
        for a in range(size - 1, -1, -1):
            i = w.sup[a]
            at_lower = i < n and states.place[slot, i] == ix.LOWER
            pinned = i < n and w.lo[i] == w.up[i]
            if not pinned and (w.force[a] > 0.0 if at_lower else w.force[a] < 0.0):
                drop_from_dual_working_set(w, a)
                wrong = True
    for a in span(w.tally[ix.WORKING]):
        w.pull[a] = -w.force[a]
    add_gram_rows(D, w)


@inner
def save_dual_working_set(D: ProgramData, states: States, slot: int, w: Workspace) -> None:
    """Save the point and the working set in ``states[slot]`` as a start of the dual method, without a basis."""
    R, n = D.J.shape
    states.has_start[slot] = ix.DUAL_START
    for v in span(n + R):
        states.place[slot, v] = w.place[v]
        states.x[slot, v] = w.x[v] if v < n else 0.0


@inner
def factor_dual_working_set(D: ProgramData, states: States, slot: int, w: Workspace) -> None:
    """Load the working set of the solution in ``states[slot]`` and factor it, for a projection at the solution."""
    empty_dual_working_set(D, w)
    for i in span(gram_size(D)):
        if states.place[slot, i if i < D.n else D.equalities + i] != ix.SUPER:
            hold_in_dual_working_set(D, w, i)


@inner
def is_dual_working_set_kept(D: ProgramData, states: States, slot: int, w: Workspace) -> bool:
    """Return True if the solution in the workspace has the working set that ``states[slot]`` holds.

    The number of changes cannot tell this, because a constraint with multiplier zero may leave the set and return.
    """
    if states.has_start[slot] != ix.DUAL_START:
        return False
    for v in span(len(D.J) + D.n):  # noqa: SIM110 (a plain loop is what compiles well)
        if states.place[slot, v] != w.place[v]:
            return False
    return True


@inner
def mark_dual_working_set(D: ProgramData, w: Workspace) -> None:
    """Write the places of all variables and slacks: SUPER, or the limit at which the working set holds them.

    A variable in the working set is held at the limit that is nearer to its value.
    """
    R, n = D.J.shape
    for v in span(n + R):
        w.place[v] = ix.SUPER
    for k in span(D.equalities):
        w.place[n + k] = ix.LOWER
    for a in span(w.tally[ix.WORKING]):
        i = w.sup[a]
        nearer_upper = i < n and not abs(w.value[i] - w.lo[i]) <= abs(w.up[i] - w.value[i])
        w.place[i if i < n else D.equalities + i] = ix.UPPER if nearer_upper else ix.LOWER


@inner
def held_dual_working_set_limit(D: ProgramData, w: Workspace, i: int) -> float:
    """Return the limit at which the working set holds constraint i."""
    return dual_working_set_limit(D, w, i, w.place[i])


@inner
def hold_tight_in_dual_working_set(D: ProgramData, w: Workspace) -> bool:
    """Add every tight constraint to the working set, unless it depends on others.

    Returns:
        False if a constraint is nearly parallel to others, so that it cannot be added although it does not depend on
        them.
    """
    n, p, parallel = D.n, D.equalities, 0
    for i in span(gram_size(D)):
        v = i if i < n else p + i
        if w.held[v] != 0 and w.place[v] == ix.SUPER:
            if (
                not hold_in_dual_working_set(D, w, i) > RANK
                and w.weight[i] > 0.0
                and not depends_on_dual_working_set(D, w, i)
            ):
                parallel += 1
            w.place[v] = ix.LOWER if w.held[v] == 1 else ix.UPPER
    return parallel == 0


@inner
def depends_on_dual_working_set(D: ProgramData, w: Workspace, i: int) -> bool:
    """Return True if the row of constraint i is a combination of the rows in the working set, up to rounding.

    The result is also True if the factor has no room for another constraint. The pivot of the constraint cannot decide
    this: it is the square of the distance between the row and the nearest combination, and is lost to rounding even if
    the rows are only nearly parallel. The caller has called ``hold_in_dual_working_set`` for the constraint, which
    writes the row of the factor that is read here.
    """
    n, size, row = D.n, w.tally[ix.WORKING], gram_row(D, w, i)
    if size == len(w.L) - 1:
        return True
    for a in span(size):
        w.pull[a] = w.L[size, a]
    solve_transposed_gram_factor(w, size, w.pull)
    for j in span(n):
        w.step[j] = row[j]
    for a in span(size):
        held = gram_row(D, w, w.sup[a])
        for j in span(n):
            w.step[j] -= w.pull[a] * held[j]
    return largest_compiled_size(w.step, n) <= ROUNDOFF * largest_compiled_size(row, n)


@inner
def empty_dual_working_set(D: ProgramData, w: Workspace) -> None:
    """Empty the working set, and set the weights of the constraints, which ``DualPlan`` defines.

    If samples have rows of their own, the weight of a row is estimated from the diagonal of ``DualPlan.response``.
    Later, when the row's entries of the Gram matrix are computed, the weight becomes 0 if the equalities fix the value
    of the constraint.
    """
    n, N = D.n, gram_size(D)
    w.tally[ix.WORKING] = w.tally[ix.GRAM_ROWS] = 0
    for i in span(len(D.weight)):
        w.weight[i] = D.weight[i]
    if len(D.gram) > 0:
        return
    for i in span(N):
        w.gram_at[i] = -1
    for i in span(n, N):
        s = 0.0
        for j in span(n):
            s += D.J[D.equalities + i - n, j] ** 2 * D.response[j, j]
        w.weight[i] = 1.0 / math.sqrt(s) if s > 0.0 else 0.0
