"""Products with the rows of a matrix, which the kernels of the primal and of the dual method share."""

from __future__ import annotations

import triton
import triton.language as tl

from pear.optimality import rule

_NEGLIGIBLE = tl.constexpr(rule.NEGLIGIBLE)


# Triton reads annotations as code, so that there can be none but its own.
#
# A vector whose parts all threads need goes through memory: a gather of every part would make the block wait dozens of
# times.
@triton.jit
def kernel_product_of_rows(matrix, weights, count, stride, column, chunk: tl.constexpr):  # type: ignore[no-untyped-def]
    """Compute Σ_k weights_k matrix[k, column] over k < count, for every entry of ``column``.

    The matrix has ``stride`` columns. The sum is zero if ``column`` is not one of them. Rows of weight zero are not
    read.
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
def kernel_product_with_curvature(  # type: ignore[no-untyped-def]
    H, v, scratch, n, stride, j, diagonal: tl.constexpr, chunk: tl.constexpr
):
    """Compute H v for v (width,), which is zero beyond its first n entries.

    H has n rows of ``stride`` numbers, or n numbers if H is ``diagonal``. ``scratch`` is memory for n numbers.
    """
    if diagonal:
        total = v * tl.load(H + j, mask=j < n, other=0.0)
    else:
        tl.store(scratch + j, v, mask=j < n)
        tl.debug_barrier()
        total = kernel_product_of_rows(H, scratch, n, stride, j, chunk)
        tl.debug_barrier()  # a thread that is ahead must not write where others read
    return total


@triton.jit
def kernel_product_rounding(H, e, j, decisions, n, diagonal: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return a bound on the rounding errors in H⁻¹e. A projection of e counts as zero if no entry exceeds the bound."""
    step = 1 if diagonal else n + 1
    largest = tl.max(tl.abs(tl.load(H + j * step, mask=j < decisions, other=0.0)))
    return _NEGLIGIBLE * tl.max(tl.abs(e)) / tl.where(largest > 0.0, largest, 1.0)
