"""The dual active-set method: constraints are added, one at a time, to the minimum without inequalities.

It serves strictly convex programs that share the Hessian H and the equalities. ``dual_plan.make_dual_plan`` computes
once what all samples need: the minimum without inequalities is ``x₀ = Yb − Pc``, and a multiplier μᵢ of constraint i
moves the value of constraint j by ``−Kⱼᵢ μᵢ``, with K = C P Cᵀ and C = [I; G]. The search works with these values
alone, so that its cost does not depend on the number of equalities. Constraints are numbered by variable, then by
inequality.
Where samples have rows of their own, each computes a row of K when the constraint first enters the working set.
"""

from __future__ import annotations

import math

from pear.compile.jit import inner, span
from pear.optimality.rule import RANK
from pear.solvers.active_set import kernel_arrays as ix
from pear.solvers.active_set.kernel_arrays import Array, ProgramData, States, Workspace
from pear.solvers.active_set.program_products import positive_or_one
from pear.solvers.active_set.settings import DUAL_DRIFT


@inner
def search_dual(D: ProgramData, w: Workspace) -> bool:
    """Add violated constraints to the working set in ``w`` until none is left.

    Returns:
        False where a constraint cannot be met, or where the search does not end.
    """
    for _ in span(20 * count_constraints(D) + 100):
        entering = most_violated_constraint(D, w)
        if entering < 0:
            return True
        if not add_constraint(D, w, entering):
            return False
    return False


@inner
def count_constraints(D: ProgramData) -> int:
    """Return the number of bounds and inequalities."""
    return D.n + len(D.J) - D.equalities


@inner
def begin_dual(D: ProgramData, w: Workspace) -> None:
    """Empty the working set, and set the weights of the constraints.

    Where samples have rows of their own, the weight of a row is estimated from the diagonal of P until its row of K is
    known.
    """
    n, N = D.n, count_constraints(D)
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


@inner
def gram_row(D: ProgramData, w: Workspace, i: int) -> Array:
    """Return the row of K of constraint i; it is computed on first use where the sample has rows of its own."""
    if len(D.gram) > 0:
        return D.gram[i]
    if w.gram_at[i] < 0:
        set_gram_row(D, w, i)
    return w.gram[w.gram_at[i]]


@inner
def set_gram_row(D: ProgramData, w: Workspace, i: int) -> None:
    """Compute the row of K of constraint i; its weight becomes 0 where the equalities fix its value."""
    n, p, out = D.n, D.equalities, w.gram[w.tally[ix.GRAM_ROWS]]
    w.gram_at[i] = w.tally[ix.GRAM_ROWS]
    w.tally[ix.GRAM_ROWS] += 1
    room = 0.0
    for j in span(n):
        out[j] = D.response[i, j] if i < n else 0.0
    if i >= n:
        for k in span(n):
            entry = D.J[p + i - n, k]
            if entry != 0.0:
                curvature = D.smoothing + (D.sign * D.Q[k, k] if len(D.Q) > 0 else 0.0)
                room += entry**2 / positive_or_one(curvature if curvature > 0.0 else w.number[ix.MAX_CURVATURE])
                for j in span(n):
                    out[j] += entry * D.response[k, j]
    for k in span(n, count_constraints(D)):
        s = 0.0
        for j in span(n):
            s += D.J[p + k - n, j] * out[j]
        out[k] = s
    if not out[i] > RANK * room:
        w.weight[i] = 0.0


@inner
def set_free_minimum(D: ProgramData, w: Workspace) -> None:
    """Set ``w.value`` to the values of all constraints at the minimum without inequalities, and empty the working set.

    ``w.drift`` is the largest value that rounding can explain.
    """
    n, N = D.n, count_constraints(D)
    begin_dual(D, w)
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
def lower_limit(D: ProgramData, w: Workspace, i: int) -> float:
    """Return the lower limit of constraint i; rows have none."""
    return w.lo[i] if i < D.n else -math.inf


