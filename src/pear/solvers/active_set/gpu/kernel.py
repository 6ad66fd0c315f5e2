"""The active-set method as Triton kernels: one thread block per sample; blocks do not communicate.

A sample keeps a working set of *indices*: j < n is a variable that is free to move, n + i a row that is held. With

    K = [H Jᵀ; J 0]   restricted to the working set,   M = K⁻¹   kept in registers,

one product M · (−gradient) gives the step to the minimum of the working set and the multipliers there. An index that
comes or goes changes M by a matrix of rank one, so that a step costs a few products of a vector with M and with the
rows of H that belong to variables that move; the rest of H is never read. What is left of the optimality conditions at
the end is computed from the data, and M corrects it, so that no rounding of the way there stays.
"""

from __future__ import annotations

import triton
import triton.language as tl

from pear.optimality import rule
from pear.solvers.active_set import settings

_ROUNDOFF = tl.constexpr(rule.ROUNDOFF)
_PROJECTED = tl.constexpr(rule.PROJECTED)
_NEGLIGIBLE = tl.constexpr(rule.NEGLIGIBLE)
_WRONG = tl.constexpr(settings.KERNEL_SIGN)
_STALLED = tl.constexpr(settings.STALLED)
_REFINEMENTS = tl.constexpr(settings.KERNEL_REFINEMENTS)
_PUSHES = tl.constexpr(settings.KERNEL_PUSHES)
_PUSH = tl.constexpr(settings.KERNEL_PUSH)

# what ends the search of a sample
RUNNING = tl.constexpr(0)
OPTIMAL = tl.constexpr(1)
CROWDED = tl.constexpr(2)  # the working set has no room left
SINGULAR = tl.constexpr(3)  # no curvature along a direction that would have to be followed

# where a variable is
FREE = tl.constexpr(0)
AT_LOWER = tl.constexpr(1)
AT_UPPER = tl.constexpr(2)
NOWHERE = tl.constexpr(3)  # padding
UNBOUNDED = tl.constexpr(4)  # without bounds and not yet free


# Triton reads annotations as code, so that there can be none but its own.
@triton.jit
def _curvature_times(  # type: ignore[no-untyped-def]
    H, index, weight, last, n, j, diagonal: tl.constexpr, chunk: tl.constexpr
):
    """Σ_t weight_t H[index_t, :] over t < last, (width,); rows of weight zero are not read."""
    real = j < n
    total = tl.zeros_like(j).to(tl.float64)
    if diagonal:
        # the caller gives a weight to every variable
        total += weight * tl.load(H + j, mask=real, other=0.0)
    else:
        c = tl.arange(0, chunk)
        for first in range(0, last, chunk):
            row = tl.gather(index, first + c, 0)
            w = tl.gather(weight, first + c, 0)
            some = (w != 0.0)[:, None] & real[None, :]
            tile = tl.load(H + row[:, None] * n + j[None, :], mask=some, other=0.0)
            total += tl.sum(tile * w[:, None], axis=0)
    return total


@triton.jit
def _row_block(J, r, j, R, n):  # type: ignore[no-untyped-def]
    """(rows, width) J, zero where there is none."""
    return tl.load(J + r[:, None] * n + j[None, :], mask=(r < R)[:, None] & (j < n)[None, :], other=0.0)


@triton.jit
def _on_slots(by_variable, by_row, slot, n):  # type: ignore[no-untyped-def]
    """(slots,) the entries of the working set of two vectors, of the variables and of the rows."""
    free = (slot >= 0) & (slot < n)
    held = slot >= n
    of_variables = tl.gather(by_variable, tl.where(free, slot, 0), 0)
    of_rows = tl.gather(by_row, tl.where(held, slot - n, 0), 0)
    return tl.where(free, of_variables, tl.where(held, of_rows, 0.0))


