"""Basic and superbasic variables: the inverse of the basic columns, and how variables change places."""

from __future__ import annotations

import math

from pear.compile.jit import inner, span
from pear.optimality.rule import FEASIBLE, RANK, ROUNDOFF, SHARP
from pear.solvers.active_set import kernel_arrays as ix
from pear.solvers.active_set.compiled_sizes import measure_compiled_sizes
from pear.solvers.active_set.kernel_arrays import Array, ProgramData, Workspace
from pear.solvers.active_set.program_products import add_abs_row_products, subtract_row_products
from pear.solvers.active_set.settings import PIVOT, REFINEMENTS, REFRESH, STEEP, UNBALANCED


@inner
def solve_for_basics(D: ProgramData, w: Workspace, goal: float) -> bool:
    """Solve the rows Jx + s = r with slacks s for the basic variables, by iterative refinement.

    A residual passes if it is tiny relative to the terms of its row. If these terms are rounding errors themselves, the
    residual is as large as they are and does not pass. In the last attempt to solve a sample, a residual that is tiny
    relative to the natural size of its row therefore passes, too.

    Args:
        D: the program.
        w: the workspace.
        goal: the residual at which refinement stops, relative to the terms of a row.

    Returns:
        False if the inverse of the basis is too inaccurate.
    """
    R = len(D.J)
    for _ in span(REFINEMENTS):
        if set_basis_residuals(D, w) <= goal:
            return True
        for b in span(R):
            s = 0.0
            for k in span(R):
                s += w.inverse[b, k] * w.left[k]
            w.x[w.basis[b]] += s
    if set_basis_residuals(D, w) <= FEASIBLE:
        return True
    return w.tally[ix.PATIENT] == 1 and basics_meet_rows(D, w)


@inner
def basics_meet_rows(D: ProgramData, w: Workspace) -> bool:
    """Return True if every residual in ``w.left`` is small relative to the natural size of its row.

    Small means at most the tolerance FEASIBLE.
    """
    measure_compiled_sizes(D, w)
    for k in span(len(D.J)):  # noqa: SIM110 (a plain loop is what compiles well)
        if not abs(w.left[k]) <= FEASIBLE * w.terms[k]:
            return False
    return True


@inner
def invert_basis(D: ProgramData, w: Workspace) -> bool:
    """Compute the inverse of the basic columns by Gauss-Jordan elimination; return False if they are dependent."""
    R, n = D.J.shape
    M, inverse = w.scratch, w.inverse
    for a in span(R):
        for b in span(R):
            M[a, b] = 0.0
            inverse[a, b] = 1.0 if a == b else 0.0
    for b in span(R):
        j = w.basis[b]
        if j >= n:
            M[j - n, b] = 1.0
        else:
            for k in span(R):
                M[k, b] = D.J[k, j]
    largest = 0.0
    for a in span(R):
        for b in span(R):
            largest = max(largest, abs(M[a, b]))
    for b in span(R):
        best = b
        for a in span(b + 1, R):
            if abs(M[a, b]) > abs(M[best, b]):
                best = a
        if not abs(M[best, b]) > min(RANK, w.number[ix.PIVOT]) * largest:
            return False
        if best != b:
            for k in span(R):
                M[b, k], M[best, k] = M[best, k], M[b, k]
                inverse[b, k], inverse[best, k] = inverse[best, k], inverse[b, k]
        scale = 1.0 / M[b, b]
        for k in span(R):
            M[b, k] *= scale
            inverse[b, k] *= scale
        for a in span(R):
            factor = M[a, b]
            if a != b and factor != 0.0:
                for k in span(b, R):
                    M[a, k] -= factor * M[b, k]
                for k in span(R):
                    inverse[a, k] -= factor * inverse[b, k]
    w.tally[ix.AGE] = w.tally[ix.FACTORED] = 0
    return True


@inner
def apply_basis_inverse(D: ProgramData, j: int, w: Workspace, out: Array) -> None:
    """Write B⁻¹ times the column of variable j to ``out``, where B is the matrix of the basic columns."""
    R, n = D.J.shape
    if j >= n:
        for b in span(R):
            out[b] = w.inverse[b, j - n]
        return
    if len(D.start) == 0:
        for k in span(R):
            w.left[k] = D.J[k, j]
        for b in span(R):
            s = 0.0
            for k in span(R):
                s += w.inverse[b, k] * w.left[k]
            out[b] = s
        return
    for b in span(R):
        s = 0.0
        for k in span(D.start[j], D.start[j + 1]):
            s += w.inverse[b, D.row[k]] * D.value[k]
        out[b] = s


@inner
def is_column_entry_rounding(D: ProgramData, w: Workspace, b: int, j: int) -> bool:
    """Return True if entry b of ``w.column``, which is B⁻¹ times the column of variable j, may be a rounding error.

    Linearly dependent rows cause such entries: the slack of one of them is basic, and exact arithmetic never moves it.
    """
    return abs(w.column[b]) <= ROUNDOFF * basis_inverse_terms(D, w, b, j)