@inner
def upper_limit(D: ProgramData, w: Workspace, i: int) -> float:
    """Return the upper limit of constraint i, infinite where the row is absent."""
    if i < D.n:
        return w.up[i]
    k = D.equalities + i - D.n
    return w.rhs[k] if w.lo[D.n + k] > -math.inf else math.inf


@inner
def most_violated_constraint(D: ProgramData, w: Workspace) -> int:
    """Return the constraint i with the largest violation in units of √Kᵢᵢ; −1 where no constraint is violated.

    Kᵢᵢ is how far a unit of the constraint's multiplier moves its value.
    """
    n, slop = D.n, w.number[ix.DRIFT]
    found, worst = -1, 0.0
    for i in span(n):
        wrong = max(w.lo[i] - w.value[i], w.value[i] - w.up[i]) - slop
        if wrong * w.weight[i] > worst:
            found, worst = i, wrong * w.weight[i]
    for i in span(n, count_constraints(D)):
        wrong = w.value[i] - upper_limit(D, w, i) - slop
        if wrong * w.weight[i] > worst:
            found, worst = i, wrong * w.weight[i]
    return found


@inner
def add_constraint(D: ProgramData, w: Workspace, entering: int) -> bool:
    """Raise the multiplier of a violated constraint until it is met, and drop constraints whose multipliers reach zero.

    Returns:
        False where the constraint contradicts those of the working set.
    """
    room = gram_row(D, w, entering)[entering]
    if w.weight[entering] == 0.0:  # the equalities fix its value, as its row of K says
        return True
    above = w.value[entering] > upper_limit(D, w, entering)
    side, goal = (1.0, upper_limit(D, w, entering)) if above else (-1.0, lower_limit(D, w, entering))
    multiplier = 0.0
    while True:
        size = w.tally[ix.WORKING]
        pivot = append_factor_row(D, w, entering)
        for a in span(size):
            w.pull[a] = w.L[size, a]
        solve_transposed_factor(w, size, w.pull)
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
        move_values(D, w, entering, side * length)
        if full <= partial:
            w.L[size, size] = math.sqrt(pivot)
            w.sup[size], w.force[size], w.value[entering] = entering, multiplier, goal
            w.tally[ix.WORKING] += 1
            w.tally[ix.CHANGES] += 1
            return True
        drop_constraint(w, leaving)


@inner
def move_values(D: ProgramData, w: Workspace, entering: int, change: float) -> None:
    """Change the multiplier of the entering constraint, and update the other multipliers and all constraint values."""
    if change == 0.0:
        return
    for a in span(w.tally[ix.WORKING]):
        w.pull[a] *= change
        w.force[a] -= w.pull[a]
    row = gram_row(D, w, entering)
    for i in span(count_constraints(D)):
        w.value[i] -= change * row[i]
    add_gram_rows(D, w)


@inner
def add_gram_rows(D: ProgramData, w: Workspace) -> None:
    """Update the values of all constraints for a change ``w.pull`` of the multipliers in the working set.

    The change is the sum of the working set's rows of the Gram matrix, times ``w.pull``. Four rows are added at a time,
    because reading and writing the values would cost more than the products.
    """
    N, size = count_constraints(D), w.tally[ix.WORKING]
    whole = size - size % 4
    for a in range(0, whole, 4):
        r0, r1 = gram_row(D, w, w.sup[a]), gram_row(D, w, w.sup[a + 1])
        r2, r3 = gram_row(D, w, w.sup[a + 2]), gram_row(D, w, w.sup[a + 3])
        f0, f1, f2, f3 = w.pull[a], w.pull[a + 1], w.pull[a + 2], w.pull[a + 3]
        for i in span(N):
            w.value[i] += f0 * r0[i] + f1 * r1[i] + f2 * r2[i] + f3 * r3[i]
    for a in span(whole, size):
        row, factor = gram_row(D, w, w.sup[a]), w.pull[a]
        for i in span(N):
            w.value[i] += factor * row[i]


