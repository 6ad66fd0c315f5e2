"""The dual method's working set, kept as a sum of terms, one for each constraint that came or went.

Vectors have one number for each variable x and, after these, one for each inequality row J. A bound of the variable is
a constraint, and so is the row. With C = [I; J], reach W = C H⁻¹ Cᵀ and M = (W on the held ones)⁻¹, a constraint that
comes or goes changes M by a matrix of rank one. The terms of

    M = Σ_k weight_k u_k u_kᵀ      and, beside them,      z_k = W u_k

say how multipliers and how constraints move. u_k is zero where nothing is held after step k, and z_k where something
is, so that both share one vector v_k. ``came`` says since which term a constraint is held (−1: it is free): from there
on its numbers are those of u, and earlier ones, of z, do not count. Nothing is ever changed but the numbers of a
constraint that goes, whose z is zero while it is held.
"""

from __future__ import annotations

import triton
import triton.language as tl

from pear.solvers.active_set.gpu.parts import curvature_times, weighted_rows


@triton.jit
def _counting(terms, came, k, count, size, j):  # type: ignore[no-untyped-def]
    """(chunk, width) the numbers of the terms k that count, and zeros."""
    counts = (k < count)[:, None] & (k[:, None] >= came[None, :]) & (j < size)[None, :]
    return tl.load(terms + k[:, None] * size + j[None, :], mask=counts, other=0.0)


@triton.jit
def combined(terms, weight, index, since, came, count, size, j, chunk: tl.constexpr):  # type: ignore[no-untyped-def]
    """Σ_k weight_k v_k[index] v_k over the terms from ``since`` on, and its entry at the index.

    That is how all of it moves with a constraint that is free, or, from its own term on, with the multiplier of one
    that is held.
    """
    c = tl.arange(0, chunk)
    total = tl.zeros_like(came).to(tl.float64)
    squares = tl.zeros_like(c).to(tl.float64)
    for first in range(0, count, chunk):
        k = first + c
        entry = tl.load(terms + k * size + index, mask=(k < count) & (k >= since), other=0.0)
        share = entry * tl.load(weight + k, mask=k < count, other=0.0)
        squares += share * entry
        total += tl.sum(_counting(terms, came, k, count, size, j) * share[:, None], axis=0)
    return total, tl.sum(squares)


@triton.jit
def resolved(terms, weight, off, came, count, size, j, chunk: tl.constexpr):  # type: ignore[no-untyped-def]
    """Σ_k weight_k (u_k · off) v_k for ``off``, which is zero where nothing is held.

    These are the multipliers with which what is held moves by ``off``, and how the rest moves with them.
    """
    c = tl.arange(0, chunk)
    total = tl.zeros_like(came).to(tl.float64)
    for first in range(0, count, chunk):
        k = first + c
        tile = _counting(terms, came, k, count, size, j)
        share = tl.sum(tile * off[None, :], axis=1) * tl.load(weight + k, mask=k < count, other=0.0)
        total += tl.sum(tile * share[:, None], axis=0)
    return total


@triton.jit
def with_rows(  # type: ignore[no-untyped-def]
    H, J, columns, w, scratch, n, R, j, diagonal: tl.constexpr, rows: tl.constexpr, chunk: tl.constexpr
):
    """(Hx + Jᵀy, Jx) for w = (x, y); ``scratch`` has room for all of it."""
    total = curvature_times(H, tl.where(j < n, w, 0.0), scratch, n, n, j, diagonal, chunk)
    if rows:
        tl.store(scratch + j, w, mask=j < n + R)
        tl.debug_barrier()
        total += weighted_rows(columns, scratch, n, R, j - n, chunk)
        total += weighted_rows(J, scratch + n, R, n, j, chunk)
        tl.debug_barrier()
    return total


@triton.jit
def corrected(  # type: ignore[no-untyped-def]
    reach,
    H,
    J,
    columns,
    terms,
    weight,
    c,
    w,
    target,
    came,
    count,
    scratch,
    n,
    R,
    j,
    diagonal: tl.constexpr,
    rows: tl.constexpr,
    chunk: tl.constexpr,
):
    """One round of refinement of min ½xᵀHx + cᵀx with the working set held.

    w = (x, y) are variables, which are where they have to be where a bound is held, and multipliers of rows, whose
    values have to be those of ``target``; the result is its change. What is missing is computed from the data, so that
    whatever reach and terms have lost to rounding does not matter, as long as a part of it is right.
    """
    held = came >= 0
    found = with_rows(H, J, columns, w, scratch, n, R, j, diagonal, rows, chunk)
    missing = tl.where(held | (j >= n), 0.0, -c - found)  # the multiplier of a bound takes what is left
    step = curvature_times(reach, missing, scratch, n, n + R, j, False, chunk)
    off = tl.where(held, tl.where(j < n, step, step + found - target), 0.0)
    total = resolved(terms, weight, off, came, count, n + R, j, chunk)
    return tl.where(j < n, tl.where(held, 0.0, step - total), tl.where(held, total, 0.0))
