"""The two phases of the primal search: the first finds a feasible point, the second descends from it to the minimum."""

from __future__ import annotations

import math

from pear.compile.jit import inner, span
from pear.optimality.rule import ROUNDOFF, SHARE_OF_SIZE
from pear.solvers.active_set import kernel_arrays as ix
from pear.solvers.active_set.basis_and_superbasics import (
    apply_basis_inverse,
    drop_superbasic,
    is_basic_rate_rounding,
    is_column_entry_rounding,
    make_superbasic,
    rebalance_basis,
    replace_basic_variable,
    swap_basic_and_superbasic,
)
from pear.solvers.active_set.compiled_sizes import largest_compiled_size
from pear.solvers.active_set.kernel_arrays import ProgramData, Workspace
from pear.solvers.active_set.multipliers import (
    measure_multiplier_sizes,
    most_wrong_multiplier,
    multiplier_sign_violation,
    set_multipliers,
    subtract_multipliers_from_gradient,
)
from pear.solvers.active_set.program_products import (
    add_abs_column_products,
    move_with_hessian_product,
    set_gradient_by_hessian_product,
)
from pear.solvers.active_set.reduced_hessian import factorise_reduced_hessian, solve_reduced_hessian
from pear.solvers.active_set.settings import ROUNDING, STALLED, START_SLOP


@inner
def search_phase_one(D: ProgramData, w: Workspace) -> bool:
    """Find a feasible point by minimising the sum of infeasibilities; return False if none is found."""
    R, n = D.J.shape
    N = n + R
    stalled = 0
    for _ in span(20 * N + 100):
        infeasible = False
        largest = 0.0
        for j in span(n):
            largest = max(largest, abs(w.x[j]))
        for k in span(R):
            w.y[k] = 0.0
        for b in span(R):
            v = w.basis[b]
            side = violated_side_in_phase_one(w, v, n, SHARE_OF_SIZE * largest)
            w.step[b] = side
            if side != 0.0:
                infeasible = True
                for k in span(R):
                    w.y[k] += side * w.inverse[b, k]
        if not infeasible:
            return True
        for j in span(n):
            w.grad[j] = w.dual_scale[j] = 0.0
        subtract_multipliers_from_gradient(D, w)
        add_abs_column_products(D, w.y, w.dual_scale)
        entering, best = -1, w.number[ix.PIVOT]
        for j in span(N):
            place = w.place[j]
            if place == ix.BASIC or w.lo[j] == w.up[j]:
                continue
            size = w.dual_scale[j] if j < n else abs(w.y[j - n])
            gain = multiplier_sign_violation(place, w.reduced[j])
            if size > 0.0 and gain > best * size:
                entering, best = j, gain / size
                if stalled > STALLED:
                    break
        if entering < 0:
            return False
        length = take_phase_one_step(D, w, entering, -1.0 if w.reduced[entering] > 0.0 else 1.0)
        if length == math.inf:
            return False
        stalled = 0 if length > 0.0 else stalled + 1
    return False


@inner
def violated_side_in_phase_one(w: Workspace, v: int, n: int, spread: float) -> float:
    """Return −1 if variable v is below its lower bound, 1 if it is above its upper bound, and 0 if it is between them.

    Violations that rounding explains do not count. Rounding is relative to a natural size
    (``pear.optimality.natural_sizes``): for a slack, the size of the terms of its row at the start; for another
    variable, its own size, but at least ``spread``.

    Args:
        w: the workspace.
        v: the variable, or slack.
        n: the number of variables without slacks.
        spread: the natural size of a variable near zero, which rounding in the other variables moves.
    """
    size = max(abs(w.x[v]), min(spread, w.up[v] - w.lo[v])) if v < n else w.terms[v - n]
    slop = START_SLOP * size
    if w.x[v] < w.lo[v] - slop:
        return -1.0
    return 1.0 if w.x[v] > w.up[v] + slop else 0.0


