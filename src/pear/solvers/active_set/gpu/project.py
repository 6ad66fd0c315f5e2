"""The projections at solutions of the active-set kernels, with the inverses or the terms that they leave."""

from __future__ import annotations

import triton
import triton.language as tl

from pear.optimality import rule
from pear.solvers.active_set import settings
from pear.solvers.active_set.gpu.parts import curvature_times, off_slots, on_slots, row_block, row_products
from pear.solvers.active_set.gpu.terms import corrected

_PROJECTED = tl.constexpr(rule.PROJECTED)
_NEGLIGIBLE = tl.constexpr(rule.NEGLIGIBLE)
_REFINEMENTS = tl.constexpr(settings.KERNEL_REFINEMENTS)


@triton.jit
def project(  # type: ignore[no-untyped-def]
    H,
    J,
    columns,
    error,
    slot_all,
    position_all,
    row_position_all,
    M_all,
    g_all,
    converged,
    n,
    R,
    H_stride,
    J_stride,
    diagonal: tl.constexpr,
    rows: tl.constexpr,
    width: tl.constexpr,
    height: tl.constexpr,
    slots: tl.constexpr,
    chunk: tl.constexpr,
):
    """P e on the working sets, refined to rounding, and zero where it is no more than the rounding of H⁻¹e.

    Args:
        H, J, columns, their strides, slot_all, position_all, row_position_all, M_all: as ``descend`` leaves them.
        error: (B, n); g_all: (B, n), written; converged: (B,) int8, written: whether the last correction is small.
    """
    sample = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, width)
    s = tl.arange(0, slots)
    r = tl.arange(0, height)
    real = j < n
    H += sample * H_stride
    J += sample * J_stride
    columns += sample * J_stride
    e = tl.load(error + sample * n + j, mask=real, other=0.0)
    slot = tl.load(slot_all + sample * slots + s)
    position = tl.load(position_all + sample * n + j, mask=real, other=-1)
    row_position = tl.load(row_position_all + sample * R + r, mask=r < R, other=-1)
    M = tl.load(M_all + sample * slots * slots + s[:, None] * slots + s[None, :])
    step_of_diagonal = 1 if diagonal else n + 1
    largest = tl.max(tl.abs(tl.load(H + j * step_of_diagonal, mask=real, other=0.0)))
    noise = _NEGLIGIBLE * tl.max(tl.abs(e)) / tl.where(largest > 0.0, largest, 1.0)
    g = tl.zeros((width,), tl.float64)
    v = tl.zeros((height,), tl.float64)
    first = tl.max(tl.abs(e)) * 0.0
    change = first
    for k in range(0, 1 + _REFINEMENTS):
        residual = e - curvature_times(H, g, g_all + sample * n, n, n, j, diagonal, chunk)
        off = tl.zeros((height,), tl.float64)
        if rows:
            residual -= tl.sum(row_block(J, r, j, R, n) * v[:, None], axis=0)
            off = -row_products(columns, g, r, j, R, n)
        step = tl.sum(M * on_slots(residual, off, slot, n)[:, None], axis=0)
        correction = off_slots(step, position)
        g += correction
        v += off_slots(step, row_position)
        change = tl.max(tl.abs(correction))
        if k == 0:
            first = change
    good = (change <= _PROJECTED * first) | (change <= noise)
    g = tl.where(tl.max(tl.abs(g)) <= noise, 0.0, g)
    tl.store(g_all + sample * n + j, g, mask=real)
    tl.store(converged + sample, good.to(tl.int8))


@triton.jit
def project_by_terms(  # type: ignore[no-untyped-def]
    reach,
    H,
    J,
    columns,
    error,
    came_all,
    terms_all,
    weight_all,
    count_all,
    g_all,
    converged,
    n,
    R,
    decisions,
    most_terms,
    reach_stride,
    H_stride,
    J_stride,
    diagonal: tl.constexpr,
    rows: tl.constexpr,
    width: tl.constexpr,
    chunk: tl.constexpr,
):
    """The same as ``project`` after the dual method.

    Args:
        reach, H, J, columns, their strides, came_all, terms_all, weight_all, count_all, n, R, decisions, most_terms: as
            ``ascend`` has and leaves them.
        error: (B, decisions); g_all: (B, n + R), written, the projection and more.
        converged: (B,) int8, written.
    """
    sample = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, width)
    size = n + R
    decision = j < decisions
    reach += sample * reach_stride
    H += sample * H_stride
    J += sample * J_stride
    columns += sample * J_stride
    terms_all += sample * most_terms * size
    weight_all += sample * most_terms
    e = tl.load(error + sample * decisions + j, mask=decision, other=0.0)
    came = tl.load(came_all + sample * size + j, mask=j < size, other=-1)
    count = tl.load(count_all + sample)
    step_of_diagonal = 1 if diagonal else n + 1
    largest = tl.max(tl.abs(tl.load(H + j * step_of_diagonal, mask=decision, other=0.0)))
    noise = _NEGLIGIBLE * tl.max(tl.abs(e)) / tl.where(largest > 0.0, largest, 1.0)
    g = tl.zeros((width,), tl.float64)
    first = noise * 0.0
    change = first
    for k in range(0, 1 + _REFINEMENTS):
        correction = corrected(
            reach, H, J, columns, terms_all, weight_all, -e, g, g * 0.0, came, count, g_all + sample * size, n, R, j,
            diagonal, rows, chunk,
        )  # fmt: skip
        g += correction
        change = tl.max(tl.where(decision, tl.abs(correction), 0.0))
        if k == 0:
            first = change
    good = (change <= _PROJECTED * first) | (change <= noise)
    g = tl.where(tl.max(tl.where(decision, tl.abs(g), 0.0)) <= noise, 0.0, g)
    tl.store(g_all + sample * size + j, g, mask=j < size)
    tl.store(converged + sample, good.to(tl.int8))
