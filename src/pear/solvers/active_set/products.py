"""Products with the rows and the curvature of a program: slope, multipliers, reduced gradient."""

from __future__ import annotations

from typing import Any

from pear.compile.jit import inner, span
from pear.solvers.active_set.compiled_arrays import Array, ProgramData, Workspace


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
def set_multipliers(D: ProgramData, w: Workspace) -> None:
    """Compute the multipliers y = B⁻ᵀ grad_B and the reduced gradient."""
    R, n = D.J.shape
    for k in span(R):
        w.y[k] = 0.0
    for b in span(R):
        if w.basis[b] < n:
            factor = w.grad[w.basis[b]]
            for k in span(R):
                w.y[k] += factor * w.inverse[b, k]
    set_reduced_gradient(D, w)


@inner
def set_reduced_gradient(D: ProgramData, w: Workspace) -> None:
    """Compute the reduced gradient grad − Jᵀy; it is −y for the slacks."""
    R, n = D.J.shape
    for j in span(n):
        w.reduced[j] = w.grad[j]
    subtract_columns(D, w.y, w.reduced)
    for k in span(R):
        w.reduced[n + k] = -w.y[k]