@inner
def shift_in_phase_one(w: Workspace, v: int, change: float) -> None:
    """Move a variable by ``change``. If it ends within rounding of a bound, put it exactly there."""
    x = w.x[v]
    slop = ROUNDING * (abs(x) + abs(change))
    x += change
    if abs(x - w.lo[v]) <= slop:
        x = w.lo[v]
    elif abs(x - w.up[v]) <= slop:
        x = w.up[v]
    w.x[v] = x


@inner
def take_phase_one_step(D: ProgramData, w: Workspace, entering: int, direction: float) -> float:
    """Move one variable until a basic variable meets a bound, or until the variable meets its own opposite bound.

    A basic variable at its bound becomes nonbasic, and the variable that moves takes its place in the basis.

    Args:
        D: the program.
        w: the workspace.
        entering: the variable that moves.
        direction: 1 upwards, −1 downwards.

    Returns:
        The length of the step; infinite if no bound is met.
    """
    R = len(w.inverse)
    apply_basis_inverse(D, entering, w, w.column)
    length, leaving, place = phase_one_ratio_test(w, entering, direction)
    while leaving >= 0 and is_column_entry_rounding(D, w, leaving, entering):
        w.column[leaving] = 0.0
        length, leaving, place = phase_one_ratio_test(w, entering, direction)
    if length == math.inf:
        return length
    far = w.up[entering] if direction > 0.0 else w.lo[entering]
    for b in span(R):
        shift_in_phase_one(w, w.basis[b], -direction * length * w.column[b])
    shift_in_phase_one(w, entering, direction * length)
    w.tally[ix.CHANGES] += 1
    for t in span(w.tally[ix.SUPERS]):
        if w.sup[t] == entering:
            drop_superbasic(w, t)
            break
    if leaving < 0:
        w.place[entering] = place
        w.x[entering] = far
        return length
    gone = w.basis[leaving]
    replace_basic_variable(w, leaving, w.column)
    w.basis[leaving] = entering
    w.place[entering] = ix.BASIC
    w.place[gone] = place
    w.x[gone] = w.up[gone] if place == ix.UPPER else w.lo[gone]
    return length


@inner
def phase_one_ratio_test(w: Workspace, entering: int, direction: float) -> tuple[float, int, int]:
    """Find how far a variable can move until a basic variable, or the variable itself, meets a bound.

    Args:
        w: the workspace. For each basic variable, ``w.column`` has the rate at which it falls as the other variable
            rises, and ``w.step`` the side that it violates, as ``violated_side_in_phase_one`` returns it.
        entering: the variable that moves.
        direction: 1 upwards, −1 downwards.

    Returns:
        The length of the step, infinite if no bound is met; the position of the basic variable that meets a bound, −1
        if it is the variable itself; and the place of the variable that meets its bound.
    """
    R = len(w.inverse)
    largest, rate_taken = largest_compiled_size(w.column, R), 0.0
    far = w.up[entering] if direction > 0.0 else w.lo[entering]
    length, leaving, place = abs(far - w.x[entering]), -1, ix.UPPER if direction > 0.0 else ix.LOWER
    for b in span(R):
        rate = -direction * w.column[b]
        if abs(rate) <= w.number[ix.PIVOT] * largest:
            continue
        v, side = w.basis[b], w.step[b]
        if side == 0.0:
            goal = w.up[v] if rate > 0.0 else w.lo[v]
        elif side * rate < 0.0:
            goal = w.lo[v] if side < 0.0 else w.up[v]
        else:
            continue
        step = max(0.0, (goal - w.x[v]) / rate)
        if step < length or (step == length and abs(rate) > abs(rate_taken)):
            length, leaving, rate_taken = step, b, rate
            place = ix.UPPER if goal == w.up[v] else ix.LOWER
    return length, leaving, place


