"""Natural sizes of one program and its point in compiled code, as ``pear.optimality.natural_sizes`` defines them."""

from __future__ import annotations

import math

from pear.compile.jit import inner, span
from pear.optimality.rule import FLOOR, SHARE_OF_SIZE
from pear.solvers.active_set import kernel_arrays as ix
from pear.solvers.active_set.kernel_arrays import Array, ProgramData, Workspace
from pear.solvers.active_set.program_products import add_abs_row_products


@inner
def measure_compiled_sizes(D: ProgramData, w: Workspace) -> None:
    """Set ``w.size`` and ``w.terms`` to the natural sizes of variables and rows.

    A variable near zero gets a small share of the largest size instead, because rounding in the other variables moves
    it.
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
    add_abs_row_products(D, w.size, w.terms)


@inner
def largest_compiled_size(values: Array, count: int) -> float:
    """Return the largest absolute value of the first ``count`` entries.

    Four maxima are computed side by side, because each comparison has to wait for the one before.
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
def compiled_size_or_one(value: float) -> float:
    """Return a positive value unchanged, and 1 instead of any other value, so that the result can be a divisor."""
    return value if value > 0.0 else 1.0


@inner
def measure_compiled_least_size(D: ProgramData, w: Workspace) -> None:
    """Set ``w.number[LEAST_SIZE]`` to the smallest size that the data suggests for a decision.

    ``pear.optimality.natural_sizes.least_size`` defines this size. It is 1 if the data suggests none.
    """
    R, n = D.J.shape
    curvature, largest, least = w.number[ix.MAX_CURVATURE], 0.0, math.inf
    for j in span(n):
        largest = max(largest, abs(w.c[j]))
        least = smaller_compiled_size(smaller_compiled_size(least, w.lo[j]), w.up[j])
    for k in span(D.equalities, R):
        least = smaller_compiled_size(least, w.rhs[k] / compiled_size_or_one(math.sqrt(w.norm[k])))
    if curvature > 0.0:
        least = smaller_compiled_size(least, largest / curvature)
    w.number[ix.LEAST_SIZE] = least if least < math.inf else 1.0


@inner
def smaller_compiled_size(least: float, size: float) -> float:
    """Return the smaller of ``least`` and |size|; a ``size`` of zero does not count."""
    return abs(size) if size != 0.0 and abs(size) < least else least


@inner
def measure_compiled_curvature(D: ProgramData, w: Workspace) -> float:
    """Return the largest diagonal entry of the Hessian, and keep it in ``w.number[MAX_CURVATURE]``.

    The result is infinite if a diagonal entry is not finite.
    """
    curvature = D.smoothing
    if len(D.Q) > 0:
        for j in span(D.n):
            entry = D.smoothing + D.sign * D.Q[j, j]
            curvature = max(curvature, entry if abs(entry) < math.inf else math.inf)
    w.number[ix.MAX_CURVATURE] = curvature
    return curvature
