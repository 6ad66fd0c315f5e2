"""Triangular solves with sparse LDLᵀ factors that are stored in blocks of supernodes. Compiled."""

from __future__ import annotations

import numpy as np

from pear.compile.jit import entry, inner
from pear.solvers.linalg import Array
from pear.solvers.linalg.elimination_order import index as _at
from pear.solvers.linalg.supernodes import SupernodeBlocks


def solve_triangular(plan: SupernodeBlocks, L: Array, pivots: Array, rhs: Array) -> Array:
    """Solve LDLᵀx = rhs for one right-hand side (n,). Return x (n,). Both are in the order of the original rows.

    Args:
        plan: the storage plan of L.
        L: the numbers of L.
        pivots: (n,) the diagonal of D.
        rhs: (n,) the right-hand side.
    """
    memory = np.empty((2, len(rhs)))
    _solve_triangular_compiled(plan.order, plan.first, plan.row_start, plan.rows, L, pivots, rhs, memory)
    return memory[1]


@entry
def _solve_triangular_compiled(
    order: Array, first: Array, row_start: Array, rows: Array, L: Array, pivots: Array, rhs: Array, memory: Array
) -> None:
    """Solve a system as ``solve_triangular_into`` does. This function is for calls from Python only."""
    solve_triangular_into(order, first, row_start, rows, L, pivots, rhs, memory)


@inner
def solve_triangular_into(
    order: Array, first: Array, row_start: Array, rows: Array, L: Array, pivots: Array, rhs: Array, memory: Array
) -> None:
    """Solve LDLᵀx = rhs in memory that the caller provides, and write x to the second row of ``memory``.

    The first four arguments are fields of ``SupernodeBlocks``, and the next three are those of ``solve_triangular``.
    ``memory`` has at least two rows of n numbers.
    """
    n, x, result = len(order), memory[0], memory[1]
    for j in range(n):
        x[j] = rhs[order[j]]
    _solve_lower_triangular(first, row_start, rows, L, x)
    _solve_upper_triangular(first, row_start, rows, L, pivots, x)
    for j in range(n):
        result[order[j]] = x[j]


@inner
def _solve_lower_triangular(first: Array, row_start: Array, rows: Array, L: Array, x: Array) -> None:
    """Replace x (n,) by L⁻¹x.

    The columns of a supernode are processed four at a time, so that each row index is read once for four columns.
    """
    at = 0
    for s in range(len(first) - 1):
        j, end, begin, stop = first[s], first[s + 1], row_start[s], row_start[s + 1]
        size = end - j + stop - begin
        # in a column, L[at + i] belongs to x[i], and L[at + end - begin + i] to row i below
        at -= j
        while j + 3 < end:
            a, b, c, d = at, at + size, at + 2 * size, at + 3 * size
            p = x[_at(j)]
            q = x[_at(j + 1)] - L[_at(a + j + 1)] * p
            v = x[_at(j + 2)] - L[_at(a + j + 2)] * p - L[_at(b + j + 2)] * q
            w = x[_at(j + 3)] - L[_at(a + j + 3)] * p - L[_at(b + j + 3)] * q - L[_at(c + j + 3)] * v
            x[_at(j + 1)], x[_at(j + 2)], x[_at(j + 3)] = q, v, w
            for i in range(j + 4, end):
                x[_at(i)] -= L[_at(a + i)] * p + L[_at(b + i)] * q + L[_at(c + i)] * v + L[_at(d + i)] * w
            for i in range(begin, stop):
                k = end - begin + i
                x[rows[_at(i)]] -= L[_at(a + k)] * p + L[_at(b + k)] * q + L[_at(c + k)] * v + L[_at(d + k)] * w
            at += 4 * size
            j += 4
        while j < end:
            p = x[_at(j)]
            for i in range(j + 1, end):
                x[_at(i)] -= L[_at(at + i)] * p
            for i in range(begin, stop):
                x[rows[_at(i)]] -= L[_at(at + end - begin + i)] * p
            at += size
            j += 1
        at += first[s]


@inner
def _solve_upper_triangular(first: Array, row_start: Array, rows: Array, L: Array, pivots: Array, x: Array) -> None:
    """Replace x (n,) by L⁻ᵀD⁻¹x, four columns at a time as in ``_solve_lower_triangular``."""
    at = len(L)
    for s in range(len(first) - 2, -1, -1):
        j, end, begin, stop = first[s + 1], first[s + 1], row_start[s], row_start[s + 1]
        size = end - first[s] + stop - begin
        at -= first[s]
        while j - 3 > first[s]:
            j -= 4
            at -= 4 * size
            a, b, c, d = at, at + size, at + 2 * size, at + 3 * size
            p, q = x[_at(j)] / pivots[_at(j)], x[_at(j + 1)] / pivots[_at(j + 1)]
            v, w = x[_at(j + 2)] / pivots[_at(j + 2)], x[_at(j + 3)] / pivots[_at(j + 3)]
            for i in range(j + 4, end):
                p -= L[_at(a + i)] * x[_at(i)]
                q -= L[_at(b + i)] * x[_at(i)]
                v -= L[_at(c + i)] * x[_at(i)]
                w -= L[_at(d + i)] * x[_at(i)]
            for i in range(begin, stop):
                k, y = end - begin + i, x[rows[_at(i)]]
                p -= L[_at(a + k)] * y
                q -= L[_at(b + k)] * y
                v -= L[_at(c + k)] * y
                w -= L[_at(d + k)] * y
            v -= L[_at(c + j + 3)] * w
            q -= L[_at(b + j + 2)] * v + L[_at(b + j + 3)] * w
            p -= L[_at(a + j + 1)] * q + L[_at(a + j + 2)] * v + L[_at(a + j + 3)] * w
            x[_at(j)], x[_at(j + 1)], x[_at(j + 2)], x[_at(j + 3)] = p, q, v, w
        while j > first[s]:
            j -= 1
            at -= size
            p = x[_at(j)] / pivots[_at(j)]
            for i in range(j + 1, end):
                p -= L[_at(at + i)] * x[_at(i)]
            for i in range(begin, stop):
                p -= L[_at(at + end - begin + i)] * x[rows[_at(i)]]
            x[_at(j)] = p
        at += first[s]
