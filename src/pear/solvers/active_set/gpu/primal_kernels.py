"""The Triton kernels of the primal active-set method: the search, and projections at its solutions.

One thread block works on one sample; blocks do not communicate. The inverse M of the KKT matrix on the working set
(``primal_working_set``) stays in registers. One product M · (−gradient) gives the step to the minimum on the working
set and the multipliers there. A variable or row that enters or leaves the set changes M by a matrix of rank one. A step
therefore costs a few products of a vector with M, and reads only the rows of H that belong to variables that move. At
the end the residuals of the optimality conditions are computed from the data, and M corrects them. This removes
rounding errors of earlier steps.

A projection g = P e solves min ½gᵀHg − eᵀg on the working set. It is computed by rounds of refinement from zero.
"""

from __future__ import annotations

import triton
import triton.language as tl

from pear.optimality import rule
from pear.solvers.active_set import settings
from pear.solvers.active_set.gpu.gpu_solution import OUTCOMES, PLACES
from pear.solvers.active_set.gpu.kernel_products import kernel_product_rounding, kernel_product_with_curvature
from pear.solvers.active_set.gpu.primal_working_set import (
    correct_on_primal_working_set,
    gather_from_primal_working_set,
    primal_working_set_column,
    primal_working_set_curvature_change,
    primal_working_set_row_products,
    primal_working_set_rows,
    update_primal_working_set,
)

FREE, AT_LOWER, AT_UPPER, NOWHERE, UNBOUNDED = map(tl.constexpr, PLACES)
RUNNING, OPTIMAL, NO_ROOM, SINGULAR, INFEASIBLE = map(tl.constexpr, OUTCOMES)
_PROJECTED = tl.constexpr(rule.PROJECTED)
_ROUNDOFF = tl.constexpr(rule.ROUNDOFF)
_WRONG = tl.constexpr(settings.KERNEL_SIGN)
_REFINEMENTS = tl.constexpr(settings.KERNEL_REFINEMENTS)
_ROUNDS = tl.constexpr(1 + settings.KERNEL_REFINEMENTS)
_STALLED = tl.constexpr(settings.STALLED)
_PUSHES = tl.constexpr(settings.KERNEL_PUSHES)
_PUSH = tl.constexpr(settings.KERNEL_PUSH)


@triton.jit
def _primal_kernel_nearer_candidate(distance, code, size, other_distance, other_code, other_size):  # type: ignore[no-untyped-def]
    """Return the smaller distance with its code, and the sum of the sizes; one step of a parallel reduction.

    ``distance`` says how far it is to a limit, ``code`` which limit.
    """
    first = (distance < other_distance) | ((distance == other_distance) & (code < other_code))
    return tl.where(first, distance, other_distance), tl.where(first, code, other_code), size + other_size


@triton.jit
def _primal_kernel_largest_and_sum(largest, total, other_largest, other_total):  # type: ignore[no-untyped-def]
    """Return the larger of two first numbers and the sum of two second numbers; one step of a parallel reduction."""
    return tl.maximum(largest, other_largest), total + other_total