@inner
def is_basic_rate_rounding(D: ProgramData, w: Workspace, b: int) -> bool:
    """Return True if the rate of the basic variable at position b, in ``w.column``, may be a rounding error.

    The rate is the movement of the basic variable when the superbasic variables move by ``w.along``.
    """
    most = steep = terms = 0.0
    for t in span(w.tally[ix.SUPERS]):
        most += abs(w.along[t])
    for k in span(len(w.inverse)):
        steep += abs(w.inverse[b, k]) * max(1.0, math.sqrt(w.norm[k]))
    if abs(w.column[b]) > ROUNDOFF * steep * most:  # no sum of terms is larger
        return False
    for t in span(w.tally[ix.SUPERS]):
        terms += abs(w.along[t]) * basis_inverse_terms(D, w, b, w.sup[t])
    return abs(w.column[b]) <= ROUNDOFF * terms


@inner
def basis_inverse_terms(D: ProgramData, w: Workspace, b: int, j: int) -> float:
    """Return the sum of the sizes of the terms of entry b of B⁻¹ times the column of variable j."""
    R, n = D.J.shape
    if j >= n:
        return abs(w.inverse[b, j - n])
    terms = 0.0
    for k in span(R):
        terms += abs(w.inverse[b, k] * D.J[k, j])
    return terms


@inner
def set_superbasic_columns(D: ProgramData, w: Workspace) -> None:
    """Compute ``w.W``: row t is the inverse of the basis times the column of the superbasic variable at position t."""
    for t in span(w.tally[ix.SUPERS]):
        apply_basis_inverse(D, w.sup[t], w, w.W[t])
    w.tally[ix.FACTORED] = 0


@inner
def replace_basic_variable(w: Workspace, b: int, column: Array) -> None:
    """Update ``w.inverse`` and ``w.W`` after the basic variable at position b has been replaced.

    Args:
        w: the workspace.
        b: the position in the basis.
        column: the old inverse of the basis times the column of the new basic variable.
    """
    R = len(w.inverse)
    pivot = 1.0 / column[b]
    row = w.scratch[0]  # a copy, because loops that read and write one array do not run in parallel lanes
    for k in span(R):
        row[k] = w.inverse[b, k] * pivot
    for k in span(R):
        w.inverse[b, k] = row[k]
    for a in span(R):
        factor = column[a]
        if a != b and factor != 0.0:
            for k in span(R):
                w.inverse[a, k] -= factor * row[k]
    for t in span(w.tally[ix.SUPERS]):
        factor = w.W[t, b] * pivot
        if factor != 0.0:
            for a in span(R):
                w.W[t, a] -= factor * column[a]
            w.W[t, b] = factor
            w.tally[ix.FACTORED] = min(w.tally[ix.FACTORED], t)
    w.tally[ix.AGE] += 1


@inner
def drop_superbasic(w: Workspace, t: int) -> None:
    """Remove the superbasic variable at position t from ``w.sup``, and its row from ``w.W``."""
    last = w.tally[ix.SUPERS] - 1
    for a in span(t, last):
        w.sup[a] = w.sup[a + 1]
        for b in span(len(w.inverse)):
            w.W[a, b] = w.W[a + 1, b]
    w.tally[ix.SUPERS] = last
    w.tally[ix.FACTORED] = min(w.tally[ix.FACTORED], t)


@inner
def swap_basic_and_superbasic(w: Workspace, b: int, t: int, place: int) -> None:
    """Make the superbasic variable at position t basic, in place of the basic variable at position b.

    The former basic variable becomes nonbasic at ``place``, which is LOWER or UPPER.
    """
    leaving, entering = w.basis[b], w.sup[t]
    for a in span(len(w.inverse)):
        w.column[a] = w.W[t, a]
    drop_superbasic(w, t)
    replace_basic_variable(w, b, w.column)
    w.basis[b] = entering
    w.place[entering] = ix.BASIC
    w.place[leaving] = place


@inner
def rebalance_basis(w: Workspace) -> bool:
    """Swap superbasic variables with basic ones, to improve a badly conditioned basis.

    A superbasic variable is swapped if a unit change of it changes some basic variable by more than UNBALANCED. It
    replaces the basic variable that changes most. Nearly parallel rows lead to such a basis, in which rounding hides
    curvature. Each swap multiplies the determinant of the basis by more than UNBALANCED, so that few swaps are needed.

    Returns:
        True if any variables were swapped.
    """
    R, changed = len(w.inverse), False
    for t in span(w.tally[ix.SUPERS]):
        best = 0
        for b in span(R):
            if abs(w.W[t, b]) > abs(w.W[t, best]):
                best = b
        if R == 0 or not abs(w.W[t, best]) > UNBALANCED:
            continue
        leaving, entering, pivot = w.basis[best], w.sup[t], w.W[t, best]
        for b in span(R):
            w.column[b] = w.W[t, b]
        replace_basic_variable(w, best, w.column)
        for b in span(R):
            w.W[t, b] = 1.0 / pivot if b == best else -w.column[b] / pivot
        w.basis[best], w.sup[t] = entering, leaving
        w.place[entering], w.place[leaving] = ix.BASIC, ix.SUPER
        changed = True
    return changed


