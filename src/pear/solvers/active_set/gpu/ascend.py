"""The dual active-set method as a Triton kernel, for decisions in which most variables are free.

It starts at the minimum without any constraint, where every variable is free and M = H⁻¹, and adds the constraint that
is violated most, one after another; constraints whose multiplier would change its sign are dropped on the way. No point
on the way is feasible but the last, and none has a multiplier of the wrong sign. Working set and M are those of
``descend``; a step costs one product with M and one change of rank one, and no feasible point is needed.
"""

from __future__ import annotations

import triton
import triton.language as tl

from pear.optimality import rule
from pear.solvers.active_set.gpu.parts import (
    AT_LOWER,
    AT_UPPER,
    CROWDED,
    FREE,
    INFEASIBLE,
    NOWHERE,
    OPTIMAL,
    RUNNING,
    SINGULAR,
    border,
    curvature_at,
    curvature_times,
    exchanged,
    farthest,
    off_slots,
    place_of,
    refined,
    row_block,
    row_products,
    store_solution,
    two_sums,
)

_ROUNDOFF = tl.constexpr(rule.ROUNDOFF)
_FEASIBLE = tl.constexpr(rule.FEASIBLE)


@triton.jit
def _violated(  # type: ignore[no-untyped-def]
    x, lo, up, place, room, length, row_position, equality, j, r, n, R, rows: tl.constexpr
):
    """The constraint that is violated most, −1 for none; whether it is an upper bound; by how much it has to move."""
    over = tl.where(place == FREE, tl.maximum(lo - x, x - up), 0.0)
    code = 2 * j + tl.where(x > up, 1, 0)
    worst, met, size = tl.reduce((over, code, tl.abs(x)), 0, farthest)
    rising = met % 2 == 1
    met = met // 2
    gap = tl.where(rising, -worst, worst)
    if rows:
        short = tl.where(equality, tl.abs(room), -room) / length
        short = tl.where((r < R) & (row_position < 0), short, 0.0)
        worst_row, row_met = tl.max(short, axis=0, return_indices=True)
        if worst_row > worst:
            worst = worst_row
            met = n + row_met
            gap = tl.sum(tl.where(r == row_met, room, 0.0))
    return tl.where(worst > _FEASIBLE * size, met, -1).to(tl.int32), rising, gap


