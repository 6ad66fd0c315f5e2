"""Products with the rows of a program, and the slope and multipliers that come of them."""

from __future__ import annotations

from typing import Any

from pear.solvers.active_set import layout as ix
from pear.solvers.active_set.compile import inner
from pear.solvers.active_set.layout import Array, Data, Work


def _products(term: Any) -> tuple[Any, Any]:
    """Compile the two products with J, for one kind of term: added to the rows, and added to the columns."""

    @inner
    def add_rows(D: Data, x: Array, out: Array) -> None:
        R, n = D.J.shape
        if D.start.shape[0] == 0:
            for i in range(R):
                s = 0.0
                for j in range(n):
                    s += term(D.J[i, j], x[j])
                out[i] += s
            return
        for j in range(n):
            if x[j] != 0.0:
                for k in range(D.start[j], D.start[j + 1]):
                    out[D.row[k]] += term(D.value[k], x[j])

    @inner
    def add_columns(D: Data, y: Array, out: Array) -> None:
        R, n = D.J.shape
        if D.start.shape[0] == 0:
            for i in range(R):
                if y[i] != 0.0:
                    for j in range(n):
                        out[j] += term(D.J[i, j], y[i])
            return
        for j in range(n):
            s = 0.0
            for k in range(D.start[j], D.start[j + 1]):
                s += term(D.value[k], y[D.row[k]])
            out[j] += s

    return add_rows, add_columns


subtract_rows, subtract_columns = _products(inner(lambda entry, factor: -(entry * factor)))
add_abs_rows, add_abs_columns = _products(inner(lambda entry, factor: abs(entry * factor)))


@inner
def set_slope(D: Data, w: Work) -> None:
    """The slope Hx + c, from the data."""
    n = D.J.shape[1]
    for j in range(n):
        w.v[ix.GRAD, j] = w.v[ix.C, j] + D.smoothing * w.v[ix.X, j]
    if D.Q.shape[0] > 0:
        for j in range(n):
            if w.v[ix.X, j] != 0.0:
                factor = D.sign * w.v[ix.X, j]
                for i in range(n):
                    w.v[ix.GRAD, i] += factor * D.Q[j, i]


@inner
def set_multipliers(D: Data, w: Work) -> None:
    """The multipliers y = B⁻ᵀ grad_B, and the reduced gradient that belongs to them."""
    R, n = D.J.shape
    for k in range(R):
        w.v[ix.Y, k] = 0.0
    for b in range(R):
        if w.k[ix.BASIS, b] < n:
            factor = w.v[ix.GRAD, w.k[ix.BASIS, b]]
            for k in range(R):
                w.v[ix.Y, k] += factor * w.inverse[b, k]
    set_reduced_gradient(D, w)


@inner
def set_reduced_gradient(D: Data, w: Work) -> None:
    """The reduced gradient grad − Jᵀy, which is −y for the slacks."""
    R, n = D.J.shape
    for j in range(n):
        w.v[ix.REDUCED, j] = w.v[ix.GRAD, j]
    subtract_columns(D, w.v[ix.Y], w.v[ix.REDUCED])
    for k in range(R):
        w.v[ix.REDUCED, n + k] = -w.v[ix.Y, k]