@inner
def make_superbasic(D: ProgramData, w: Workspace, j: int) -> None:
    """Make the nonbasic variable j superbasic."""
    t = w.tally[ix.SUPERS]
    w.sup[t] = j
    w.place[j] = ix.SUPER
    apply_basis_inverse(D, j, w, w.W[t])
    w.tally[ix.SUPERS] = t + 1


@inner
def make_tight_nonbasic(w: Workspace) -> bool:
    """Make the tight variables and slacks of a solution nonbasic, which adds their bounds to the working set.

    A superbasic variable at its bound becomes nonbasic. A basic variable at its bound becomes nonbasic, too, and a
    superbasic variable takes its place in the basis. It stays basic only if its bound depends linearly on the working
    set, because the bound then does not change the tangent space. The remaining superbasic variables are coordinates
    of the tangent space. The multipliers do not change, because at a solution the reduced gradient is zero for every
    superbasic variable.

    Returns:
        False if a tight bound is left out because it is nearly, but not exactly, dependent on the working set. The
        working set then does not define the right tangent space.
    """
    held = True
    for t in range(w.tally[ix.SUPERS] - 1, -1, -1):
        tight = w.held[w.sup[t]]
        if tight != 0:
            w.place[w.sup[t]] = ix.LOWER if tight == 1 else ix.UPPER
            drop_superbasic(w, t)
    for b in span(len(w.inverse)):
        tight, supers = w.held[w.basis[b]], w.tally[ix.SUPERS]
        if tight == 0 or supers == 0:
            continue
        best, largest = 0, 0.0
        for t in span(supers):
            if abs(w.W[t, b]) > abs(w.W[best, b]):
                best = t
        for a in span(len(w.inverse)):
            largest = max(largest, abs(w.W[best, a]))
        if abs(w.W[best, b]) > PIVOT * max(1.0, largest):
            swap_basic_and_superbasic(w, b, best, ix.LOWER if tight == 1 else ix.UPPER)
        else:
            held = held and abs(w.W[best, b]) <= ROUNDOFF * max(1.0, largest)
    return held


@inner
def is_basis_steep(w: Workspace) -> bool:
    """Return True if the inverse of the basis amplifies rounding errors of the rows by more than the limit STEEP."""
    for b in span(len(w.inverse)):
        total = 0.0
        for k in span(len(w.inverse)):
            total += abs(w.inverse[b, k]) * math.sqrt(w.norm[k])
        if total > STEEP:
            return True
    return False


@inner
def set_nonbasic_variables(D: ProgramData, w: Workspace) -> bool:
    """Put nonbasic variables on their bounds and superbasic ones between their bounds; compute the basic ones.

    A variable whose place is an infinite bound takes the other bound. If both are infinite, it becomes FREE. A FREE
    variable is put at zero, or at one of its bounds if zero is not between them.

    Returns:
        False if the basic variables cannot be computed accurately.
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
    if not solve_for_basics(D, w, SHARP) and (
        w.tally[ix.AGE] == 0 or not invert_basis(D, w) or not solve_for_basics(D, w, SHARP)
    ):
        return False
    set_superbasic_columns(D, w)
    return True


@inner
def refresh_basis_inverse(D: ProgramData, w: Workspace) -> bool:
    """Invert the basis anew if it has changed in more than REFRESH pivots since it was last inverted.

    Returns:
        False if it was inverted and the basic columns are dependent.
    """
    return w.tally[ix.AGE] <= REFRESH or invert_basis(D, w)


@inner
def set_basis_residuals(D: ProgramData, w: Workspace) -> float:
    """Set ``w.left`` to the residuals rhs − Jx − s of the rows J with slacks s; return the largest relative residual.

    Each residual is relative to the sum of the sizes of its terms.
    """
    R, n = D.J.shape
    for k in span(R):
        w.left[k] = w.rhs[k] - w.x[n + k]
        w.terms[k] = abs(w.rhs[k]) + abs(w.x[n + k])
    subtract_row_products(D, w.x, w.left)
    add_abs_row_products(D, w.x, w.terms)
    worst = 0.0
    for k in span(R):
        if w.left[k] != 0.0:
            worst = max(worst, abs(w.left[k]) / w.terms[k])
        if w.left[k] != w.left[k]:
            worst = math.inf
    return worst