@inner
def begin_phase_two(D: ProgramData, w: Workspace) -> None:
    """Make FREE variables superbasic, as long as the reduced Hessian has room for them."""
    for j in span(D.n):
        if w.place[j] == ix.FREE and w.tally[ix.SUPERS] < len(w.L) - 1:
            make_superbasic(D, w, j)


@inner
def search_phase_two(D: ProgramData, w: Workspace, careful: bool) -> bool:
    """Descend from a feasible point to a minimum whose multipliers have the right signs.

    Args:
        D: the program.
        w: the workspace.
        careful: whether every multiplier is compared with its natural size from the first step on. If False, this
            begins only after more than STALLED steps of length zero in a row.

    Returns:
        False if no such minimum is found.
    """
    N, most = len(D.J) + D.n, len(w.L) - 1
    stalled = 0
    set_gradient_by_hessian_product(D, w)
    at_minimum = w.tally[ix.SUPERS] == 0
    for _ in span(20 * N + 100):
        set_multipliers(D, w)
        if at_minimum:
            rough = not careful and stalled <= STALLED
            if not rough:
                measure_multiplier_sizes(D, w)
            entering = most_wrong_multiplier(D, w, rough, stalled > STALLED)
            if entering < 0:
                return True
            if w.tally[ix.SUPERS] == most:
                return False
            make_superbasic(D, w, entering)
            w.tally[ix.CHANGES] += 1
        longest = set_search_direction(D, w)
        if abs(longest) == math.inf and rebalance_basis(w):  # the direction may be flat only by rounding
            at_minimum = False
            continue
        length, met = find_phase_two_step(D, w, abs(longest))
        if longest == -math.inf and length == math.inf:  # the objective is constant: the opposite direction is as good
            reverse_search_direction(w)
            length, met = find_phase_two_step(D, w, length)
            if length == math.inf:
                hold_flat_search_variable(w)
                at_minimum = w.tally[ix.SUPERS] == 0
                continue
        if not length < math.inf or not take_phase_two_step(D, w, length, met):
            return False
        stalled = 0 if length > 0.0 else stalled + 1
        at_minimum = met < 0 or w.tally[ix.SUPERS] == 0
    return False


@inner
def reverse_search_direction(w: Workspace) -> None:
    """Reverse the search direction in ``w.along`` and ``w.column``."""
    for t in span(w.tally[ix.SUPERS]):
        w.along[t] = -w.along[t]
    for b in span(len(w.inverse)):
        w.column[b] = -w.column[b]


@inner
def hold_flat_search_variable(w: Workspace) -> None:
    """Make the superbasic variable along which the objective is constant nonbasic, at its present value.

    Its place becomes FREE, because all of its values are equally good.
    """
    t = w.tally[ix.FACTORED]
    w.place[w.sup[t]] = ix.FREE
    drop_superbasic(w, t)


@inner
def find_phase_two_step(D: ProgramData, w: Workspace, longest: float) -> tuple[float, int]:
    """Find the longest step as ``phase_two_ratio_test`` does, with rates that may be rounding errors set to zero.

    If rows depend on each other, the slack of one of them stays basic and does not move. Its computed rate is a
    rounding error. Without this function, the step could end at a bound of this slack, and the rate would be the pivot.
    """
    supers = w.tally[ix.SUPERS]
    length, met = phase_two_ratio_test(D, w, longest)
    while met >= supers and is_basic_rate_rounding(D, w, met - supers):
        w.column[met - supers] = 0.0
        length, met = phase_two_ratio_test(D, w, longest)
    return length, met