@triton.jit
def _off_slots(by_slot, position):  # type: ignore[no-untyped-def]
    """The entries of (slots,) at positions, zero where a position is −1."""
    return tl.where(position >= 0, tl.gather(by_slot, tl.maximum(position, 0), 0), 0.0)


@triton.jit
def _nearest(distance, code, size, other_distance, other_code, other_size):  # type: ignore[no-untyped-def]
    """Of two candidates the nearer one, and the sum of their sizes: several answers for one pass over a vector."""
    first = (distance < other_distance) | ((distance == other_distance) & (code < other_code))
    return (
        tl.where(first, distance, other_distance),
        tl.where(first, code, other_code),
        size + other_size,
    )


@triton.jit
def _largest_and_sum(largest, total, other_largest, other_total):  # type: ignore[no-untyped-def]
    """The larger one and the sum."""
    return tl.maximum(largest, other_largest), total + other_total


@triton.jit
def _border(H, J, slot, entering, n, diagonal: tl.constexpr, rows: tl.constexpr):  # type: ignore[no-untyped-def]
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
def descend(  # type: ignore[no-untyped-def]
    H,
    J,
    limit,
    lower,
    upper,
    cost,
    start_x,
    start_place,
    start_slot,
    start_position,
    start_row_position,
    start_M,
    x_all,
    y_all,
    curvature_all,
    place_all,
    row_position_all,
    position_all,
    slot_all,
    M_all,
    status,
    B,
    n,
    R,
    equalities,
    H_stride,
    J_stride,
    limit_stride,
    bound_stride,
    start_stride,
    begun,
    rounds,
    costs,
    elastic: tl.constexpr,
    diagonal: tl.constexpr,
    rows: tl.constexpr,
    width: tl.constexpr,
    height: tl.constexpr,
    slots: tl.constexpr,
    chunk: tl.constexpr,
):
    """From a feasible point with its working set to the optimal one, for one cost after another.

    Strides are 0 where all samples share a field.

    Args:
        H: (B or 1, n, n), or (B or 1, n) where it is ``diagonal``; J: (B or 1, R, n), equalities first.
        limit: (B or 1, R); lower, upper: (B or 1, n) bounds.
        cost: (costs, B, n); every further one starts from the solution under the one before.
        start_x, start_place: (B or 1, n) a feasible point and where its variables are.
        start_slot: (slots,) int32 the working set there: ``begun`` free variables, as many held rows, then −1; where it
            is ``elastic``, the last variable alone.
        start_position, start_row_position: (n,) and (R,) int32 the same from the other side.
        start_M: (slots, slots) the part of M there that depends on the rows alone.
        x_all, curvature_all: (costs, B, n) solutions and Hx; y_all: (costs, B, R) multipliers; written.
        place_all: (costs, B, n) int32; row_position_all: (costs, B, R) int32, −1 where a row is not held; written.
        position_all: (B, n) int32 slots of the variables, −1 where one is not free; slot_all: (B, slots) int32, −1
            where a slot is empty; M_all: (B, slots, slots); written, of the first cost.
        status: (costs, B) int32, written: OPTIMAL, CROWDED, SINGULAR, or RUNNING where the rounds ran out.
        rounds: how many steps at most, for each cost.
        elastic: whether the last variable is the share of the violation at the start that is left: once it is zero it
            stays so, and where a solution has it free its cost is raised.
    """
    sample = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, width)
    s = tl.arange(0, slots)
    r = tl.arange(0, height)
    real = j < n
    there = r < R
    equality = r < equalities
    H += sample * H_stride
    J += sample * J_stride
    lo = tl.load(lower + sample * bound_stride + j, mask=real, other=0.0)
    up = tl.load(upper + sample * bound_stride + j, mask=real, other=0.0)
    most = tl.load(limit + sample * limit_stride + r, mask=there, other=float("inf"))
    x = tl.load(start_x + sample * start_stride + j, mask=real, other=0.0)
    place = tl.load(start_place + sample * start_stride + j, mask=real, other=NOWHERE)
    c = tl.load(cost + sample * n + j, mask=real, other=0.0)
    slot = tl.load(start_slot + s)
    position = tl.load(start_position + j, mask=real, other=-1)
    row_position = tl.load(start_row_position + r, mask=there, other=-1)
    square = s[:, None] * slots + s[None, :]
    M = tl.load(start_M + square)
    # K = [H_FF Bᵀ; B 0] with a square B has the inverse [0 B⁻¹; B⁻ᵀ −B⁻ᵀ H_FF B⁻¹], whose last block is the sample's
    inverse = M
    for t in range(0, begun):
        free = tl.load(start_slot + t)
        row = tl.load(start_M + t * slots + s)
        if diagonal:
            product = tl.load(H + free) * row
        else:
            of_free = tl.load(H + free * n + slot, mask=s < begun, other=0.0)
            product = tl.sum(inverse * tl.where(s < begun, of_free, 0.0)[:, None], axis=0)
            product = tl.where(s < begun, 0.0, product)
        M -= row[:, None] * product[None, :]
    if elastic:
        corner = tl.load(H + (n - 1 if diagonal else n * n - 1))
        M = tl.where((s == 0)[:, None] & (s == 0)[None, :], 1.0 / corner, M)
    on_diagonal = tl.sum(tl.where(s[:, None] == s[None, :], M, 0.0), axis=1)
    # kept along, because every pass over a vector makes the whole block wait
    freedom = 1 if elastic else 0
    used = 2 * begun + freedom
    row_size = tl.max(tl.abs(_row_block(J, r, j, R, n)), axis=1)
    outcome = RUNNING
    room = most - tl.sum(_row_block(J, r, j, R, n) * x[None, :], axis=1)
    slope = c + _curvature_times(H, j, x, n, n, j, diagonal, chunk)
    if elastic:
        last_variable = j == n - 1
        pushes = 0
    for k in range(0, costs):
        if k > 0:
            if outcome == OPTIMAL:
                outcome = RUNNING
            other = tl.load(cost + (k * B + sample) * n + j, mask=real, other=0.0)
            slope += other - c
            c = other
        allowed = _WRONG * tl.maximum(tl.max(tl.abs(slope)), tl.max(tl.abs(c)))
        taken = 0
        idle = 0
        while (outcome == RUNNING) & (taken < rounds):
            taken += 1
            # the step to the minimum of the working set, and the multipliers there
            free = (slot >= 0) & (slot < n)
            gradient = tl.where(free, tl.gather(slope, tl.where(free, slot, 0), 0), 0.0)
            step = -tl.sum(M * gradient[None, :], axis=1)
            # At a vertex nothing can move. Elsewhere the variables that the rows hold still have rounding in M, so that
            # a step is compared with the terms of the largest one, |M_jt| being at most √(M_jj M_tt).
            root = tl.sqrt(tl.where(free, tl.maximum(on_diagonal, 0.0), 0.0))
            most_root, terms = tl.reduce((root, root * tl.abs(gradient)), 0, _largest_and_sum)
            rounding = _ROUNDOFF * most_root * terms
            moving = tl.where(free & (freedom > 0) & (tl.abs(step) > rounding), step, 0.0)
            p = _off_slots(moving, position)
            # ratio test: to the first bound, or the first row
            moves = p != 0.0
            distance = tl.where(moves, (tl.where(p > 0, up, lo) - x) / tl.where(moves, p, 1.0), float("inf"))
            code = 2 * j + tl.where(p > 0, 1, 0)
            length, met, far = tl.reduce((tl.maximum(distance, 0.0), code, tl.abs(p)), 0, _nearest)
            rising = met % 2 == 1
            met = met // 2
            if rows:
                rate = tl.sum(_row_block(J, r, j, R, n) * p[None, :], axis=1)
                pace = tl.where(equality, tl.abs(rate), rate)  # an equality not held may be left on neither side
                blocks = there & (row_position < 0) & (pace > _ROUNDOFF * row_size * far)
                reach = tl.where(equality, 0.0, tl.maximum(room, 0.0)) / tl.where(blocks, pace, 1.0)
                reach, row_met = tl.min(tl.where(blocks, reach, float("inf")), axis=0, return_indices=True)
                if reach < length:
                    length = reach
                    met = n + row_met
                room -= tl.minimum(length, 1.0) * rate
            blocked = length < 1.0
            length = tl.minimum(length, 1.0)
            x += length * p
            if diagonal:
                slope += length * _curvature_times(H, j, p, n, n, j, diagonal, chunk)
            else:
                slope += _curvature_times(H, slot, length * moving, used, n, j, diagonal, chunk)
            entering = -1
            leaving = -1
            if blocked:
                idle = tl.where(length > 0.0, 0, idle + 1)
                if met < n:
                    at = j == met
                    x = tl.where(at, tl.where(rising, up, lo), x)
                    place = tl.where(at, tl.where(rising, AT_UPPER, AT_LOWER), place)
                    leaving = met
                    if elastic:
                        if met == n - 1:  # feasible: from here on it is the problem itself
                            up = tl.where(at, 0.0, up)
                            c = tl.where(at, 0.0, c)
                            slope = c + _curvature_times(H, j, x, n, n, j, diagonal, chunk)
                else:
                    entering = met
            else:
                # whose multiplier has the wrong sign?
                reduced = slope
                worst_row = allowed * 0.0
                if rows:
                    y = _off_slots(step, row_position)
                    reduced += tl.sum(_row_block(J, r, j, R, n) * y[:, None], axis=0)
                    wrong_row = tl.where(row_position >= 0, -y * row_size, 0.0)
                    worst_row, first_row = tl.max(tl.where(equality, 0.0, wrong_row), axis=0, return_indices=True)
                wrong = tl.where(place == AT_LOWER, -reduced, tl.where(place == AT_UPPER, reduced, 0.0))
                wrong = tl.where(lo < up, wrong, 0.0)
                wrong = tl.where(place == UNBOUNDED, tl.abs(reduced) + 2.0 * allowed + 1e-300, wrong)
                worst, first = tl.max(wrong, axis=0, return_indices=True)
                if idle > _STALLED:  # the first instead of the worst, so that no circle closes
                    first = tl.min(tl.where(wrong > allowed, j, width))
                if (worst > allowed) & (worst >= worst_row):
                    entering = first.to(tl.int32)
                    place = tl.where(j == entering, FREE, place)
                elif worst_row > allowed:
                    if rows:
                        leaving = (n + first_row).to(tl.int32)
                else:
                    outcome = OPTIMAL
                    if elastic:
                        if tl.sum(tl.where(last_variable & (place == FREE), 1, 0)) > 0:
                            if pushes < _PUSHES:
                                pushes += 1
                                more = tl.where(last_variable, (_PUSH - 1.0) * c, 0.0)
                                c += more
                                slope += more
                                outcome = RUNNING
            # the working set changes by one index, and M by a matrix of rank one
            empty = tl.full((), slots, tl.int32)
            if entering >= 0:
                empty = tl.min(tl.where(slot < 0, s, slots))
                if empty == slots:
                    outcome = CROWDED
                    entering = -1
            gone = (slot == leaving) & (slot >= 0)
            border, corner = _border(H, J, slot, entering, n, diagonal, rows)
            border = tl.where(gone, 1.0, border)
            w = tl.sum(M * border[None, :], axis=1)
            product = tl.sum(border * w)
            # a variable brings curvature, a row takes a direction away
            pivot = tl.where(entering >= 0, corner - product, -product)
            more = (entering >= n) | ((leaving >= 0) & (leaving < n))
            sound = tl.where(more, pivot < 0.0, pivot > _ROUNDOFF * corner)
            changes = (entering >= 0) | (leaving >= 0)
            if changes & (sound == 0):
                outcome = SINGULAR
            w = tl.where(s == empty, -1.0, w)
            factor = tl.where(changes, 1.0 / pivot, 0.0)
            freedom += tl.where(changes, tl.where(more, -1, 1), 0)
            used = tl.maximum(used, tl.where(entering >= 0, empty + 1, 0))
            M = tl.where(gone[:, None] | gone[None, :], 0.0, M + w[:, None] * (w * factor)[None, :])
            on_diagonal = tl.where(gone, 0.0, on_diagonal + w * w * factor)
            slot = tl.where(gone, -1, tl.where(s == empty, entering, slot))
            position = tl.where(real & (j == leaving), -1, tl.where(real & (j == entering), empty, position))
            if rows:
                row_position = tl.where(r == leaving - n, -1, row_position)
                row_position = tl.where((r == entering - n) & (entering >= n), empty, row_position)
        # the solution on the working set to rounding: M is a good inverse, and refinement does the rest
        x = tl.where(place == AT_LOWER, lo, tl.where(place == AT_UPPER, up, x))
        y = tl.zeros((height,), tl.float64)
        for _ in range(_REFINEMENTS):
            residual = c + _curvature_times(H, j, x, n, n, j, diagonal, chunk)
            off = tl.zeros((height,), tl.float64)
            if rows:
                block = _row_block(J, r, j, R, n)
                residual += tl.sum(block * y[:, None], axis=0)
                off = tl.where(row_position >= 0, tl.sum(block * x[None, :], axis=1) - most, 0.0)
            step = -tl.sum(M * _on_slots(residual, off, slot, n)[None, :], axis=1)
            x += _off_slots(step, position)
            y += _off_slots(step, row_position)
        curvature = _curvature_times(H, j, x, n, n, j, diagonal, chunk)
        slope = c + curvature
        room = most - tl.sum(_row_block(J, r, j, R, n) * x[None, :], axis=1)
        out = k * B + sample
        tl.store(x_all + out * n + j, x, mask=real)
        tl.store(curvature_all + out * n + j, curvature, mask=real)
        tl.store(place_all + out * n + j, place, mask=real)
        tl.store(y_all + out * R + r, y, mask=there)
        tl.store(row_position_all + out * R + r, row_position, mask=there)
        tl.store(status + out, outcome)
        if k == 0:
            tl.store(position_all + sample * n + j, position, mask=real)
            tl.store(slot_all + sample * slots + s, slot)
            tl.store(M_all + sample * slots * slots + square, M)