@triton.jit
def ascend(  # type: ignore[no-untyped-def]
    inverse,
    inverse_outcome,
    H,
    J,
    columns,
    norm,
    limit,
    lower,
    upper,
    cost,
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
    norm_stride,
    bound_stride,
    rounds,
    few: tl.constexpr,
    diagonal: tl.constexpr,
    rows: tl.constexpr,
    width: tl.constexpr,
    height: tl.constexpr,
    slots: tl.constexpr,
    chunk: tl.constexpr,
):
    """From the minimum without constraints to that with them; one block for each sample and cost.

    Args:
        inverse, inverse_outcome: (B or 1, n, n) H⁻¹, and (B or 1,) int32 RUNNING, or SINGULAR where there is none; not
            looked at where H is diagonal.
        H, J, columns, limit, lower, upper, cost, B, n, R, equalities: as ``descend`` has them; n is at most the
            number of slots.
        norm: (B or 1, R) the length of each row.
        x_all, y_all, curvature_all, place_all, row_position_all, position_all, slot_all, M_all, status: written, as by
            ``descend``; INFEASIBLE where a constraint cannot be satisfied together with those that are held.
        rounds: how many steps at most.
        few: rows of H that are looked at together in a step.
    """
    out = tl.program_id(0).to(tl.int64)
    sample = out % B
    j = tl.arange(0, width)
    s = tl.arange(0, slots)
    r = tl.arange(0, height)
    real = j < n
    there = r < R
    equality = r < equalities
    H += sample * H_stride
    J += sample * J_stride
    columns += sample * J_stride
    lo = tl.load(lower + sample * bound_stride + j, mask=real, other=0.0)
    up = tl.load(upper + sample * bound_stride + j, mask=real, other=0.0)
    most = tl.load(limit + sample * limit_stride + r, mask=there, other=float("inf"))
    length = tl.load(norm + sample * norm_stride + r, mask=there, other=1.0)
    length = tl.where(length > 0.0, length, 1.0)
    c = tl.load(cost + out * n + j, mask=real, other=0.0)
    scratch = curvature_all + out * n
    slot = tl.where(s < n, s, -1)
    position = tl.where(real, j, -1)
    row_position = tl.full((height,), -1, tl.int32)
    place = tl.where(real, FREE, NOWHERE)
    inside = (s < n)[:, None] & (s < n)[None, :]
    if diagonal:
        weight = tl.load(H + s, mask=s < n, other=1.0)
        outcome = tl.where(tl.min(weight) > 0.0, RUNNING, SINGULAR)
        M = tl.where((s[:, None] == s[None, :]) & inside, 1.0 / weight[:, None], 0.0)
    else:
        outcome = tl.load(inverse_outcome + tl.where(H_stride > 0, sample, 0))
        M = tl.load(inverse + sample * H_stride + s[:, None] * n + s[None, :], mask=inside, other=0.0)
    easiest = tl.max(tl.sum(tl.where(s[:, None] == s[None, :], M, 0.0), axis=0))
    x = off_slots(-tl.sum(M * tl.load(cost + out * n + s, mask=s < n, other=0.0)[:, None], axis=0), position)
    reduced = tl.zeros((width,), tl.float64)  # gradient of the Lagrangian: zero where a variable is free
    y = tl.zeros((height,), tl.float64)
    room = most - row_products(columns, x, r, j, R, n)
    taken = 0
    wanted, rising, gap = _violated(x, lo, up, place, room, length, row_position, equality, j, r, n, R, rows)
    while (outcome == RUNNING) & (wanted >= 0) & (taken < rounds):
        taken += 1
        # how the solution on the working set moves, and its multipliers, when that constraint does
        column, _ = border(H, J, slot, tl.where(wanted >= n, wanted, -1), n, diagonal, rows)
        column = tl.where(slot == wanted, 1.0, column)
        w = tl.sum(M * column[:, None], axis=0)
        product, squares = tl.reduce((column * w, column * column), 0, two_sums)
        depends = product <= _ROUNDOFF * easiest * squares  # nothing can move, but multipliers can
        force = tl.where(depends, tl.where(gap > 0.0, 1.0, -1.0), gap / product)
        p = tl.where(depends, 0.0, off_slots(force * w, position))
        asked = (place == AT_LOWER) | (place == AT_UPPER) | (real & (j == wanted))  # where a multiplier is, or will be
        if diagonal:
            change = curvature_times(H, p, scratch, n, j, diagonal, chunk)
        else:
            change = curvature_at(H, p, asked, place_all + out * n, scratch, n, j, few)
        more = tl.zeros((height,), tl.float64)
        if rows:
            more = off_slots(force * w, row_position)
            more = tl.where(r == wanted - n, -force, more)
            change += tl.sum(row_block(J, r, j, R, n) * more[:, None], axis=0)
        change = tl.where(asked, change, 0.0)
        # ratio test: to the first multiplier that reaches zero
        upwards = tl.where(place == AT_LOWER, 1.0, tl.where(place == AT_UPPER, -1.0, 0.0))
        upwards = tl.where(lo < up, upwards, 0.0)
        falls = upwards * change < -_ROUNDOFF * tl.abs(force)
        distance = tl.maximum(upwards * reduced, 0.0) / tl.where(falls, tl.abs(change), 1.0)
        distance = tl.where(falls, distance, float("inf"))
        step, lost = tl.min(distance, axis=0, return_indices=True)
        if rows:
            falls = (row_position >= 0) & (more < -_ROUNDOFF * tl.abs(force)) & (equality == 0)
            reach = tl.maximum(y, 0.0) / tl.where(falls, -more, 1.0)
            reach, row_lost = tl.min(tl.where(falls, reach, float("inf")), axis=0, return_indices=True)
            if reach < step:
                step = reach
                lost = n + row_lost
        whole = (step >= 1.0) & (depends == 0)
        stuck = depends & (step == float("inf"))
        outcome = tl.where(stuck, INFEASIBLE, outcome)
        step = tl.where(stuck, 0.0, tl.where(whole, 1.0, step))
        x += step * p
        reduced += step * change
        y += step * more
        gap *= 1.0 - tl.where(depends, 0.0, step)
        if rows:
            room -= step * row_products(columns, p, r, j, R, n)
        # the working set changes by one index, and M by a matrix of rank one
        entering = -1
        leaving = -1
        pivot = -product
        if whole:
            if wanted < n:
                at = j == wanted
                x = tl.where(at, tl.where(rising, up, lo), x)
                place = tl.where(at, tl.where(rising, AT_UPPER, AT_LOWER), place)
                leaving = wanted
            else:
                entering = wanted
            wanted = -1
        else:
            if lost < n:
                place = tl.where(j == lost, FREE, place)
                reduced = tl.where(j == lost, 0.0, reduced)
                entering = lost.to(tl.int32)
            else:
                y = tl.where(r == lost - n, 0.0, y)
                leaving = lost.to(tl.int32)
            column, corner = border(H, J, slot, entering, n, diagonal, rows)
            column = tl.where((slot == leaving) & (slot >= 0), 1.0, column)
            w = tl.sum(M * column[:, None], axis=0)
            pivot = corner - tl.sum(column * w)
            if (pivot <= 0.0) & (outcome == RUNNING):
                outcome = SINGULAR
        at = place_of(slot, entering, leaving, s, slots)
        if (entering >= 0) & (at == slots):
            outcome = CROWDED
            entering = -1
        w = tl.where((s == at) & (entering >= 0), -1.0, w)
        M, slot, position, row_position = exchanged(
            M, w, 1.0 / pivot, slot, position, row_position, entering, leaving, at, s, j, r, n, rows
        )
        if wanted < 0:
            wanted, rising, gap = _violated(x, lo, up, place, room, length, row_position, equality, j, r, n, R, rows)
    if (outcome == RUNNING) & (wanted < 0):
        outcome = OPTIMAL
    x = tl.where(place == AT_LOWER, lo, tl.where(place == AT_UPPER, up, x))
    x, y = refined(
        H, J, columns, M, c, x, most, slot, position, row_position, j, r, n, R, scratch, diagonal, rows, chunk
    )
    curvature = curvature_times(H, x, scratch, n, j, diagonal, chunk)
    store_solution(
        x_all, curvature_all, place_all, y_all, row_position_all, status,
        x, curvature, place, y, row_position, outcome, out, j, r, n, R,
    )  # fmt: skip
    if out < B:
        tl.store(position_all + sample * n + j, position, mask=real)
        tl.store(slot_all + sample * slots + s, slot)
        tl.store(M_all + sample * slots * slots + s[:, None] * slots + s[None, :], M)
