"""The Triton kernels of the dual active-set method: the search, and projections at its solutions.

The search has one thread block for each sample and cost. It starts at the minimum without bounds and inequalities. Each
step adds the constraint that is violated most, and drops constraints whose multipliers would change their sign. Only
the last point is feasible, but no multiplier ever has the wrong sign.

Vectors have one entry for each variable x, then one for each inequality row of J. An entry stands for a constraint: the
bounds of the variable, or the row. With C = [I; J], the response is W = C H⁻¹Cᵀ, and M is the inverse of W restricted
to the constraints that are held. Adding or dropping a constraint changes M by a matrix of rank one. The working set is
stored as these rank-one *terms*, one for each constraint that was added or dropped:

    M = Σ_k weight_k u_k u_kᵀ      with the vectors      z_k = W u_k

The u_k give changes of multipliers, and the z_k changes of the values of constraints. One vector v_k stores both: the
entries of u_k at constraints that are held after step k, and those of z_k at all others. The entries that are not
stored are zero, except at the constraint of step k itself. ``since`` is the term with which a held constraint was
added, −1 if the constraint is not held. In earlier terms, the entry of a held constraint belongs to z_k and does not
count. Stored terms change only if a constraint is dropped: its entries of u_k are replaced by those of z_k.

A step reads all terms once. They stay in the cache, so that a block needs few registers, and many blocks are on a
multiprocessor at once.
"""

from __future__ import annotations

import triton
import triton.language as tl

from pear.optimality import rule
from pear.solvers.active_set import settings
from pear.solvers.active_set.gpu.gpu_solution import OUTCOMES, PLACES
from pear.solvers.active_set.gpu.kernel_products import (
    kernel_product_of_rows,
    kernel_product_rounding,
    kernel_product_with_curvature,
)

FREE, AT_LOWER, AT_UPPER, NOWHERE, UNBOUNDED = map(tl.constexpr, PLACES)
RUNNING, OPTIMAL, NO_ROOM, SINGULAR, INFEASIBLE = map(tl.constexpr, OUTCOMES)
_PROJECTED = tl.constexpr(rule.PROJECTED)
_ROUNDOFF = tl.constexpr(rule.ROUNDOFF)
_FEASIBLE = tl.constexpr(rule.FEASIBLE)
_DRIFT = tl.constexpr(settings.KERNEL_DRIFT)
_REFINEMENTS = tl.constexpr(settings.KERNEL_REFINEMENTS)
_ROUNDS = tl.constexpr(1 + settings.KERNEL_REFINEMENTS)


@triton.jit
def _dual_kernel_terms(terms, since, k, count, size, j):  # type: ignore[no-untyped-def]
    """Load the entries of the terms k, as a block (chunk, width); zeros at constraints that were added after term k."""
    counts = (k < count)[:, None] & (k[:, None] >= since[None, :]) & (j < size)[None, :]
    return tl.load(terms + k[:, None] * size + j[None, :], mask=counts, other=0.0)


