"""Projections at the solutions of the active-set kernels: one thread block per sample.

A projection g = P e solves min ½gᵀHg − eᵀg on the working set. It is computed by rounds of refinement from zero.
"""

from __future__ import annotations

import triton
import triton.language as tl

from pear.optimality import rule
from pear.solvers.active_set import settings
from pear.solvers.active_set.gpu.kernel_functions import correct_primal
from pear.solvers.active_set.gpu.working_set_terms import correct_dual

_PROJECTED = tl.constexpr(rule.PROJECTED)
_NEGLIGIBLE = tl.constexpr(rule.NEGLIGIBLE)
_ROUNDS = tl.constexpr(1 + settings.KERNEL_REFINEMENTS)


@triton.jit
def _rounding(H, e, j, decisions, n, diagonal: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return the size that rounding errors in H⁻¹e can have."""
    step = 1 if diagonal else n + 1
    largest = tl.max(tl.abs(tl.load(H + j * step, mask=j < decisions, other=0.0)))
    return _NEGLIGIBLE * tl.max(tl.abs(e)) / tl.where(largest > 0.0, largest, 1.0)


@triton.jit
def project_primal(  # type: ignore[no-untyped-def]
    H, J, columns, error, slot_all, position_all, row_position_all, M_all, g_all, converged,
    n, R, H_stride, J_stride,
    diagonal: tl.constexpr, rows: tl.constexpr,
    width: tl.constexpr, height: tl.constexpr, slots: tl.constexpr, chunk: tl.constexpr,
):  # fmt: skip
    """Project errors after the primal method. A projection no larger than the rounding of H⁻¹e becomes zero.

    Args:
        H, J, columns, their strides: as in ``search_primal``.
        slot_all, position_all, row_position_all, M_all: as ``search_primal`` writes them.
        error: (B, n).
        g_all: (B, n), written.
        converged: (B,) int8, written: whether the last correction is small.
    """
    sample = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, width)
    s = tl.arange(0, slots)
    r = tl.arange(0, height)
    real = j < n
    H += sample * H_stride
    J += sample * J_stride
    columns += sample * J_stride
    g_all += sample * n
    e = tl.load(error + sample * n + j, mask=real, other=0.0)
    slot = tl.load(slot_all + sample * slots + s)
    position = tl.load(position_all + sample * n + j, mask=real, other=-1)
    row_position = tl.load(row_position_all + sample * R + r, mask=r < R, other=-1)
    M = tl.load(M_all + sample * slots * slots + s[:, None] * slots + s[None, :])
    noise = _rounding(H, e, j, n, n, diagonal)
    g = tl.zeros((width,), tl.float64)
    y = tl.zeros((height,), tl.float64)
    first = noise * 0.0
    change = first
    for k in range(0, _ROUNDS):
        g_change, y_change = correct_primal(
            H, J, columns, M, -e, g, y, y * 0.0, g_all, slot, position, row_position, j, r, n, R, diagonal, rows, chunk
        )
        g += g_change
        y += y_change
        change = tl.max(tl.abs(g_change))
        if k == 0:
            first = change
    good = (change <= _PROJECTED * first) | (change <= noise)
    g = tl.where(tl.max(tl.abs(g)) <= noise, 0.0, g)
    tl.store(g_all + j, g, mask=real)
    tl.store(converged + sample, good.to(tl.int8))


@triton.jit
def project_dual(  # type: ignore[no-untyped-def]
    response, H, J, columns, error, since_all, terms_all, weight_all, count_all, g_all, converged,
    n, R, decisions, most_terms, response_stride, H_stride, J_stride,
    diagonal: tl.constexpr, rows: tl.constexpr, width: tl.constexpr, chunk: tl.constexpr,
):  # fmt: skip
    """Project errors after the dual method, as ``project_primal`` does after the primal one.

    Args:
        response, H, J, columns, their strides, n, R, decisions, most_terms: as in ``search_dual``.
        since_all, terms_all, weight_all, count_all: as ``search_dual`` writes them.
        error: (B, decisions).
        g_all: (B, n + R), written: the projection, then numbers without a meaning.
        converged: (B,) int8, written: whether the last correction is small.
    """
    sample = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, width)
    size = n + R
    decision = j < decisions
    response += sample * response_stride
    H += sample * H_stride
    J += sample * J_stride
    columns += sample * J_stride
    terms_all += sample * most_terms * size
    weight_all += sample * most_terms
    g_all += sample * size
    e = tl.load(error + sample * decisions + j, mask=decision, other=0.0)
    since = tl.load(since_all + sample * size + j, mask=j < size, other=-1)
    count = tl.load(count_all + sample)
    noise = _rounding(H, e, j, decisions, n, diagonal)
    g = tl.zeros((width,), tl.float64)
    first = noise * 0.0
    change = first
    for k in range(0, _ROUNDS):
        g_change = correct_dual(
            response,
            H,
            J,
            columns,
            terms_all,
            weight_all,
            -e,
            g,
            g * 0.0,
            g_all,
            since,
            count,
            j,
            n,
            R,
            diagonal,
            rows,
            chunk,
        )
        g += g_change
        change = tl.max(tl.where(decision, tl.abs(g_change), 0.0))
        if k == 0:
            first = change
    good = (change <= _PROJECTED * first) | (change <= noise)
    g = tl.where(tl.max(tl.where(decision, tl.abs(g), 0.0)) <= noise, 0.0, g)
    tl.store(g_all + j, g, mask=j < size)
    tl.store(converged + sample, good.to(tl.int8))
