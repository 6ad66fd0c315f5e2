"""The working set of the dual method, as a sum of rank-one terms: one for each constraint that was added or dropped.

Vectors have one entry for each variable x and, after these, one for each inequality row of J. An entry stands for a
constraint: the bounds of the variable, or the row. With C = [I; J], the response W = C H⁻¹ Cᵀ, and M the inverse of W
restricted to the held constraints, adding or dropping a constraint changes M by a matrix of rank one. The terms of

    M = Σ_k weight_k u_k u_kᵀ      and the vectors      z_k = W u_k

give the changes of multipliers (by u) and of constraint values (by z). After step k, u_k is zero at constraints that
are not held, and z_k at those that are. So both share one vector v_k. ``since`` is the term with which a held
constraint was added, −1 where it is not held. From that term on its entries of v are those of u. Earlier entries, which
belong to z, do not count. Terms are never changed, except at a constraint that is dropped: its z is zero for the time
it was held.
"""

from __future__ import annotations

import triton
import triton.language as tl

from pear.solvers.active_set.gpu.kernel_functions import curvature_times, weighted_rows


@triton.jit
def _load_terms(terms, since, k, count, size, j):  # type: ignore[no-untyped-def]
    """Load (chunk, width) the entries of the terms k that count; zeros elsewhere."""
    counts = (k < count)[:, None] & (k[:, None] >= since[None, :]) & (j < size)[None, :]
    return tl.load(terms + k[:, None] * size + j[None, :], mask=counts, other=0.0)


@triton.jit
def move_with(terms, weight, index, first_term, since, count, size, j, chunk: tl.constexpr):  # type: ignore[no-untyped-def]
    """Compute Σ_k weight_k v_k[index] v_k over the terms from ``first_term`` on, and its entry at ``index``.

    The sum says how values and multipliers move with the constraint ``index``. For a constraint that is not held, it
    covers all terms. For the multiplier of a held constraint, it begins with the term of that constraint.
    """
    c = tl.arange(0, chunk)
    total = tl.zeros_like(since).to(tl.float64)
    squares = tl.zeros_like(c).to(tl.float64)
    for first in range(0, count, chunk):
        k = first + c
        entry = tl.load(terms + k * size + index, mask=(k < count) & (k >= first_term), other=0.0)
        share = entry * tl.load(weight + k, mask=k < count, other=0.0)
        squares += share * entry
        total += tl.sum(_load_terms(terms, since, k, count, size, j) * share[:, None], axis=0)
    return total, tl.sum(squares)


@triton.jit
def move_held(terms, weight, off, since, count, size, j, chunk: tl.constexpr):  # type: ignore[no-untyped-def]
    """Compute Σ_k weight_k (u_k · off) v_k for a vector ``off`` that is zero at constraints that are not held.

    At held constraints the result is the change of multipliers that moves the constraints by ``off``. Elsewhere it is
    the change of the other values.
    """
    c = tl.arange(0, chunk)
    total = tl.zeros_like(since).to(tl.float64)
    for first in range(0, count, chunk):
        k = first + c
        tile = _load_terms(terms, since, k, count, size, j)
        share = tl.sum(tile * off[None, :], axis=1) * tl.load(weight + k, mask=k < count, other=0.0)
        total += tl.sum(tile * share[:, None], axis=0)
    return total


@triton.jit
def kkt_times(  # type: ignore[no-untyped-def]
    H, J, columns, w, scratch, n, R, j, diagonal: tl.constexpr, rows: tl.constexpr, chunk: tl.constexpr
):
    """Compute (Hx + Jᵀy, Jx) for w = (x, y); ``scratch`` has the size of w."""
    total = curvature_times(H, tl.where(j < n, w, 0.0), scratch, n, n, j, diagonal, chunk)
    if rows:
        tl.store(scratch + j, w, mask=j < n + R)
        tl.debug_barrier()
        total += weighted_rows(columns, scratch, n, R, j - n, chunk)
        total += weighted_rows(J, scratch + n, R, n, j, chunk)
        tl.debug_barrier()
    return total


@triton.jit
def correct_dual(  # type: ignore[no-untyped-def]
    response, H, J, columns, terms, weight, c, w, limit, scratch,
    since, count, j, n, R,
    diagonal: tl.constexpr, rows: tl.constexpr, chunk: tl.constexpr,
):  # fmt: skip
    """Compute one round of refinement of min ½xᵀHx + cᵀx on the working set: the change of w = (x, y).

    Variables x whose bound is held are exact and do not move. Rows that are held have the values of ``limit``, and y
    are their multipliers. The residuals are computed from the data, so that rounding errors in ``response`` and
    ``terms`` are removed.
    """
    held = since >= 0
    product = kkt_times(H, J, columns, w, scratch, n, R, j, diagonal, rows, chunk)
    missing = tl.where(held | (j >= n), 0.0, -c - product)  # the multiplier of a held bound takes what is left there
    step = curvature_times(response, missing, scratch, n, n + R, j, False, chunk)
    off = tl.where(held, tl.where(j < n, step, step + product - limit), 0.0)
    total = move_held(terms, weight, off, since, count, n + R, j, chunk)
    return tl.where(j < n, tl.where(held, 0.0, step - total), tl.where(held, total, 0.0))