@triton.jit
def _dual_kernel_move_with(terms, weight, index, first_term, since, count, size, j, chunk: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return Σ_k weight_k v_k[index] v_k over the terms from ``first_term`` on, and the entry of this sum at ``index``.

    If the constraint ``index`` is not held, ``first_term`` is 0. The sum is then row ``index`` of W M at held
    constraints, and of W M W at all others. If it is held, ``first_term`` is the term with which it was added. The sum
    is then row ``index`` of M at held constraints, and of M W at all others.
    """
    c = tl.arange(0, chunk)
    total = tl.zeros_like(since).to(tl.float64)
    squares = tl.zeros_like(c).to(tl.float64)
    for first in range(0, count, chunk):
        k = first + c
        entry = tl.load(terms + k * size + index, mask=(k < count) & (k >= first_term), other=0.0)
        share = entry * tl.load(weight + k, mask=k < count, other=0.0)
        squares += share * entry
        total += tl.sum(_dual_kernel_terms(terms, since, k, count, size, j) * share[:, None], axis=0)
    return total, tl.sum(squares)


@triton.jit
def _dual_kernel_move_of_held(terms, weight, off, since, count, size, j, chunk: tl.constexpr):  # type: ignore[no-untyped-def]
    """Compute Σ_k weight_k (u_k · off) v_k for a vector ``off`` that is zero at constraints that are not held.

    At held constraints the result is the change of multipliers that moves the constraints by ``off``. At other
    constraints it is the change of their values.
    """
    c = tl.arange(0, chunk)
    total = tl.zeros_like(since).to(tl.float64)
    for first in range(0, count, chunk):
        k = first + c
        tile = _dual_kernel_terms(terms, since, k, count, size, j)
        share = tl.sum(tile * off[None, :], axis=1) * tl.load(weight + k, mask=k < count, other=0.0)
        total += tl.sum(tile * share[:, None], axis=0)
    return total


@triton.jit
def _dual_kernel_kkt_product(  # type: ignore[no-untyped-def]
    H, J, columns, w, scratch, n, R, j, diagonal: tl.constexpr, rows: tl.constexpr, chunk: tl.constexpr
):
    """Compute (Hx + Jᵀy, Jx) for w = (x, y). ``scratch`` has the size of w."""
    total = kernel_product_with_curvature(H, tl.where(j < n, w, 0.0), scratch, n, n, j, diagonal, chunk)
    if rows:
        tl.store(scratch + j, w, mask=j < n + R)
        tl.debug_barrier()
        total += kernel_product_of_rows(columns, scratch, n, R, j - n, chunk)
        total += kernel_product_of_rows(J, scratch + n, R, n, j, chunk)
        tl.debug_barrier()
    return total


@triton.jit
def _dual_kernel_correction(  # type: ignore[no-untyped-def]
    response, H, J, columns, terms, weight, c, w, limit, scratch,
    since, count, j, n, R,
    diagonal: tl.constexpr, rows: tl.constexpr, chunk: tl.constexpr,
):  # fmt: skip
    """Return the change of w = (x, y) in one round of refinement of min ½xᵀHx + cᵀx on the working set.

    Variables x whose bound is held are exact and do not move. Rows that are held have the values of ``limit``, and y
    are their multipliers. The residuals are computed from the data, which removes rounding errors in ``response`` and
    ``terms``.
    """
    held = since >= 0
    product = _dual_kernel_kkt_product(H, J, columns, w, scratch, n, R, j, diagonal, rows, chunk)
    missing = tl.where(held | (j >= n), 0.0, -c - product)  # the multiplier of a held bound takes what is left there
    step = kernel_product_with_curvature(response, missing, scratch, n, n + R, j, False, chunk)
    off = tl.where(held, tl.where(j < n, step, step + product - limit), 0.0)
    total = _dual_kernel_move_of_held(terms, weight, off, since, count, n + R, j, chunk)
    return tl.where(j < n, tl.where(held, 0.0, step - total), tl.where(held, total, 0.0))


@triton.jit
def _dual_kernel_farther_candidate(distance, code, size, other_distance, other_code, other_size):  # type: ignore[no-untyped-def]
    """Return the larger distance with its code, and the larger size; one step of a parallel reduction.

    ``distance`` says how far a constraint is violated, ``code`` which constraint and which limit.
    """
    first = (distance > other_distance) | ((distance == other_distance) & (code < other_code))
    larger = tl.maximum(size, other_size)
    return tl.where(first, distance, other_distance), tl.where(first, code, other_code), larger


@triton.jit
def _dual_kernel_most_violated(x, lo, up, since, scale, norm, drift, j, decisions):  # type: ignore[no-untyped-def]
    """Find the constraint that is violated most.

    Returns:
        The constraint, or −1 if none is violated; whether its upper limit is violated; by how much its value has to
        change.
    """
    over = tl.where(since < 0, tl.maximum(lo - x, x - up) * scale, 0.0)
    code = 2 * j + tl.where(x > up, 1, 0)
    worst, met, size = tl.reduce(
        (over, code, tl.where(j < decisions, tl.abs(x), 0.0)), 0, _dual_kernel_farther_candidate
    )
    rising = met % 2 == 1
    wanted = tl.where(worst > tl.maximum(_FEASIBLE * size, drift), met // 2, -1).to(tl.int32)
    gap = worst * tl.load(norm + wanted, mask=wanted >= 0, other=1.0)
    return wanted, rising, tl.where(rising, -gap, gap)


@triton.jit
def search_dual_kernel(  # type: ignore[no-untyped-def]
    response, response_outcome, H, J, columns, norm, lower, upper, cost,
    w_all, curvature_all, place_all, since_all, terms_all, weight_all, count_all, status,
    B, n, R, decisions, most_terms, response_stride, H_stride, J_stride, norm_stride, bound_stride,
    diagonal: tl.constexpr, rows: tl.constexpr, width: tl.constexpr, chunk: tl.constexpr,
):  # fmt: skip
    """Search for the minimum subject to bounds and inequalities, starting from the minimum without them.

    If there are equalities, H stands for the matrix K of ``dual_method``. A stride is 0 if all samples share the field.

    Args:
        response: (B or 1, n + R, n + R) the matrix W of the module's text.
        response_outcome: (B or 1,) int32 RUNNING, or SINGULAR if W does not exist.
        H: (B or 1, n, n), or (B or 1, n) if H is ``diagonal``.
        J, columns: (B or 1, R, n) inequality rows, and Jᵀ.
        norm, lower, upper: (B or 1, n + R) the length of every constraint, which is 1 for a variable, and its limits.
        cost: (K, B, n).
        w_all: (K, B, n + R) solutions and multipliers of rows; written.
        curvature_all: (K, B, n + R) Hx, then zeros; written.
        place_all: (K, B, n + R) int32 codes of the limits that are held; written.
        since_all: (K, B, n + R) int32 the term with which a constraint was added, −1 if it is not held; written.
        terms_all, weight_all: (K, B, most_terms, n + R) and (K, B, most_terms) the terms; written.
        count_all: (K, B) int32 the number of terms; written.
        status: (K, B) int32, written: OPTIMAL, NO_ROOM if more than ``most_terms`` terms are needed, SINGULAR, or
            INFEASIBLE if a constraint cannot be satisfied together with those that are held.
        decisions: how many of the variables are decisions. The others are multipliers of equalities.
        rows: whether there are inequality rows.
        width: a power of two, at least n + R.
        chunk: how many terms, or rows of a matrix, are read at once.
    """
    out = tl.program_id(0).to(tl.int64)
    sample = out % B
    j = tl.arange(0, width)
    chunk_of = tl.arange(0, chunk)
    size = n + R
    real = j < size
    response += sample * response_stride
    H += sample * H_stride
    J += sample * J_stride
    columns += sample * J_stride
    norm += sample * norm_stride
    terms = terms_all + out * most_terms * size
    weight = weight_all + out * most_terms
    scratch = curvature_all + out * size
    lo = tl.load(lower + sample * bound_stride + j, mask=real, other=0.0)
    up = tl.load(upper + sample * bound_stride + j, mask=real, other=0.0)
    scale = 1.0 / tl.load(norm + j, mask=real, other=1.0)
    c = tl.load(cost + out * n + j, mask=j < n, other=0.0)
    place = tl.where(real, FREE, NOWHERE)
    since = tl.full((width,), -1, tl.int32)
    outcome = tl.load(response_outcome + tl.where(response_stride > 0, sample, 0))
    x = -kernel_product_with_curvature(response, c, scratch, n, size, j, False, chunk)
    mu = tl.zeros((width,), tl.float64)  # negative at lower limits, positive at upper ones
    drift = _DRIFT * tl.max(tl.where(j < decisions, tl.abs(x), 0.0))
    count = 0
    wanted, rising, gap = _dual_kernel_most_violated(x, lo, up, since, scale, norm, drift, j, decisions)
    while (outcome == RUNNING) & (wanted >= 0):
        # how values and multipliers move with the multiplier of that constraint
        held = since >= 0
        alone = tl.load(response + wanted * size + j, mask=real & (held == 0), other=0.0)
        response_there = tl.load(response + wanted * (size + 1))
        v, squares = _dual_kernel_move_with(terms, weight, wanted, 0, since, count, size, j, chunk)
        v -= alone
        pivot = response_there - squares
        depends = pivot <= _ROUNDOFF * response_there  # only multipliers can move
        force = tl.where(depends, tl.where(gap > 0.0, -1.0, 1.0), -gap / pivot)
        # ratio test: to the first multiplier that reaches zero
        change = tl.where(held, -force * v, 0.0)
        outwards = tl.where(place == AT_LOWER, -1.0, tl.where(place == AT_UPPER, 1.0, 0.0))
        outwards = tl.where(lo < up, outwards, 0.0)
        falls = outwards * change < -_ROUNDOFF * tl.abs(force)
        distance = tl.maximum(outwards * mu, 0.0) / tl.where(falls, tl.abs(change), 1.0)
        step, lost = tl.min(tl.where(falls, distance, float("inf")), axis=0, return_indices=True)
        whole = (step >= 1.0) & (depends == 0)
        stuck = depends & (step == float("inf"))
        step = tl.where(stuck, 0.0, tl.where(whole, 1.0, step))
        x += tl.where(held, 0.0, step * force * v)
        mu += step * tl.where(j == wanted, force, change)
        gap *= 1.0 - tl.where(depends, 0.0, step)
        # the working set changes by one constraint, and by one term
        own = tl.where(whole, -1.0, 1.0)
        moved = wanted
        factor = tl.where(stuck, 0.0, 1.0 / pivot)
        if whole:
            at = j == wanted
            x = tl.where(at, tl.where(rising, up, lo), x)
            place = tl.where(at, tl.where(rising, AT_UPPER, AT_LOWER), place)
            since = tl.where(at, count, since)
            wanted = -1
        elif stuck:
            outcome = INFEASIBLE
        else:
            moved = lost.to(tl.int32)
            added = tl.max(tl.where(j == moved, since, -1))
            v, squares = _dual_kernel_move_with(terms, weight, moved, added, since, count, size, j, chunk)
            tl.debug_barrier()  # all threads have read what is written next
            for first in range(added, count, chunk):
                k = first + chunk_of
                then = -1.0 / tl.load(weight + k, mask=k < count, other=1.0)  # minus its pivot
                tl.store(terms + k * size + moved, tl.where(k == added, then, 0.0), mask=k < count)
            factor = -1.0 / squares
            if squares <= 0.0:
                outcome = SINGULAR
            at = j == moved
            place = tl.where(at, FREE, place)
            since = tl.where(at, -1, since)
            mu = tl.where(at, 0.0, mu)
        tl.store(terms + count * size + j, tl.where(j == moved, own, v), mask=real)
        tl.store(weight + count, factor)
        count += 1
        tl.debug_barrier()
        if wanted < 0:
            wanted, rising, gap = _dual_kernel_most_violated(x, lo, up, since, scale, norm, drift, j, decisions)
        if (count == most_terms) & (wanted >= 0) & (outcome == RUNNING):
            outcome = NO_ROOM
    if outcome == RUNNING:
        outcome = OPTIMAL
    w = tl.where(j < n, x, tl.where(since >= 0, mu, 0.0))
    for _ in range(_REFINEMENTS):
        w += _dual_kernel_correction(
            response, H, J, columns, terms, weight, c, w, up, scratch, since, count, j, n, R, diagonal, rows, chunk
        )
    w = tl.where(j < n, tl.minimum(tl.maximum(w, lo), up), w)  # rounding may exceed a bound that is not held
    curvature = kernel_product_with_curvature(H, tl.where(j < n, w, 0.0), scratch, n, n, j, diagonal, chunk)
    out *= size
    tl.store(w_all + out + j, w, mask=real)
    tl.store(curvature_all + out + j, curvature, mask=real)
    tl.store(place_all + out + j, place, mask=real)
    tl.store(since_all + out + j, since, mask=real)
    tl.store(count_all + tl.program_id(0), count)
    tl.store(status + tl.program_id(0), outcome)


@triton.jit
def project_dual_kernel(  # type: ignore[no-untyped-def]
    response, H, J, columns, error, since_all, terms_all, weight_all, count_all, g_all, converged,
    n, R, decisions, most_terms, response_stride, H_stride, J_stride,
    diagonal: tl.constexpr, rows: tl.constexpr, width: tl.constexpr, chunk: tl.constexpr,
):  # fmt: skip
    """Project errors at solutions of the dual method. ``project_primal_kernel`` does so for the primal method.

    Args:
        response, H, J, columns, their strides, n, R, decisions, most_terms: as in ``search_dual_kernel``.
        since_all, terms_all, weight_all, count_all: as ``search_dual_kernel`` writes them.
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
    noise = kernel_product_rounding(H, e, j, decisions, n, diagonal)
    g = tl.zeros((width,), tl.float64)
    first = noise * 0.0
    change = first
    for k in range(0, _ROUNDS):
        g_change = _dual_kernel_correction(
            response, H, J, columns, terms_all, weight_all, -e, g, g * 0.0, g_all,
            since, count, j, n, R, diagonal, rows, chunk,
        )  # fmt: skip
        g += g_change
        change = tl.max(tl.where(decision, tl.abs(g_change), 0.0))
        if k == 0:
            first = change
    good = (change <= _PROJECTED * first) | (change <= noise)
    g = tl.where(tl.max(tl.where(decision, tl.abs(g), 0.0)) <= noise, 0.0, g)
    tl.store(g_all + j, g, mask=j < size)
    tl.store(converged + sample, good.to(tl.int8))
