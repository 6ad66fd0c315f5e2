"""Products with the rows J and the Hessian H of one program, the residuals of its rows, and sizes to divide by."""

from __future__ import annotations

import math
from typing import Any

from pear.compile.jit import inner, span
from pear.optimality.rule import FLOOR, SHARE_OF_SIZE
from pear.solvers.active_set import kernel_arrays as ix
from pear.solvers.active_set.kernel_arrays import Array, ProgramData, Workspace


def _products(term: Any) -> tuple[Any, Any]:
    """Compile the two products with J for one kind of term: one adds to the rows, one to the columns."""

    @inner
    def add_rows(D: ProgramData, x: Array, out: Array) -> None:
        R, n = D.J.shape
        if len(D.start) == 0:
            for i in span(R):
                s = 0.0
                for j in span(n):
                    s += term(D.J[i, j], x[j])
                out[i] += s
            return
        for j in span(n):
            if x[j] != 0.0:
                for k in span(D.start[j], D.start[j + 1]):
                    out[D.row[k]] += term(D.value[k], x[j])

    @inner
    def add_columns(D: ProgramData, y: Array, out: Array) -> None:
        R, n = D.J.shape
        if len(D.start) == 0:
            for i in span(R):
                if y[i] != 0.0:
                    for j in span(n):
                        out[j] += term(D.J[i, j], y[i])
            return
        for j in span(n):
            s = 0.0
            for k in span(D.start[j], D.start[j + 1]):
                s += term(D.value[k], y[D.row[k]])
            out[j] += s

    return add_rows, add_columns


subtract_rows, subtract_columns = _products(inner(lambda entry, factor: -(entry * factor)))
add_abs_rows, add_abs_columns = _products(inner(lambda entry, factor: abs(entry * factor)))


@inner
def set_row_residuals(D: ProgramData, w: Workspace) -> float:
    """Set w.left = r − Jx − s at the current point; return its largest entry relative to its terms."""
    R, n = D.J.shape
    for k in span(R):
        w.left[k] = w.rhs[k] - w.x[n + k]
        w.terms[k] = abs(w.rhs[k]) + abs(w.x[n + k])
    subtract_rows(D, w.x, w.left)
    add_abs_rows(D, w.x, w.terms)
    worst = 0.0
    for k in span(R):
        if w.left[k] != 0.0:
            worst = max(worst, abs(w.left[k]) / w.terms[k])
        if w.left[k] != w.left[k]:
            worst = math.inf
    return worst


@inner
def measure_primal_sizes(D: ProgramData, w: Workspace) -> None:
    """Compute the natural sizes of variables and rows, as ``pear.optimality.natural_sizes`` defines them.

    They are in ``w.size`` and ``w.terms``. A variable at zero has the size that rounding in the others gives it.
    """
    R, n = D.J.shape
    largest = FLOOR * w.number[ix.LEAST_SIZE]
    for j in span(n):
        largest = max(largest, abs(w.x[j]))
    for k in span(R):
        w.terms[k] = abs(w.rhs[k])
    for j in span(n):
        spread = min(SHARE_OF_SIZE * largest, w.up[j] - w.lo[j])
        w.size[j] = max(abs(w.x[j]), spread)
    add_abs_rows(D, w.size, w.terms)


@inner
def set_slope(D: ProgramData, w: Workspace) -> None:
    """Compute the slope Hx + c from the data."""
    n = D.n
    for j in span(n):
        w.grad[j] = w.c[j] + D.smoothing * w.x[j]
    if len(D.Q) > 0:
        for j in span(n):
            if w.x[j] != 0.0:
                factor = D.sign * w.x[j]
                for i in span(n):
                    w.grad[i] += factor * D.Q[j, i]


@inner
def move_with_gradient(D: ProgramData, w: Workspace, v: int, change: float) -> None:
    """Move one variable, and update the gradient."""
    if change == 0.0:
        return
    w.x[v] += change
    n = D.n
    if v < n:
        w.grad[v] += D.smoothing * change
        if len(D.Q) > 0:
            for i in span(n):
                w.grad[i] += D.sign * change * D.Q[v, i]


@inner
def curvature_terms(D: ProgramData, w: Workspace) -> float:
    """Return an upper bound of the terms that Hx is summed from, as ``pear.optimality.natural_sizes`` defines it."""
    largest = 0.0
    for j in span(D.n):
        curvature = D.smoothing + (D.sign * D.Q[j, j] if len(D.Q) > 0 else 0.0)
        largest = max(largest, math.sqrt(max(curvature, 0.0)) * abs(w.x[j]))
    return math.sqrt(max(w.number[ix.MAX_CURVATURE], 0.0)) * largest


@inner
def largest_size(values: Array, count: int) -> float:
    """Return the largest absolute value of the first entries.

    Four maxima are taken side by side, because each has to wait for the one before.
    """
    a = b = c = d = 0.0
    whole = count - count % 4
    for j in range(0, whole, 4):
        a, b = max(a, abs(values[j])), max(b, abs(values[j + 1]))
        c, d = max(c, abs(values[j + 2])), max(d, abs(values[j + 3]))
    for j in span(whole, count):
        a = max(a, abs(values[j]))
    return max(max(a, b), max(c, d))


@inner
def positive_or_one(value: float) -> float:
    """Return a positive value unchanged, and 1 instead of any other, so that it can be divided by."""
    return value if value > 0.0 else 1.0