@triton.jit
def project(  # type: ignore[no-untyped-def]
    H,
    J,
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
        H, J, their strides, slot_all, position_all, row_position_all, M_all: as ``descend`` leaves them.
        error: (B, n); g_all: (B, n), written; converged: (B,) int8, written: whether the last correction is small.
    """
    sample = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, width)
    s = tl.arange(0, slots)
    r = tl.arange(0, height)
    real = j < n
    H += sample * H_stride
    J += sample * J_stride
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
        residual = e - _curvature_times(H, j, g, n, n, j, diagonal, chunk)
        off = tl.zeros((height,), tl.float64)
        if rows:
            block = _row_block(J, r, j, R, n)
            residual -= tl.sum(block * v[:, None], axis=0)
            off = -tl.sum(block * g[None, :], axis=1)
        step = tl.sum(M * _on_slots(residual, off, slot, n)[None, :], axis=1)
        correction = _off_slots(step, position)
        g += correction
        v += _off_slots(step, row_position)
        change = tl.max(tl.abs(correction))
        if k == 0:
            first = change
    good = (change <= _PROJECTED * first) | (change <= noise)
    g = tl.where(tl.max(tl.abs(g)) <= noise, 0.0, g)
    tl.store(g_all + sample * n + j, g, mask=real)
    tl.store(converged + sample, good.to(tl.int8))
