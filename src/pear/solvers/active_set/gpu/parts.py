"""What the kernels are made of: products with curvature and rows, and the working set seen from both sides."""

from __future__ import annotations

import triton
import triton.language as tl

from pear.solvers.active_set import settings
from pear.solvers.active_set.gpu import start

_REFINEMENTS = tl.constexpr(settings.KERNEL_REFINEMENTS)

FREE = tl.constexpr(start.MOVABLE)
AT_LOWER = tl.constexpr(start.AT_LOWER)
AT_UPPER = tl.constexpr(start.AT_UPPER)
NOWHERE = tl.constexpr(start.NOWHERE)
UNBOUNDED = tl.constexpr(start.UNBOUNDED)
RUNNING = tl.constexpr(start.RUNNING)
OPTIMAL = tl.constexpr(start.OPTIMAL)
CROWDED = tl.constexpr(start.CROWDED)
SINGULAR = tl.constexpr(start.SINGULAR)
INFEASIBLE = tl.constexpr(start.INFEASIBLE)


# Triton reads annotations as code, so that there can be none but its own.
#
# A vector goes through memory to where the threads need parts of it: a gather of every part would make the block wait
# dozens of times.
@triton.jit
def weighted_rows(matrix, weights, count, stride, column, chunk: tl.constexpr):  # type: ignore[no-untyped-def]
    """Σ_k weights_k matrix[k, column] over k < count, zero where there is no such column among the ``stride`` of a row.

    Rows of weight zero are not read.
    """
    total = tl.zeros_like(column).to(tl.float64)
    c = tl.arange(0, chunk)
    for first in range(0, count, chunk):
        k = first + c
        w = tl.load(weights + k, mask=k < count, other=0.0)
        some = (w != 0.0)[:, None] & ((column >= 0) & (column < stride))[None, :]
        tile = tl.load(matrix + k[:, None] * stride + column[None, :], mask=some, other=0.0)
        total += tl.sum(tile * w[:, None], axis=0)
    return total


@triton.jit
def curvature_times(  # type: ignore[no-untyped-def]
    H, v, scratch, n, stride, j, diagonal: tl.constexpr, chunk: tl.constexpr
):
    """H v for v (width,), zero beyond n; ``scratch`` has room for n numbers. H has n rows of ``stride`` numbers."""
    if diagonal:
        total = v * tl.load(H + j, mask=j < n, other=0.0)
    else:
        tl.store(scratch + j, v, mask=j < n)
        tl.debug_barrier()
        total = weighted_rows(H, scratch, n, stride, j, chunk)
        tl.debug_barrier()  # whoever is ahead must not write where others read
    return total


@triton.jit
def curvature_moved(H, slot, weight, order, scratch, last, n, j, chunk: tl.constexpr):  # type: ignore[no-untyped-def]
    """Σ_t weight_t H[slot_t, :] over t < last, (width,); ``order`` and ``scratch`` have room for all slots."""
    s = tl.arange(0, slot.shape[0])
    tl.store(order + s, slot)
    tl.store(scratch + s, weight)
    tl.debug_barrier()
    total = tl.zeros_like(j).to(tl.float64)
    c = tl.arange(0, chunk)
    for first in range(0, last, chunk):
        row = tl.load(order + first + c)
        w = tl.load(scratch + first + c)
        some = (w != 0.0)[:, None] & (j < n)[None, :]
        tile = tl.load(H + row[:, None] * n + j[None, :], mask=some, other=0.0)
        total += tl.sum(tile * w[:, None], axis=0)
    tl.debug_barrier()
    return total


@triton.jit
def row_block(J, r, j, R, n):  # type: ignore[no-untyped-def]
    """(rows, width) J, zero where there is none."""
    return tl.load(J + r[:, None] * n + j[None, :], mask=(r < R)[:, None] & (j < n)[None, :], other=0.0)


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
def three_sums(first, second, third, other_first, other_second, other_third):  # type: ignore[no-untyped-def]
    """All three sums."""
    return first + other_first, second + other_second, third + other_third


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
def place_of(slot, entering, leaving, s, slots: tl.constexpr):  # type: ignore[no-untyped-def]
    """The slot that an index goes to, or comes from; the number of slots where there is none."""
    return tl.min(tl.where(tl.where(entering >= 0, slot < 0, (slot == leaving) & (slot >= 0)), s, slots))


@triton.jit
def exchanged(  # type: ignore[no-untyped-def]
    M, w, factor, slot, position, row_position, entering, leaving, at, s, j, r, n, rows: tl.constexpr
):
    """The working set after an index has come or gone, and its inverse, which changes by a matrix of rank one.

    ``w`` is M times the column that comes, or the column of M that goes; ``factor`` is one over its pivot.
    """
    M += w[:, None] * (w * factor)[None, :]
    if leaving >= 0:  # exactly nothing is left
        M = tl.where((s == at)[:, None] | (s == at)[None, :], 0.0, M)
    slot = tl.where(s == at, entering, slot)
    position = tl.where((j < n) & (j == leaving), -1, tl.where((j < n) & (j == entering), at, position))
    if rows:
        row_position = tl.where(r == leaving - n, -1, row_position)
        row_position = tl.where((r == entering - n) & (entering >= n), at, row_position)
    return M, slot, position, row_position


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
    chunk: tl.constexpr,
):
    """The solution on the working set and its multipliers: M is a good inverse, and refinement does the rest."""
    y = tl.zeros_like(row_position).to(tl.float64)
    for _ in range(_REFINEMENTS):
        residual = c + curvature_times(H, x, scratch, n, n, j, diagonal, chunk)
        off = tl.zeros_like(row_position).to(tl.float64)
        if rows:
            residual += tl.sum(row_block(J, r, j, R, n) * y[:, None], axis=0)
            off = tl.where(row_position >= 0, row_products(columns, x, r, j, R, n) - most, 0.0)
        step = -tl.sum(M * on_slots(residual, off, slot, n)[:, None], axis=0)
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
