"""The Gram matrix K = C P Cᵀ of the dual method, and the Cholesky factor of its part for the working set.

``DualPlan`` defines C = [I; G] and P. Constraint i stands for the bounds of variable i if i < n, else for an inequality
row. If samples have rows of their own, each sample computes a row of K when the dual method first needs the row.
"""

from __future__ import annotations

from pear.compile.jit import inner, span
from pear.optimality.rule import RANK
from pear.solvers.active_set import kernel_arrays as ix
from pear.solvers.active_set.compiled_sizes import compiled_size_or_one
from pear.solvers.active_set.kernel_arrays import Array, ProgramData, Workspace


@inner
def gram_size(D: ProgramData) -> int:
    """Return the number of constraints, the size of the Gram matrix: one for each variable and each inequality row."""
    return D.n + len(D.J) - D.equalities


@inner
def gram_row(D: ProgramData, w: Workspace, i: int) -> Array:
    """Return row i of the Gram matrix. If samples have rows of their own, it is computed when it is first needed."""
    if len(D.gram) > 0:
        return D.gram[i]
    if w.gram_at[i] < 0:
        compute_gram_row(D, w, i)
    return w.gram[w.gram_at[i]]


@inner
def compute_gram_row(D: ProgramData, w: Workspace, i: int) -> None:
    """Compute row i of the Gram matrix. The weight of constraint i becomes 0 if the equalities fix its value."""
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
                room += entry**2 / compiled_size_or_one(curvature if curvature > 0.0 else w.number[ix.MAX_CURVATURE])
                for j in span(n):
                    out[j] += entry * D.response[k, j]
    for k in span(n, gram_size(D)):
        s = 0.0
        for j in span(n):
            s += D.J[p + k - n, j] * out[j]
        out[k] = s
    if not out[i] > RANK * room:
        w.weight[i] = 0.0


@inner
def add_gram_rows(D: ProgramData, w: Workspace) -> None:
    """Add Σ_a pull_a K_a to the values of all constraints.

    K_a is the row of the Gram matrix for position a of the working set. The sum is the change of the values if the
    multipliers in the working set fall by ``w.pull``. Four rows are added at a time, because reading and writing the
    values would cost more than the products.
    """
    N, size = gram_size(D), w.tally[ix.WORKING]
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
def append_gram_factor_row(D: ProgramData, w: Workspace, entering: int) -> float:
    """Write the row that a constraint would add to the factor ``w.L``, and return the square of the constraint's pivot.

    ``w.L`` is the Cholesky factor of the working set's part of the Gram matrix.
    """
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
def solve_gram_factor(w: Workspace, size: int, v: Array) -> None:
    """Solve L u = v in place with the factor ``w.L``, for the first ``size`` constraints of the working set."""
    for a in span(size):
        s = v[a]
        for b in span(a):
            s -= w.L[a, b] * v[b]
        v[a] = s / w.L[a, a]


@inner
def solve_transposed_gram_factor(w: Workspace, size: int, v: Array) -> None:
    """Solve Lᵀu = v in place with the factor ``w.L``, for the first ``size`` constraints of the working set."""
    for a in range(size - 1, -1, -1):
        s = v[a] / w.L[a, a]
        v[a] = s
        for b in span(a):
            v[b] -= w.L[a, b] * s


@inner
def gram_constraint_value(D: ProgramData, x: Array, i: int) -> float:
    """Return the value of constraint i at x: x_i, or the product of x with an inequality row."""
    if i < D.n:
        return x[i]
    s = 0.0
    for j in span(D.n):
        s += D.J[D.equalities + i - D.n, j] * x[j]
    return s