@inner
def drop_constraint(w: Workspace, leaving: int) -> None:
    """Drop the constraint at a position of the working set, and update the factor by rotations."""
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
def append_factor_row(D: ProgramData, w: Workspace, entering: int) -> float:
    """Write the row that a constraint would add to the factor L of K_WW; return the square of its pivot."""
    size, row = w.tally[ix.WORKING], gram_row(D, w, entering)
    pivot = row[entering]
    for a in span(size):
        s = row[w.sup[a]]
        for b in span(a):
            s -= w.L[a, b] * w.L[size, b]
        s /= w.L[a, a]
        w.L[size, a] = s
        pivot -= s * s
    return pivot


@inner
def hold_constraint(D: ProgramData, w: Workspace, i: int) -> float:
    """Add a constraint to the working set with multiplier zero, unless it depends on the others.

    Returns:
        The pivot, relative to its largest possible size.
    """
    size, room = w.tally[ix.WORKING], gram_row(D, w, i)[i]
    pivot = append_factor_row(D, w, i) if w.weight[i] > 0.0 and size < len(w.L) - 1 else 0.0
    if not pivot > RANK * room:
        return pivot / room if room > 0.0 else 0.0
    w.L[size, size] = math.sqrt(pivot)
    w.sup[size], w.force[size] = i, 0.0
    w.tally[ix.WORKING] = size + 1
    return pivot / room


@inner
def solve_factor(w: Workspace, size: int, v: Array) -> None:
    """Solve L u = v in place."""
    for a in span(size):
        s = v[a]
        for b in span(a):
            s -= w.L[a, b] * v[b]
        v[a] = s / w.L[a, a]


@inner
def solve_transposed_factor(w: Workspace, size: int, v: Array) -> None:
    """Solve Lᵀu = v in place."""
    for a in range(size - 1, -1, -1):
        s = v[a] / w.L[a, a]
        v[a] = s
        for b in span(a):
            v[b] -= w.L[a, b] * s


@inner
def load_working_set(D: ProgramData, w: Workspace, states: States, slot: int) -> None:
    """Begin with the working set in ``states[slot]``, and drop its constraints whose multipliers have a wrong sign.

    The values of the free minimum must be in ``w.value``.
    """
    n = D.n
    for i in span(count_constraints(D)):
        place = states.place[slot, i if i < n else D.equalities + i]
        if place == ix.LOWER or place == ix.UPPER:
            limit = lower_limit(D, w, i) if i < n and place == ix.LOWER else upper_limit(D, w, i)
            if abs(limit) < math.inf:
                hold_constraint(D, w, i)
    wrong = True
    while wrong and w.tally[ix.WORKING] > 0:
        wrong = False
        size = w.tally[ix.WORKING]
        for a in span(size):
            w.force[a] = w.value[w.sup[a]] - working_limit(D, w, states, slot, w.sup[a])
        solve_factor(w, size, w.force)
        solve_transposed_factor(w, size, w.force)
        for a in range(size - 1, -1, -1):
            i = w.sup[a]
            at_lower = i < n and states.place[slot, i] == ix.LOWER
            pinned = i < n and w.lo[i] == w.up[i]
            if not pinned and (w.force[a] > 0.0 if at_lower else w.force[a] < 0.0):
                drop_constraint(w, a)
                wrong = True
    for a in span(w.tally[ix.WORKING]):
        w.pull[a] = -w.force[a]
    add_gram_rows(D, w)


@inner
def working_limit(D: ProgramData, w: Workspace, states: States, slot: int, i: int) -> float:
    """Return the limit at which a saved working set holds constraint i."""
    return lower_limit(D, w, i) if i < D.n and states.place[slot, i] == ix.LOWER else upper_limit(D, w, i)