@triton.jit
def search_primal_kernel(  # type: ignore[no-untyped-def]
    H, J, columns, size, limit, lower, upper, cost,
    start_x, start_place, start_slot, start_position, start_row_position, start_M,
    x_all, y_all, curvature_all, place_all, row_position_all, position_all, slot_all, M_all, status, order, scratch,
    B, n, R, equalities, H_stride, J_stride, limit_stride, size_stride, bound_stride, start_stride,
    begun, rounds, costs,
    elastic: tl.constexpr, diagonal: tl.constexpr, rows: tl.constexpr,
    width: tl.constexpr, height: tl.constexpr, slots: tl.constexpr, chunk: tl.constexpr,
):  # fmt: skip
    """Go from a feasible point and its working set to the optimal ones, for one or several costs of each sample.

    A thread block handles ``costs`` of the costs of its sample, one after another. The blocks with the first cost of
    each sample come first. The stride of a field is 0 if all samples share it.

    Args:
        H: (B or 1, n, n), or (B or 1, n) if H is ``diagonal``.
        J, columns: (B or 1, R, n) rows, equalities first, and Jᵀ.
        size: (B or 1, R) the largest entry of each row.
        limit: (B or 1, R) the right-hand sides of the rows.
        lower, upper: (B or 1, n) bounds.
        cost: (K, B, n). The second and later costs of a block start from the solution for the cost before.
        start_x, start_place: (B or 1, n) a feasible point, and codes of where its variables are.
        start_slot: (slots,) int32 the working set at this point: ``begun`` free variables, as many held rows, then −1.
            If the start is ``elastic``, the last variable alone.
        start_position, start_row_position: (n,) and (R,) int32 the slots of variables and of rows.
        start_M: (slots, slots) the part of M at this point that depends on the rows alone.
        x_all, curvature_all: (K, B, n) solutions and Hx; written.
        y_all: (K, B, R) multipliers; written.
        place_all: (K, B, n) int32 codes; written.
        row_position_all: (K, B, R) int32 slots of the rows, −1 if a row is not held; written.
        position_all: (B, n) int32 slots of the variables, −1 if a variable is not free; written for the first cost.
        slot_all: (B, slots) int32 indices, −1 if a slot is empty; written for the first cost.
        M_all: (B, slots, slots); written for the first cost.
        status: (K, B) int32, written: OPTIMAL, NO_ROOM, SINGULAR, or RUNNING if ``rounds`` steps were not enough.
        order, scratch: (blocks, slots) int32 and float64 memory to work with.
        begun: the number of held rows at the start, and of free variables unless the start is ``elastic``.
        rounds: the largest number of steps for each cost.
        elastic: whether the last variable t is the share of the initial violation that is left. Once t is zero,
            it stays zero. If t is still free in a solution, the kernel raises the cost of t.
        rows: whether there are rows.
        width, height: powers of two, at least n and at least R.
        slots: the room for the working set.
        chunk: how many rows of a matrix are read at once.
    """
    block = tl.program_id(0).to(tl.int64)
    sample = block % B
    earliest = block // B * costs
    j = tl.arange(0, width)
    s = tl.arange(0, slots)
    r = tl.arange(0, height)
    real = j < n
    there = r < R
    equality = r < equalities
    H += sample * H_stride
    J += sample * J_stride
    columns += sample * J_stride
    order += block * slots
    scratch += block * slots
    own = curvature_all + (earliest * B + sample) * n  # also memory to work with, until Hx is written
    lo = tl.load(lower + sample * bound_stride + j, mask=real, other=0.0)
    up = tl.load(upper + sample * bound_stride + j, mask=real, other=0.0)
    most = tl.load(limit + sample * limit_stride + r, mask=there, other=float("inf"))
    x = tl.load(start_x + sample * start_stride + j, mask=real, other=0.0)
    place = tl.load(start_place + sample * start_stride + j, mask=real, other=NOWHERE)
    c = tl.load(cost + (earliest * B + sample) * n + j, mask=real, other=0.0)
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
    on_diagonal = tl.sum(tl.where(s[:, None] == s[None, :], M, 0.0), axis=0)
    # these numbers are updated in every step, because a pass over a vector makes the whole block wait
    freedom = 1 if elastic else 0
    used = 2 * begun + freedom
    row_size = tl.load(size + sample * size_stride + r, mask=there, other=0.0)
    outcome = RUNNING
    room = most - primal_working_set_row_products(columns, x, r, j, R, n)
    slope = c + kernel_product_with_curvature(H, x, own, n, n, j, diagonal, chunk)
    if elastic:
        last_variable = j == n - 1
        pushes = 0
    for k in range(earliest, earliest + costs):
        if k > earliest:
            own += B * n
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
            step = -tl.sum(M * gradient[:, None], axis=0)
            # At a vertex nothing can move. Elsewhere M has rounding at variables that the rows hold. So a step is
            # compared with the sum of the sizes of its terms, where |M_jt| is at most √(M_jj M_tt).
            root = tl.sqrt(tl.where(free, tl.maximum(on_diagonal, 0.0), 0.0))
            most_root, terms = tl.reduce((root, root * tl.abs(gradient)), 0, _primal_kernel_largest_and_sum)
            rounding = _ROUNDOFF * most_root * terms
            moving = tl.where(free & (freedom > 0) & (tl.abs(step) > rounding), step, 0.0)
            p = gather_from_primal_working_set(moving, position)
            # ratio test: to the first bound, or the first row
            moves = p != 0.0
            distance = tl.where(moves, (tl.where(p > 0, up, lo) - x) / tl.where(moves, p, 1.0), float("inf"))
            code = 2 * j + tl.where(p > 0, 1, 0)
            length, met, far = tl.reduce(
                (tl.maximum(distance, 0.0), code, tl.abs(p)), 0, _primal_kernel_nearer_candidate
            )
            rising = met % 2 == 1
            met = met // 2
            if rows:
                rate = primal_working_set_row_products(columns, p, r, j, R, n)
                pace = tl.where(equality, tl.abs(rate), rate)  # an equality that is not held blocks on both sides
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
                slope += length * kernel_product_with_curvature(H, p, own, n, n, j, diagonal, chunk)
            else:
                slope += primal_working_set_curvature_change(
                    H, slot, length * moving, order, scratch, used, n, j, chunk
                )
            entering = -1
            leaving = -1
            if blocked:
                idle = tl.where(length > 0.0, 0, idle + 1)
                if met < n:
                    at = j == met
                    x = tl.where(at, tl.where(rising, up, lo), x)
                    place = tl.where(at, tl.where(rising, AT_UPPER, AT_LOWER), place)
                    leaving = met
                    if elastic:  # noqa: SIM102 (a constant that keeps the rest from being compiled)
                        if met == n - 1:  # feasible: from here on t has no cost
                            up = tl.where(at, 0.0, up)
                            c = tl.where(at, 0.0, c)
                            slope = c + kernel_product_with_curvature(H, x, own, n, n, j, diagonal, chunk)
                else:
                    entering = met
            else:
                # find a multiplier of the wrong sign
                reduced = slope
                worst_row = allowed * 0.0
                if rows:
                    y = gather_from_primal_working_set(step, row_position)
                    reduced += tl.sum(primal_working_set_rows(J, r, j, R, n) * y[:, None], axis=0)
                    wrong_row = tl.where(row_position >= 0, -y * row_size, 0.0)
                    worst_row, first_row = tl.max(tl.where(equality, 0.0, wrong_row), axis=0, return_indices=True)
                wrong = tl.where(place == AT_LOWER, -reduced, tl.where(place == AT_UPPER, reduced, 0.0))
                wrong = tl.where(lo < up, wrong, 0.0)
                wrong = tl.where(place == UNBOUNDED, tl.abs(reduced) + 2.0 * allowed + 1e-300, wrong)
                worst, first = tl.max(wrong, axis=0, return_indices=True)
                if idle > _STALLED:  # the first instead of the worst, which cannot cycle
                    first = tl.min(tl.where(wrong > allowed, j, width))
                if (worst > allowed) & (worst >= worst_row):
                    entering = first.to(tl.int32)
                    place = tl.where(j == entering, FREE, place)
                elif worst_row > allowed:
                    if rows:
                        leaving = (n + first_row).to(tl.int32)
                else:
                    outcome = OPTIMAL
                    if elastic:  # noqa: SIM102
                        if tl.sum(tl.where(last_variable & (place == FREE), 1, 0)) > 0:  # noqa: SIM102
                            if pushes < _PUSHES:
                                pushes += 1
                                more = tl.where(last_variable, (_PUSH - 1.0) * c, 0.0)
                                c += more
                                slope += more
                                outcome = RUNNING
            # the working set changes by one index, and M by a matrix of rank one
            gone = (slot == leaving) & (slot >= 0)
            at = tl.min(tl.where(tl.where(entering >= 0, slot < 0, gone), s, slots))
            if (entering >= 0) & (at == slots):
                outcome = NO_ROOM
                entering = -1
            column, corner = primal_working_set_column(H, J, slot, entering, n, diagonal, rows)
            column = tl.where(gone, 1.0, column)
            w = tl.sum(M * column[:, None], axis=0)
            product = tl.sum(column * w)
            # a variable brings curvature, a row takes a direction away
            pivot = tl.where(entering >= 0, corner - product, -product)
            more = (entering >= n) | ((leaving >= 0) & (leaving < n))
            sound = tl.where(more, pivot < 0.0, pivot > _ROUNDOFF * corner)
            changes = (entering >= 0) | (leaving >= 0)
            if changes & (sound == 0):
                outcome = SINGULAR
            w = tl.where((s == at) & (entering >= 0), -1.0, w)
            factor = tl.where(changes, 1.0 / pivot, 0.0)
            freedom += tl.where(changes, tl.where(more, -1, 1), 0)
            used = tl.maximum(used, tl.where(entering >= 0, at + 1, 0))
            on_diagonal = tl.where(gone, 0.0, on_diagonal + w * w * factor)
            M, slot, position, row_position = update_primal_working_set(
                M, w, factor, slot, position, row_position, entering, leaving, at, s, j, r, n, rows
            )
        x = tl.where(place == AT_LOWER, lo, tl.where(place == AT_UPPER, up, x))
        y = tl.zeros((height,), tl.float64)
        for _ in range(_REFINEMENTS):
            x_change, y_change = correct_on_primal_working_set(
                H, J, columns, M, c, x, y, most, own, slot, position, row_position, j, r, n, R, diagonal, rows, chunk
            )
            x += x_change
            y += y_change
        x = tl.minimum(tl.maximum(x, lo), up)  # rounding may exceed a bound that is not held
        curvature = kernel_product_with_curvature(H, x, own, n, n, j, diagonal, chunk)
        slope = c + curvature
        room = most - primal_working_set_row_products(columns, x, r, j, R, n)
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
def project_primal_kernel(  # type: ignore[no-untyped-def]
    H, J, columns, error, slot_all, position_all, row_position_all, M_all, g_all, converged,
    n, R, H_stride, J_stride,
    diagonal: tl.constexpr, rows: tl.constexpr,
    width: tl.constexpr, height: tl.constexpr, slots: tl.constexpr, chunk: tl.constexpr,
):  # fmt: skip
    """Project errors at solutions of the primal method. A projection no larger than the rounding of H⁻¹e becomes zero.

    Args:
        H, J, columns, their strides: as in ``search_primal_kernel``.
        slot_all, position_all, row_position_all, M_all: as ``search_primal_kernel`` writes them.
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
    noise = kernel_product_rounding(H, e, j, n, n, diagonal)
    g = tl.zeros((width,), tl.float64)
    y = tl.zeros((height,), tl.float64)
    first = noise * 0.0
    change = first
    for k in range(0, _ROUNDS):
        g_change, y_change = correct_on_primal_working_set(
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
