"""The active-set method as one Triton kernel: one thread block per sample; blocks do not communicate.

A sample keeps a working set of *indices*: j < n is a variable that is free to move, n + i a row that is held. With

    K = [H Jᵀ; J 0]   restricted to the working set,   M = K⁻¹   kept in registers,

one product M · (−gradient) gives the step to the minimum of the working set and the multipliers there. An index that
comes or goes changes M by a matrix of rank one, so that a step costs a few products of a vector with M and with the
rows of H that belong to variables that move; the rest of H is never read.
"""

from __future__ import annotations

import triton
import triton.language as tl

from pear.optimality import rule
from pear.solvers.active_set import settings

_ROUNDOFF = tl.constexpr(rule.ROUNDOFF)
_WRONG = tl.constexpr(settings.KERNEL_SIGN)


# Triton reads annotations as code, so that there can be none but its own.
@triton.jit
def descend(  # type: ignore[no-untyped-def]
    H,
    J,
    limit,
    lower,
    upper,
    x_all,
    slope_all,
    place_all,
    slot_all,
    M_all,
    status,
    n,
    rows,
    equalities,
    H_stride,
    rounds,
    width: tl.constexpr,
    slots: tl.constexpr,
):
    """From a feasible point with its working set to the optimal one.

    Args:
        H: (B or 1, n, n) with the stride ``H_stride`` (0 where it is shared); J: (rows, n), equalities first.
        limit: (rows,); lower, upper: (n,) bounds.
        x_all, slope_all: (B, n) point and gradient Hx + c, rewritten; place_all: (B, n) int32, 0 free, 1 at the lower
            and 2 at the upper bound, rewritten.
        slot_all: (B, slots) int32 working set, −1 where a slot is empty; M_all: (B, slots, slots); both rewritten.
        status: (B,) int32, written: 1 at the optimum, 2 where there is no room left, 0 where the rounds ran out.
        rounds: how many steps at most.
    """
    sample = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, width)
    s = tl.arange(0, slots)
    real = j < n
    H += sample * H_stride
    x = tl.load(x_all + sample * n + j, mask=real, other=0.0)
    slope = tl.load(slope_all + sample * n + j, mask=real, other=0.0)
    place = tl.load(place_all + sample * n + j, mask=real, other=3)
    lo = tl.load(lower + j, mask=real, other=0.0)
    up = tl.load(upper + j, mask=real, other=0.0)
    slot = tl.load(slot_all + sample * slots + s)
    square = s[:, None] * slots + s[None, :]
    M = tl.load(M_all + sample * slots * slots + square)
    outcome = 0
    taken = 0
    while (outcome == 0) & (taken < rounds):
        taken += 1
        # the step to the minimum of the working set
        variable = (slot >= 0) & (slot < n)
        here = (slot[:, None] == j[None, :]) & variable[:, None]
        gradient = tl.sum(tl.where(here, slope[None, :], 0.0), axis=1)
        step = -tl.sum(M * gradient[None, :], axis=1)
        step = tl.where(slot >= 0, step, 0.0)
        p = tl.sum(tl.where(here, step[:, None], 0.0), axis=0)
        # ratio test: to the first bound, or the first row
        moves = real & (tl.abs(p) > _ROUNDOFF * tl.max(tl.abs(p)))
        goal = tl.where(p > 0, up, lo)
        distance = tl.where(moves, (goal - x) / tl.where(moves, p, 1.0), float("inf"))
        distance = tl.maximum(distance, 0.0)
        length = tl.min(distance)
        met = tl.argmin(distance, axis=0)
        for i in range(equalities, rows):
            held = tl.sum(tl.where(slot == n + i, 1, 0))
            row = tl.load(J + i * n + j, mask=real, other=0.0)
            rate = tl.sum(row * p)
            size = tl.sum(tl.abs(row * p))
            room = tl.maximum(tl.load(limit + i) - tl.sum(row * x), 0.0)
            if (held == 0) & (rate > _ROUNDOFF * size) & (room < length * rate):
                length = room / rate
                met = n + i
        blocked = length < 1.0
        length = tl.minimum(length, 1.0)
        x += length * p
        for t in range(slots):
            index = tl.sum(tl.where(s == t, slot, 0))
            change = length * tl.sum(tl.where(s == t, step, 0.0))
            if (index >= 0) & (index < n) & (change != 0.0):
                slope += change * tl.load(H + index * n + j, mask=real, other=0.0)
        entering = met * 0 - 1
        leaving = met * 0 - 1
        if blocked:
            if met < n:
                at = j == met
                rising = tl.sum(tl.where(at, p, 0.0)) > 0
                x = tl.where(at, tl.where(rising, up, lo), x)
                place = tl.where(at, tl.where(rising, 2, 1), place)
                leaving = met
            else:
                entering = met
        else:
            # the multipliers that come with the minimum: whose sign is most wrong?
            reduced = slope
            worst = _WRONG * tl.max(tl.abs(slope))
            for i in range(0, rows):
                y = tl.sum(tl.where(slot == n + i, step, 0.0))
                row = tl.load(J + i * n + j, mask=real, other=0.0)
                reduced += y * row
                wrong = -y * tl.max(tl.abs(row))
                if (i >= equalities) & (wrong > worst):
                    worst = wrong
                    leaving = n + i
            wrong_bound = tl.where(place == 1, -reduced, tl.where(place == 2, reduced, 0.0))
            wrong_bound = tl.where(real & (lo < up), wrong_bound, 0.0)
            most = tl.max(wrong_bound)
            if most > worst:
                leaving = met * 0 - 1
                entering = tl.argmax(wrong_bound, axis=0)
                place = tl.where(j == entering, 0, place)
            if (entering < 0) & (leaving < 0):
                outcome = 1
        if leaving >= 0:
            gone = slot == leaving
            column = tl.sum(tl.where(gone[None, :], M, 0.0), axis=1)
            pivot = tl.sum(tl.where(gone, column, 0.0))
            M -= column[:, None] * column[None, :] / pivot
            M = tl.where(gone[:, None] | gone[None, :], 0.0, M)
            slot = tl.where(gone, -1, slot)
        if entering >= 0:
            empty = tl.min(tl.where(slot < 0, s, slots))
            if empty == slots:
                outcome = 2
            else:
                variable = (slot >= 0) & (slot < n)
                held_rows = slot >= n
                new_variable = entering < n
                border = tl.load(H + entering * n + slot, mask=variable & new_variable, other=0.0)
                border += tl.load(J + (slot - n) * n + entering, mask=held_rows & new_variable, other=0.0)
                border += tl.load(J + (entering - n) * n + slot, mask=variable & (entering >= n), other=0.0)
                corner = tl.load(H + entering * n + entering, mask=new_variable, other=0.0)
                u = tl.sum(M * border[None, :], axis=1)
                rest = corner - tl.sum(border * u)
                u = tl.where(s == empty, -1.0, u)
                M += u[:, None] * u[None, :] / rest
                slot = tl.where(s == empty, entering, slot)
    tl.store(x_all + sample * n + j, x, mask=real)
    tl.store(place_all + sample * n + j, place, mask=real)
    tl.store(slot_all + sample * slots + s, slot)
    tl.store(M_all + sample * slots * slots + square, M)
    tl.store(status + sample, outcome)
