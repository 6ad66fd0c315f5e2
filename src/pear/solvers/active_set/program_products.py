"""Products with the rows J and the Hessian H of one program in compiled code."""

from __future__ import annotations

import math
from typing import Any

from pear.compile.jit import inner, span
from pear.solvers.active_set import kernel_arrays as ix
from pear.solvers.active_set.kernel_arrays import Array, ProgramData, Workspace


def _compile_products(term: Any) -> tuple[Any, Any]:
    """Return two compiled functions that sum terms of J, one by rows and one by columns.

    Args:
        term: a compiled function of an entry of J and a factor; its values are summed.
    """

    @inner
    def add_row_products(D: ProgramData, x: Array, out: Array) -> None:
        """Add Σ_j term(J_ij, x_j) to ``out[i]`` for every row i."""
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
    def add_column_products(D: ProgramData, y: Array, out: Array) -> None:
        """Add Σ_i term(J_ij, y_i) to ``out[j]`` for every column j."""
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

    return add_row_products, add_column_products


subtract_row_products, subtract_column_products = _compile_products(inner(lambda entry, factor: -(entry * factor)))
add_abs_row_products, add_abs_column_products = _compile_products(inner(lambda entry, factor: abs(entry * factor)))


@inner
def set_gradient_by_hessian_product(D: ProgramData, w: Workspace) -> None:
    """Set ``w.grad`` to Hx + c."""
    n = D.n
    for j in span(n):
        w.grad[j] = w.c[j] + D.smoothing * w.x[j]
    if len(D.Q) > 0:
        for j in span(n):
            if w.x[j] != 0.0:
                factor = D.sign * w.x[j]
                for i in span(D.band[j, 0], D.band[j, 1]):
                    w.grad[i] += factor * D.Q[j, i]


@inner
def move_with_hessian_product(D: ProgramData, w: Workspace, v: int, change: float) -> None:
    """Move the variable v by ``change``, and update the gradient ``w.grad``."""
    if change == 0.0:
        return
    w.x[v] += change
    n = D.n
    if v < n:
        w.grad[v] += D.smoothing * change
        if len(D.Q) > 0:
            for i in span(D.band[v, 0], D.band[v, 1]):
                w.grad[i] += D.sign * change * D.Q[v, i]


@inner
def curvature_terms(D: ProgramData, w: Workspace) -> float:
    """Return an upper bound on the size of the terms of Hx, as ``pear.optimality.natural_sizes`` defines it."""
    largest = 0.0
    for j in span(D.n):
        curvature = D.smoothing + (D.sign * D.Q[j, j] if len(D.Q) > 0 else 0.0)
        largest = max(largest, math.sqrt(max(curvature, 0.0)) * abs(w.x[j]))
    return math.sqrt(max(w.number[ix.MAX_CURVATURE], 0.0)) * largest
