"""What the kernels are made of: products with curvature and rows, and the working set seen from both sides."""

from __future__ import annotations

import triton
import triton.language as tl

from pear.solvers.active_set import settings

_REFINEMENTS = tl.constexpr(settings.KERNEL_REFINEMENTS)


# Triton reads annotations as code, so that there can be none but its own.
#
# A matrix has its columns folded: entry (i, j) of one with 128 columns is entry (j // 32, i, j % 32) of its block. The
# warps then share its rows, and a thread holds some entries of several columns, for which it needs few entries of the
# vectors on both sides. Unfolded it would hold one column, and wait for as many entries as there are rows.
@triton.jit
def folded(size: tl.constexpr):  # type: ignore[no-untyped-def]
    """(size / 32, 1, 32) the columns."""
    lanes: tl.constexpr = 32 if size > 32 else size
    return tl.arange(0, size // lanes)[:, None, None] * lanes + tl.arange(0, lanes)[None, None, :]


@triton.jit
def places(size: tl.constexpr):  # type: ignore[no-untyped-def]
    """(size / 32, size, 32) where the entries of a folded matrix are in memory."""
    lanes: tl.constexpr = 32 if size > 32 else size
    part = tl.arange(0, size // lanes)[:, None, None] * (size * lanes)
    return part + tl.arange(0, size)[None, :, None] * lanes + tl.arange(0, lanes)[None, None, :]


@triton.jit
def row_places(i, s, size: tl.constexpr):  # type: ignore[no-untyped-def]
    """(size,) where the entries s of row i are."""
    lanes: tl.constexpr = 32 if size > 32 else size
    return (s // lanes) * (size * lanes) + i * lanes + s % lanes


@triton.jit
def fold(v, size: tl.constexpr):  # type: ignore[no-untyped-def]
    """(size,) as one entry for every column."""
    lanes: tl.constexpr = 32 if size > 32 else size
    return tl.reshape(v, (size // lanes, 1, lanes))


@triton.jit
def matrix_times(M, v, size: tl.constexpr):  # type: ignore[no-untyped-def]
    """Mᵀv, (size,), for v with an entry for every row."""
    return tl.reshape(tl.sum(M * v[None, :, None], axis=1), (size,))


# A vector goes through memory to where the threads need parts of it: a gather of every part would make the block wait.
@triton.jit
def curvature_times(  # type: ignore[no-untyped-def]
    H, v, scratch, n, j, diagonal: tl.constexpr, width: tl.constexpr, chunk: tl.constexpr
):
    """H v for v (width,), zero beyond n; ``scratch`` has room for n numbers. Rows of weight zero are not read."""
    if diagonal:
        total = v * tl.load(H + j, mask=j < n, other=0.0)
    else:
        tl.debug_barrier()
        tl.store(scratch + j, v, mask=j < n)
        tl.debug_barrier()
        total = tl.zeros_like(v)
        column = folded(width)
        for first in range(0, n, chunk):
            row = first + tl.arange(0, chunk)
            w = tl.load(scratch + row, mask=row < n, other=0.0)
            some = (w != 0.0)[None, :, None] & (column < n)
            tile = tl.load(H + row[None, :, None] * n + column, mask=some, other=0.0)
            total += matrix_times(tile, w, width)
    return total


@triton.jit
def curvature_moved(  # type: ignore[no-untyped-def]
    H, slot, weight, order, scratch, last, n, j, slots: tl.constexpr, width: tl.constexpr, chunk: tl.constexpr
):
    """Σ_t weight_t H[slot_t, :] over t < last, (width,); ``order`` and ``scratch`` have room for all slots."""
    s = tl.arange(0, slots)
    tl.debug_barrier()
    tl.store(order + s, slot)
    tl.store(scratch + s, weight)
    tl.debug_barrier()
    total = tl.zeros_like(j).to(tl.float64)
    column = folded(width)
    for first in range(0, last, chunk):
        t = first + tl.arange(0, chunk)
        w = tl.load(scratch + t)
        some = (w != 0.0)[None, :, None] & (column < n)
        tile = tl.load(H + tl.load(order + t)[None, :, None] * n + column, mask=some, other=0.0)
        total += matrix_times(tile, w, width)
    return total


@triton.jit
def rows_times(J, y, r, R, n, width: tl.constexpr):  # type: ignore[no-untyped-def]
    """Jᵀy, (width,), for y (rows,)."""
    column = folded(width)
    there = (r < R)[None, :, None] & (column < n)
    return matrix_times(tl.load(J + r[None, :, None] * n + column, mask=there, other=0.0), y, width)


@triton.jit
def row_products(columns, v, r, j, R, n):  # type: ignore[no-untyped-def]
    """(rows,) J v for v (width,), from Jᵀ, so that threads add up what they hold."""
    there = (j < n)[:, None] & (r < R)[None, :]
    return tl.sum(tl.load(columns + j[:, None] * R + r[None, :], mask=there, other=0.0) * v[:, None], axis=0)


@triton.jit
def on_slots(by_variable, by_row, slot, n):  # type: ignore[no-untyped-def]
    """(slots,) the entries of the working set of two vectors, of the variables and of the rows."""
    free = (slot >= 0) & (slot < n)
    held = slot >= n
    of_variables = tl.gather(by_variable, tl.where(free, slot, 0), 0)
    of_rows = tl.gather(by_row, tl.where(held, slot - n, 0), 0)
    return tl.where(free, of_variables, tl.where(held, of_rows, 0.0))


@triton.jit
def off_slots(by_slot, position):  # type: ignore[no-untyped-def]
    """The entries of (slots,) at positions, zero where a position is −1."""
    return tl.where(position >= 0, tl.gather(by_slot, tl.maximum(position, 0), 0), 0.0)


@triton.jit
def nearest(distance, code, size, other_distance, other_code, other_size):  # type: ignore[no-untyped-def]
    """Of two candidates the nearer one, and the sum of their sizes: several answers for one pass over a vector."""
    first = (distance < other_distance) | ((distance == other_distance) & (code < other_code))
    return (
        tl.where(first, distance, other_distance),
        tl.where(first, code, other_code),
        size + other_size,
    )


@triton.jit
def farthest(distance, code, size, other_distance, other_code, other_size):  # type: ignore[no-untyped-def]
    """Of two candidates the farther one, and the larger of their sizes."""
    first = (distance > other_distance) | ((distance == other_distance) & (code < other_code))
    return (
        tl.where(first, distance, other_distance),
        tl.where(first, code, other_code),
        tl.maximum(size, other_size),
    )


@triton.jit
def two_sums(first, second, other_first, other_second):  # type: ignore[no-untyped-def]
    """Both sums."""
    return first + other_first, second + other_second


@triton.jit
def largest_and_sum(largest, total, other_largest, other_total):  # type: ignore[no-untyped-def]
    """The larger one and the sum."""
    return tl.maximum(largest, other_largest), total + other_total


@triton.jit
def border(H, J, slot, entering, n, diagonal: tl.constexpr, rows: tl.constexpr):  # type: ignore[no-untyped-def]
    """The column of K that comes with an index: (slots,) on the working set, and its corner; zeros for −1."""
    free = (slot >= 0) & (slot < n)
    new_variable = (entering >= 0) & (entering < n)
    if diagonal:
        border = tl.zeros_like(slot).to(tl.float64)
        corner = tl.load(H + entering, mask=new_variable, other=0.0)
    else:
        border = tl.load(H + entering * n + slot, mask=free & new_variable, other=0.0)
        corner = tl.load(H + entering * n + entering, mask=new_variable, other=0.0)
    if rows:
        border += tl.load(J + (slot - n) * n + entering, mask=(slot >= n) & new_variable, other=0.0)
        border += tl.load(J + (entering - n) * n + slot, mask=free & (entering >= n), other=0.0)
    return border, corner


@triton.jit
def refined(  # type: ignore[no-untyped-def]
    H,
    J,
    columns,
    M,
    c,
    x,
    most,
    slot,
    position,
    row_position,
    j,
    r,
    n,
    R,
    scratch,
    diagonal: tl.constexpr,
    rows: tl.constexpr,
    width: tl.constexpr,
    slots: tl.constexpr,
    chunk: tl.constexpr,
):
    """The solution on the working set to rounding, and its multipliers: M is a good inverse, refinement does the rest."""
    y = tl.zeros_like(row_position).to(tl.float64)
    for _ in range(_REFINEMENTS):
        residual = c + curvature_times(H, x, scratch, n, j, diagonal, width, chunk)
        off = tl.zeros_like(row_position).to(tl.float64)
        if rows:
            residual += rows_times(J, y, r, R, n, width)
            off = tl.where(row_position >= 0, row_products(columns, x, r, j, R, n) - most, 0.0)
        step = -matrix_times(M, on_slots(residual, off, slot, n), slots)
        x += off_slots(step, position)
        y += off_slots(step, row_position)
    return x, y


@triton.jit
def store_solution(  # type: ignore[no-untyped-def]
    x_all,
    curvature_all,
    place_all,
    y_all,
    row_position_all,
    status,
    x,
    curvature,
    place,
    y,
    row_position,
    outcome,
    out,
    j,
    r,
    n,
    R,
):
    """Write what a search has found as row ``out``."""
    tl.store(x_all + out * n + j, x, mask=j < n)
    tl.store(curvature_all + out * n + j, curvature, mask=j < n)
    tl.store(place_all + out * n + j, place, mask=j < n)
    tl.store(y_all + out * R + r, y, mask=r < R)
    tl.store(row_position_all + out * R + r, row_position, mask=r < R)
    tl.store(status + out, outcome)
