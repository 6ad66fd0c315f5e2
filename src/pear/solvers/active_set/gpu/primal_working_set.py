"""The working set of the primal method within a kernel: products on its slots, updates, and refinement.

The working set is a set of *indices*: j < n is a variable that is free to move, n + i a row that is held. Every index
has a *slot*, a position in vectors and matrices of the working set. M is the inverse of K = [H Jᵀ; J 0] restricted to
the working set, in the order of the slots.
"""

from __future__ import annotations

import triton
import triton.language as tl

from pear.solvers.active_set.gpu.kernel_products import kernel_product_with_curvature


@triton.jit
def primal_working_set_curvature_change(H, slot, weight, order, scratch, last, n, j, chunk: tl.constexpr):  # type: ignore[no-untyped-def]
    """Compute (width,) Σ_t weight_t H[slot_t, :] over t < last: the change of Hx if free variables move by ``weight``.

    ``order`` and ``scratch`` are memory for one number for each slot.
    """
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
def primal_working_set_rows(J, r, j, R, n):  # type: ignore[no-untyped-def]
    """Load J as a block (height, width), with zeros outside of J."""
    return tl.load(J + r[:, None] * n + j[None, :], mask=(r < R)[:, None] & (j < n)[None, :], other=0.0)


@triton.jit
def primal_working_set_row_products(columns, v, r, j, R, n):  # type: ignore[no-untyped-def]
    """Compute (height,) J v for v (width,) from Jᵀ, so that every thread adds up numbers that it holds."""
    there = (j < n)[:, None] & (r < R)[None, :]
    return tl.sum(tl.load(columns + j[:, None] * R + r[None, :], mask=there, other=0.0) * v[:, None], axis=0)


@triton.jit
def gather_to_primal_working_set(by_variable, by_row, slot, n):  # type: ignore[no-untyped-def]
    """Return one number for each slot: the entry of ``by_variable`` for a variable, or of ``by_row`` for a row.

    An empty slot gets zero.
    """
    free = (slot >= 0) & (slot < n)
    held = slot >= n
    of_variables = tl.gather(by_variable, tl.where(free, slot, 0), 0)
    of_rows = tl.gather(by_row, tl.where(held, slot - n, 0), 0)
    return tl.where(free, of_variables, tl.where(held, of_rows, 0.0))


@triton.jit
def gather_from_primal_working_set(by_slot, position):  # type: ignore[no-untyped-def]
    """Return the entries of ``by_slot`` (slots,) at the slots ``position``; zero if the slot is −1."""
    return tl.where(position >= 0, tl.gather(by_slot, tl.maximum(position, 0), 0), 0.0)


@triton.jit
def primal_working_set_column(H, J, slot, entering, n, diagonal: tl.constexpr, rows: tl.constexpr):  # type: ignore[no-untyped-def]
    """Load the column of K = [H Jᵀ; J 0] that belongs to an entering index; zeros for index −1.

    Returns:
        (slots,) the entries of the column on the working set, and its entry on the diagonal.
    """
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
def update_primal_working_set(  # type: ignore[no-untyped-def]
    M, w, factor, slot, position, row_position, entering, leaving, at, s, j, r, n, rows: tl.constexpr
):
    """Let an index enter or leave the working set at slot ``at``; return M, ``slot``, ``position``, ``row_position``.

    The inverse M changes by a matrix of rank one. ``w`` is M times the entering column, or the leaving column of M.
    ``factor`` is one over the pivot.
    """
    M += w[:, None] * (w * factor)[None, :]
    if leaving >= 0:  # exact zeros in place of rounding errors
        M = tl.where((s == at)[:, None] | (s == at)[None, :], 0.0, M)
    slot = tl.where(s == at, entering, slot)
    position = tl.where((j < n) & (j == leaving), -1, tl.where((j < n) & (j == entering), at, position))
    if rows:
        row_position = tl.where(r == leaving - n, -1, row_position)
        row_position = tl.where((r == entering - n) & (entering >= n), at, row_position)
    return M, slot, position, row_position


@triton.jit
def correct_on_primal_working_set(  # type: ignore[no-untyped-def]
    H, J, columns, M, c, x, y, limit, scratch,
    slot, position, row_position, j, r, n, R,
    diagonal: tl.constexpr, rows: tl.constexpr, chunk: tl.constexpr,
):  # fmt: skip
    """Return the changes of x and of the multipliers y in one round of refinement on the working set.

    The program is min ½xᵀHx + cᵀx. The residuals are computed from the data, so that an approximate inverse M is
    enough.
    """
    residual = c + kernel_product_with_curvature(H, x, scratch, n, n, j, diagonal, chunk)
    off = tl.zeros_like(y)
    if rows:
        residual += tl.sum(primal_working_set_rows(J, r, j, R, n) * y[:, None], axis=0)
        off = tl.where(row_position >= 0, primal_working_set_row_products(columns, x, r, j, R, n) - limit, 0.0)
    step = -tl.sum(M * gather_to_primal_working_set(residual, off, slot, n)[:, None], axis=0)
    return gather_from_primal_working_set(step, position), gather_from_primal_working_set(step, row_position)
