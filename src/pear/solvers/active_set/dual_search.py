"""The dual search: constraints are added, one at a time, to the minimum without inequalities.

It solves programs that share the equality rows and the Hessian, which is positive definite on the null space of these
rows. ``DualPlan`` defines the matrices P, Y and K. For the cost c and the right-hand sides b of the equalities, the
minimum without inequalities is x₀ = Yb − Pc. A multiplier μ of constraint i lowers the value of constraint j by Kᵢⱼ μ.
The search computes with the values of the constraints alone, so that its cost does not depend on the number of
equalities. Constraint i stands for the bounds of variable i if i < n, else for an inequality row.
"""

from __future__ import annotations

import math

from pear.compile.jit import inner, span
from pear.optimality.rule import RANK
from pear.solvers.active_set import kernel_arrays as ix
from pear.solvers.active_set.dual_working_set import (
    drop_from_dual_working_set,
    dual_working_set_limit,
    empty_dual_working_set,
)
from pear.solvers.active_set.gram_matrix import (
    add_gram_rows,
    append_gram_factor_row,
    gram_constraint_value,
    gram_row,
    gram_size,
    solve_transposed_gram_factor,
)
from pear.solvers.active_set.kernel_arrays import ProgramData, Workspace
from pear.solvers.active_set.settings import DUAL_DRIFT


@inner
def run_dual_search(D: ProgramData, w: Workspace) -> bool:
    """Add violated constraints to the working set until none is left.

    Returns:
        False if a constraint cannot be met, or if the search does not end.
    """
    for _ in span(20 * gram_size(D) + 100):
        entering = most_violated_in_dual_search(D, w)
        if entering < 0:
            return True
        if not add_in_dual_search(D, w, entering):
            return False
    return False


@inner
def start_dual_search(D: ProgramData, w: Workspace) -> None:
    """Set ``w.value`` to the values of all constraints at the minimum without inequalities, and empty the working set.

    ``w.number[DRIFT]`` becomes the largest violation that rounding can explain.
    """
    n, N = D.n, gram_size(D)
    empty_dual_working_set(D, w)
    largest = 0.0
    for j in span(n):
        s = 0.0
        for k in span(D.equalities):
            s += D.origin[j, k] * w.rhs[k]
        for i in span(n):
            s -= D.response[j, i] * w.c[i]
        w.value[j] = s
        largest = max(largest, abs(s))
    for i in span(n, N):
        s = 0.0
        for j in span(n):
            s += D.J[D.equalities + i - n, j] * w.value[j]
        w.value[i] = s
        largest = max(largest, abs(s))
    w.number[ix.DRIFT] = DUAL_DRIFT * largest


@inner
def most_violated_in_dual_search(D: ProgramData, w: Workspace) -> int:
    """Return the constraint i with the largest violation in units of √Kᵢᵢ; −1 if no constraint is violated.

    Kᵢᵢ, the diagonal entry of the Gram matrix, is how far one unit of the multiplier moves the constraint's value.
    """
    n, slop = D.n, w.number[ix.DRIFT]
    found, worst = -1, 0.0
    for i in span(n):
        wrong = max(w.lo[i] - w.value[i], w.value[i] - w.up[i]) - slop
        if wrong * w.weight[i] > worst:
            found, worst = i, wrong * w.weight[i]
    for i in span(n, gram_size(D)):
        wrong = w.value[i] - dual_working_set_limit(D, w, i, ix.UPPER) - slop
        if wrong * w.weight[i] > worst:
            found, worst = i, wrong * w.weight[i]
    return found


@inner
def add_in_dual_search(D: ProgramData, w: Workspace, entering: int) -> bool:
    """Change the multiplier of a violated constraint until the constraint is met.

    Constraints of the working set whose multipliers reach zero are dropped on the way. A constraint whose value the
    equalities fix is left as it is.

    Returns:
        False if the constraint contradicts those of the working set.
    """
    room = gram_row(D, w, entering)[entering]
    if w.weight[entering] == 0.0:  # the equalities fix its value, as its row of K says
        return True
    above = w.value[entering] > dual_working_set_limit(D, w, entering, ix.UPPER)
    side, goal = 1.0 if above else -1.0, dual_working_set_limit(D, w, entering, ix.UPPER if above else ix.LOWER)
    multiplier = 0.0
    while True:
        size = w.tally[ix.WORKING]
        pivot = append_gram_factor_row(D, w, entering)
        for a in span(size):
            w.pull[a] = w.L[size, a]
        solve_transposed_gram_factor(w, size, w.pull)
        independent = pivot > RANK * room and size < len(w.L) - 1
        full = abs(w.value[entering] - goal) / pivot if independent else math.inf
        partial, leaving = math.inf, -1
        for a in span(size):
            rate = side * w.pull[a]
            if rate * w.force[a] > 0.0 and w.force[a] / rate < partial:
                partial, leaving = w.force[a] / rate, a
        length = min(full, partial)
        if length == math.inf:
            return False
        multiplier += side * length
        move_dual_search_values(D, w, entering, side * length)
        if full <= partial:
            w.L[size, size] = math.sqrt(pivot)
            w.sup[size], w.force[size], w.value[entering] = entering, multiplier, goal
            w.tally[ix.WORKING] += 1
            w.tally[ix.CHANGES] += 1
            return True
        drop_from_dual_working_set(w, leaving)


@inner
def move_dual_search_values(D: ProgramData, w: Workspace, entering: int, change: float) -> None:
    """Change the multiplier of the entering constraint, and update the other multipliers and all values."""
    if change == 0.0:
        return
    for a in span(w.tally[ix.WORKING]):
        w.pull[a] *= change
        w.force[a] -= w.pull[a]
    row = gram_row(D, w, entering)
    for i in span(gram_size(D)):
        w.value[i] -= change * row[i]
    add_gram_rows(D, w)


@inner
def restart_dual_search(D: ProgramData, w: Workspace) -> None:
    """Set ``w.value`` to the values of all constraints at the refined point ``w.x``.

    These values have smaller rounding errors than those that the search has updated step by step.
    """
    largest = 0.0
    for i in span(gram_size(D)):
        w.value[i] = gram_constraint_value(D, w.x, i)
        largest = max(largest, abs(w.value[i]))
    w.number[ix.DRIFT] = DUAL_DRIFT * largest