@inner
def phase_two_ratio_test(D: ProgramData, w: Workspace, longest: float) -> tuple[float, int]:
    """Find the longest step along ``w.along`` and ``w.column``, up to ``longest``, that stays within all bounds.

    Returns:
        The length; the number of the variable that meets its bound, −1 if none does. Superbasic variables are numbered
        first, then basic ones.
    """
    R, supers = len(D.J), w.tally[ix.SUPERS]
    largest = max(largest_compiled_size(w.along, supers), largest_compiled_size(w.column, R))
    length, met, rate_taken = longest, -1, 0.0
    for a in span(supers + R):
        v = w.sup[a] if a < supers else w.basis[a - supers]
        rate = w.along[a] if a < supers else w.column[a - supers]
        if abs(rate) <= ROUNDOFF * largest:
            continue
        goal = w.up[v] if rate > 0.0 else w.lo[v]
        step = max(0.0, (goal - w.x[v]) / rate)
        if step < length or (step == length and met >= 0 and abs(rate) > abs(rate_taken)):
            length, met, rate_taken = step, a, rate
    return length, met


@inner
def take_phase_two_step(D: ProgramData, w: Workspace, length: float, met: int) -> bool:
    """Move along ``w.along`` and ``w.column``, and put the variable that meets its bound there.

    A superbasic variable at its bound becomes nonbasic. A basic variable is replaced by the superbasic variable that
    moves it most.

    Args:
        D: the program.
        w: the workspace.
        length: the length of the step.
        met: the number of the variable that meets its bound, as ``phase_two_ratio_test`` returns it.

    Returns:
        False if no superbasic variable can replace a basic one.
    """
    R, supers = len(D.J), w.tally[ix.SUPERS]
    if length > 0.0:
        for t in span(supers):
            move_with_hessian_product(D, w, w.sup[t], length * w.along[t])
        for b in span(R):
            move_with_hessian_product(D, w, w.basis[b], length * w.column[b])
    if met < 0:
        return True
    v = w.sup[met] if met < supers else w.basis[met - supers]
    rate = w.along[met] if met < supers else w.column[met - supers]
    place = ix.UPPER if rate > 0.0 else ix.LOWER
    w.x[v] = w.up[v] if place == ix.UPPER else w.lo[v]
    w.tally[ix.CHANGES] += 1
    if met < supers:
        w.place[v] = place
        drop_superbasic(w, met)
        return True
    b, best = met - supers, 0
    for t in span(supers):
        if abs(w.W[t, b]) > abs(w.W[best, b]):
            best = t
    if w.W[best, b] == 0.0:
        return False
    swap_basic_and_superbasic(w, b, best, place)
    return True


@inner
def set_search_direction(D: ProgramData, w: Workspace) -> float:
    """Write the search direction to ``w.along`` (superbasic variables) and ``w.column`` (basic variables).

    Returns:
        The longest useful step: 1, which leads to the minimum, if the objective is curved; infinity if the objective is
        flat along the direction and falls; −infinity if it is constant along the direction.
    """
    R = len(D.J)
    supers = w.tally[ix.SUPERS]
    flat = factorise_reduced_hessian(D, w)
    longest = 1.0
    if flat < 0:
        for t in span(supers):
            w.along[t] = -w.reduced[w.sup[t]]
        solve_reduced_hessian(w, supers)
    else:
        # L[flat, :flat] holds L⁻¹ of the column, so that the flat direction needs the second half of the solve only
        for t in range(flat - 1, -1, -1):
            s = -w.L[flat, t]
            for a in span(t + 1, flat):
                s -= w.L[a, t] * w.along[a]
            w.along[t] = s / w.L[t, t]
        w.along[flat] = 1.0
        rise = size = 0.0
        for t in span(flat + 1):
            rise += w.reduced[w.sup[t]] * w.along[t]
            size += abs(w.reduced[w.sup[t]] * w.along[t])
        for t in span(flat + 1, supers):
            w.along[t] = 0.0
        if rise > 0.0:
            for t in span(flat + 1):
                w.along[t] = -w.along[t]
        longest = math.inf if abs(rise) > ROUNDOFF * size else -math.inf
    for b in span(R):
        w.column[b] = 0.0
    for t in span(supers):
        for b in span(R):
            w.column[b] -= w.W[t, b] * w.along[t]
    return longest
