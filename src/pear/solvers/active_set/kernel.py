"""The compiled active-set method: one program at a time, no allocation, no Python.

A simplex method that may stop between vertices. Rows get slacks, ``Jx + s = r`` (held at 0 for equalities), and every
one of the N = n + R variables is *basic* (determined by the rows), *superbasic* (free to move, as many as the tangent
space has dimensions) or *nonbasic* (at a bound). With B⁻¹ the inverse of the basic columns and W = B⁻¹ J_S, the tangent
space is spanned by Z = [−W; I], the multipliers are y = B⁻ᵀ∇_B, and everything that is solved is as small as the number
of superbasics: (ZᵀHZ) q = −Zᵀ∇. A portfolio of 100 assets has one row and a handful of superbasics; an LP has none.

From a feasible point, each round either moves to the minimum of the working set, or stops at the first bound on the
way and takes it in, or lets go of the bound with the most wrongly signed multiplier. A remembered working set whose
minimum is optimal costs one round. Whatever comes out is judged afresh from the data, by the same sizes and
tolerances as ``pear.geometry``; what does not pass is given up, and left to the methods that need no luck.

All of it is one file, because numba's cache sees a change in a function's own file only.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[np.float64]
Ints = NDArray[np.int32]

LOWER, UPPER, BASIC, SUPER, LOOSE = 0, 1, 2, 3, 4
"""Where a variable is: at a bound, basic, superbasic, or nonbasic without any bound (at zero)."""

SOLVED, GIVEN_UP = 0, 1

_FEASIBLE = 1e-11  # violation of a bound, in its own units, that the next steps may start from
_SIGN = 1e-12  # a multiplier more negative than this lets go
_TOLERANCE = 1e-10
_SHARP = 1e-13
_TIGHT = 1e-10
_WEAK = 1e-9
_FLAT = 1e-12  # curvature this much below the terms it is computed from is none
_ROUNDOFF = 1e-12
_PIVOT = 1e-9  # smallest entry, relative to the largest, that may be pivoted on
_NEGLIGIBLE = 1e-12
_SHARE_OF_SIZE = 0.1
_SHARE_OF_FORCE = 1e-3
_FLOOR = 1e-9
_STALLED = 30  # steps of length zero after which the first candidate is taken instead of the best
_REFRESH = 100  # pivots after which the inverse is computed afresh
_REFINEMENTS = 3

compiled = njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
"""Sums may be taken in any order, so that they run in parallel lanes; NaN and infinity keep their meaning."""


class Programs(NamedTuple):
    """A batch of ``min ½xᵀ(σQ + λI)x + σcᵀx, Ax = b, Gx ≤ h, lb ≤ x ≤ ub``; fields with one row are shared.

    Attributes:
        Q: (1 or K, n, n), or (0, 0, 0) where there is none; sign: σ; smoothing: λ.
        J: (1 or K, R, n) for [A; G]; norm: (1 or K, R) length of its rows, squared.
        start, row, value: the same by columns where most of it is zero, ``value`` being (1 or K, nonzeros); empty
            where J is to be used as it is.
        rhs: (1 or K, R) for [b; h]; equalities: p, how many of the rows are equalities.
        lb, ub: (1 or K, n).
    """

    Q: Array
    sign: float
    smoothing: float
    J: Array
    norm: Array
    start: Ints
    row: Ints
    value: Array
    rhs: Array
    equalities: int
    lb: Array
    ub: Array


class States(NamedTuple):
    """Where samples were left, one row each: the table a working set is remembered in.

    Attributes:
        known: (K,) 1 where there is anything.
        place: (K, N) int8, LOWER … LOOSE; basis: (K, R) the basic variables; inverse: (K, R, R) of their columns.
        x: (K, N); age: (K,) pivots since the inverse was computed afresh.
    """

    known: NDArray[np.int8]
    place: NDArray[np.int8]
    basis: Ints
    inverse: Array
    x: Array
    age: Ints


class Work(NamedTuple):
    """Room for one sample: its working set, the current point, and whatever is computed from them.

    Attributes:
        place, basis, inverse: the working set, as in ``States``; sup: the superbasic variables.
        x, lo, up: (N,) the point and its bounds; c, rhs: cost to minimise and right-hand sides.
        grad: (n,) Hx + c; y: (R,) and d: (N,) with grad = Jᵀy + d, d = −y for slacks.
        W: (most, R), row t is B⁻¹ times the column of sup[t]; L: Cholesky factor of ZᵀHZ; q: (most,); p: (N,).
        column, residual, row_force, row_size: (R,); force, size, e: (n,); scratch: (R, R).
        tight: (N,) 0, or 1 at the lower and 2 at the upper bound; count, number: single values, named below.
    """

    place: NDArray[np.int8]
    basis: Ints
    inverse: Array
    sup: Ints
    x: Array
    lo: Array
    up: Array
    c: Array
    rhs: Array
    grad: Array
    y: Array
    d: Array
    W: Array
    L: Array
    q: Array
    p: Array
    column: Array
    residual: Array
    row_force: Array
    row_size: Array
    force: Array
    size: Array
    e: Array
    scratch: Array
    tight: NDArray[np.int8]
    count: NDArray[np.int64]
    number: Array


# Places in Work.count: number of superbasics, of rows of L that are up to date, pivots since the inverse was computed
# afresh, and changes of the working set. Places in Work.number: how large a decision might be, largest curvature.
_SUPERS, _FACTORED, _AGE, _CHANGES = 0, 1, 2, 3
_REACH, _STIFFNESS = 0, 1


def new_work(n: int, R: int, most: int) -> Work:
    """Room for programs of n variables and R rows with up to ``most`` superbasics."""
    N = n + R
    return Work(
        place=np.zeros(N, np.int8),
        basis=np.zeros(R, np.int32),
        inverse=np.zeros((R, R)),
        sup=np.zeros(most + 1, np.int32),
        **{name: np.zeros(N) for name in ("x", "lo", "up", "d", "p")},
        **{name: np.zeros(n) for name in ("c", "grad", "force", "size", "e")},
        **{name: np.zeros(R) for name in ("rhs", "y", "column", "residual", "row_force", "row_size")},
        W=np.zeros((most + 1, R)),
        L=np.zeros((most + 1, most + 1)),
        q=np.zeros(most + 1),
        scratch=np.zeros((R, R)),
        tight=np.zeros(N, np.int8),
        count=np.zeros(4, np.int64),
        number=np.zeros(2),
    )


class Outcome(NamedTuple):
    """What a solve writes, one row a sample; see ``pear.solvers.solution`` for the meaning.

    Attributes:
        code: SOLVED or GIVEN_UP; changes: of the working set; tangent: dimension of the tangent space.
        x, equality, inequality, bound, kkt_residual: the solution.
        rows, lower, upper: active set; weak_rows, weak_lower, weak_upper: its weakly active part.
    """

    code: NDArray[np.int8]
    changes: Ints
    tangent: Ints
    x: Array
    equality: Array
    inequality: Array
    bound: Array
    kkt_residual: Array
    rows: NDArray[np.bool_]
    lower: NDArray[np.bool_]
    upper: NDArray[np.bool_]
    weak_rows: NDArray[np.bool_]
    weak_lower: NDArray[np.bool_]
    weak_upper: NDArray[np.bool_]


@compiled
def solve_batch(P, cost, at, states, slots, home, outcome, w, begin, end):
    """Solve the samples ``begin`` to ``end`` of a batch.

    Args:
        P: Programs; cost: (B, n) in the user's sense; at: (B,) row of each sample in fields that are not shared.
        states, slots: where sample i starts from and is left at, ``states[slots[i]]``.
        home: States with one row to start unknown samples from, or none. It must not depend on other samples, so that
            no result does.
        outcome: written to, row i for sample i; w: Work.
    """
    for i in range(begin, end):
        _solve_sample(P, cost, i, at[i], states, slots[i], home, 0, True, outcome, i, w)


@compiled
def project_batch(P, at, states, slots, error, g, good, w, begin, end):
    """Project errors (B, n) at solutions that ``solve_batch`` left in ``states``; ``good`` says where it worked."""
    for i in range(begin, end):
        good[i] = 0
        if states.known[slots[i]] == 1:
            _measure_stiffness(P, at[i], w)
            _recall(states, slots[i], w)
            for t in range(w.count[_SUPERS]):
                _times_inverse(P, at[i], w.sup[t], w, w.W[t])
            good[i] = 1 if _project(P, at[i], error[i], g[i], w) else 0


@compiled
def regret_batch(
    P, T, curved, costs, at, states, ideals, slots, home, outcome, ideal, stamps, strength, results, w, span
):
    """Regret and its gradient, sample by sample: both problems solved, the bill, the projection, the injection.

    Args:
        P, T: Programs of the decision and of the bill; curved: whether their Q differ.
        costs: predicted and true, (B, n) each, in the user's sense.
        at: (B,) row of each sample in fields that are not shared.
        states, ideals: where the two problems of sample i start from and are left at, row ``slots[i]``.
        home: as for ``solve_batch``; unknown predicted problems start from the solution of the true one.
        outcome: of the predicted problems, row i; ideal: of the true ones, row ``slots[i]``.
        stamps: (K, n) costs under which the rows of ``ideal`` were solved; NaN where they must be solved again. A table
            without rows: always.
        strength: β of the injection, for programs without Q; negative to be given the error instead.
        results: value (B,), g (B, n) and g with injection, or the error, (B, n).
        w: Work; span: first sample and one past the last.
    """
    predicted, true = costs
    value, g, injected = results
    n = predicted.shape[1]
    for i in range(span[0], span[1]):
        slot = slots[i]
        kept = stamps.shape[0] > 0 and ideals.known[slot] == 1
        j = 0
        while kept and j < n:
            kept = true[i, j] == stamps[slot, j]
            j += 1
        if not kept:
            _solve_sample(T, true, i, at[i], ideals, slot, home, 0, False, ideal, slot, w)
            if ideal.code[slot] == SOLVED and stamps.shape[0] > 0:
                for j in range(n):
                    stamps[slot, j] = true[i, j]
        _solve_sample(P, predicted, i, at[i], states, slot, ideals, slot, False, outcome, i, w)
        if ideal.code[slot] != SOLVED:
            outcome.code[i] = GIVEN_UP
        if outcome.code[i] == SOLVED:
            value[i] = _bill(T, at[i], outcome.x[i], ideal, slot, w)
            _error_of_slope(P, T, curved, at[i], predicted[i], true[i], w)
            for j in range(n):
                injected[i, j] = w.e[j]
            if not _project(P, at[i], injected[i], g[i], w):
                outcome.code[i] = GIVEN_UP
            _inject(P, strength, injected[i], g[i])


@compiled
def _bill(T, r, x, ideal, slot, w):
    """Regret of x under the true program: ½dᵀHd plus multiplier times slack; no term is negative, none cancels."""
    n, p = x.shape[0], T.equalities
    d = w.p
    total = 0.0
    for j in range(n):
        d[j] = x[j] - ideal.x[slot, j]
        total += max(0.0, -ideal.bound[slot, j] * d[j])
    curved = 0.0
    if T.Q.shape[0] > 0:
        Q = T.Q[r if T.Q.shape[0] > 1 else 0]
        for i in range(n):
            if d[i] != 0.0:
                s = 0.0
                for j in range(n):
                    s += Q[i, j] * d[j]
                curved += T.sign * d[i] * s
    for j in range(n):
        curved += T.smoothing * d[j] * d[j]
    R = w.rhs.shape[0]
    if p < R:
        for i in range(R):
            w.residual[i] = T.rhs[r if T.rhs.shape[0] > 1 else 0, i]
        _subtract_rows(T, r, x, w.residual)
    for i in range(p, R):
        if ideal.inequality[slot, i - p] > 0.0:
            total += max(0.0, ideal.inequality[slot, i - p] * w.residual[i])
    return total + max(0.0, 0.5 * curved)


@compiled
def _error_of_slope(P, T, curved, r, predicted, true, w):
    """E = (ĉ − c) + (Q̂ − Q)x; the sign of the problem would cancel from the gradient."""
    n = predicted.shape[0]
    for j in range(n):
        w.e[j] = predicted[j] - true[j]
    if curved:
        Q, Q_true = P.Q[r if P.Q.shape[0] > 1 else 0], T.Q[r if T.Q.shape[0] > 1 else 0]
        for j in range(n):
            if w.x[j] != 0.0:
                for i in range(n):
                    w.e[i] += (Q[j, i] - Q_true[j, i]) * w.x[j]


@compiled
def _inject(P, strength, e, g):
    """Turn the error e into g + β (‖g‖/‖n‖) n with n = e/λ − g, in place; g itself where β = 0, nothing where β < 0."""
    n = e.shape[0]
    if strength < 0.0:
        return
    size_n = size_g = size_e = 0.0
    if strength > 0.0:
        for j in range(n):
            e[j] /= P.smoothing
            size_n += (e[j] - g[j]) ** 2
            size_g += g[j] ** 2
            size_e += e[j] ** 2
    real = math.sqrt(size_n) > _NEGLIGIBLE * math.sqrt(size_e)
    ratio = strength * math.sqrt(size_g / size_n) if strength > 0.0 and real else 0.0
    for j in range(n):
        e[j] = g[j] + ratio * (e[j] - g[j]) if ratio > 0.0 else g[j]


@compiled
def _solve_sample(P, cost, i, r, states, slot, home, home_slot, central, outcome, k, w):
    """Solve sample i, start from and leave it at ``states[slot]``, write row k of the outcome.

    An unknown sample starts from ``home[home_slot]``, or, where that is not known either, from the slacks. Where
    multipliers are not unique, ``central`` asks for some that are zero at as few tight constraints as possible.
    """
    outcome.code[k] = GIVEN_UP
    outcome.changes[k] = 0
    if not _load(P, cost, i, r, w):
        return
    started = False
    if states.known[slot] == 1:
        _recall(states, slot, w)
        started = True
    elif home.known.shape[0] > home_slot and home.known[home_slot] == 1:
        _recall(home, home_slot, w)
        w.count[_CHANGES] += 1
        started = True
    if started:
        started = (w.count[_AGE] <= _REFRESH or _invert(P, r, w)) and _optimise(P, r, w)
    if not started and not (_begin(P, r, w) and _optimise(P, r, w)):
        return
    _tangent(w)
    if central:
        _centre(P, r, w)
    _write(P, r, outcome, k, w)
    outcome.tangent[k] = w.count[_SUPERS]
    outcome.code[k] = SOLVED
    _store(states, slot, outcome.changes[k] > 0, w)


@compiled
def home_batch(P, cost, row, states, w):
    """A feasible working set for row ``row`` of the programs, as that row of ``states``; none if there is none."""
    if _load(P, cost, row, row, w) and _begin(P, row, w):
        _store(states, row, True, w)


@compiled
def _begin(P, r, w):
    """A feasible point, from the slacks; False where there is none."""
    _logical(w)
    return _place(P, r, w) and _phase_one(P, r, w)


@compiled
def _load(P, cost, i, r, w):
    """Bring the data of a sample into the workspace; False where it is not a program with finite costs."""
    n, R = w.c.shape[0], w.rhs.shape[0]
    good = True
    largest = reach = 0.0
    lb, ub = P.lb[r if P.lb.shape[0] > 1 else 0], P.ub[r if P.ub.shape[0] > 1 else 0]
    for j in range(n):
        w.c[j] = P.sign * cost[i, j]
        w.lo[j], w.up[j] = lb[j], ub[j]
        largest = max(largest, abs(w.c[j]))
        good = good and abs(w.c[j]) < math.inf and lb[j] <= ub[j] and lb[j] < math.inf and ub[j] > -math.inf
        if lb[j] > -math.inf:
            reach = max(reach, abs(lb[j]))
        if ub[j] < math.inf:
            reach = max(reach, abs(ub[j]))
    stiffest = _measure_stiffness(P, r, w)
    good = good and stiffest < math.inf
    rhs = P.rhs[r if P.rhs.shape[0] > 1 else 0]
    for k in range(R):
        absent = k >= P.equalities and rhs[k] == math.inf
        good = good and (absent or abs(rhs[k]) < math.inf)
        w.rhs[k] = 0.0 if absent else rhs[k]
        w.lo[n + k] = -math.inf if absent else 0.0
        w.up[n + k] = 0.0 if k < P.equalities else math.inf
        reach = max(reach, abs(w.rhs[k]))
    reach = max(reach, largest / stiffest if stiffest > 0.0 else largest)
    w.number[_REACH] = reach if reach > 0.0 else 1.0
    w.count[_CHANGES] = 0
    return good


@compiled
def _measure_stiffness(P, r, w):
    """The largest entry of the curvature's diagonal; infinite where one is not a number."""
    stiffest = P.smoothing
    if P.Q.shape[0] > 0:
        Q = P.Q[r if P.Q.shape[0] > 1 else 0]
        for j in range(w.c.shape[0]):
            entry = P.smoothing + P.sign * Q[j, j]
            stiffest = max(stiffest, entry if abs(entry) < math.inf else math.inf)
    w.number[_STIFFNESS] = stiffest
    return stiffest


@compiled
def _recall(states, slot, w):
    n, R = w.c.shape[0], w.rhs.shape[0]
    supers = 0
    for j in range(n + R):
        w.place[j] = states.place[slot, j]
        if w.place[j] == SUPER:
            w.sup[supers] = j
            supers += 1
        w.x[j] = states.x[slot, j]
    for b in range(R):
        w.basis[b] = states.basis[slot, b]
        for k in range(R):
            w.inverse[b, k] = states.inverse[slot, b, k]
    w.count[_SUPERS], w.count[_FACTORED], w.count[_AGE] = supers, 0, states.age[slot]


@compiled
def _store(states, slot, moved, w):
    states.known[slot] = 1
    for j in range(w.place.shape[0]):
        states.x[slot, j], states.place[slot, j] = w.x[j], w.place[j]
    if moved or states.age[slot] != w.count[_AGE]:
        for b in range(w.basis.shape[0]):
            states.basis[slot, b] = w.basis[b]
            for k in range(w.basis.shape[0]):
                states.inverse[slot, b, k] = w.inverse[b, k]
        states.age[slot] = w.count[_AGE]


@compiled
def _logical(w):
    """The start that is always there: every variable at a bound, every slack basic."""
    n, R = w.c.shape[0], w.rhs.shape[0]
    for j in range(n):
        w.place[j] = LOWER
    for k in range(R):
        w.place[n + k] = BASIC
        w.basis[k] = n + k
        for b in range(R):
            w.inverse[k, b] = 1.0 if b == k else 0.0
    w.count[_SUPERS] = w.count[_FACTORED] = w.count[_AGE] = 0
    w.count[_CHANGES] += 1


@compiled
def _optimise(P, r, w):
    """From the working set in ``w`` to a verified solution; False where that cannot be had."""
    if not _place(P, r, w):
        return False
    if not _phase_one(P, r, w):
        return False
    _free_the_loose(P, r, w)
    for attempt in range(_REFINEMENTS):
        if not _phase_two(P, r, w, attempt > 0):
            return False
        verdict = _refine_and_judge(P, r, w)
        if verdict == SOLVED:
            return True
        if verdict == GIVEN_UP:
            if w.count[_AGE] == 0 or not _invert(P, r, w):
                return False
            _set_basics(P, r, w, _SHARP)
            _times_all(P, r, w)
    return False


@compiled
def _place(P, r, w):
    """Put nonbasic variables on bounds that exist, superbasic ones between theirs, and compute the basic ones."""
    n, R = w.c.shape[0], w.rhs.shape[0]
    for j in range(n + R):
        place = w.place[j]
        if place == BASIC:
            continue
        if place == SUPER:
            w.x[j] = min(max(w.x[j], w.lo[j]), w.up[j])
            continue
        if place == LOWER and w.lo[j] == -math.inf:
            place = UPPER
        if place == UPPER and w.up[j] == math.inf:
            place = LOWER if w.lo[j] > -math.inf else LOOSE
        if place == LOOSE and (w.lo[j] > -math.inf or w.up[j] < math.inf):
            place = LOWER if w.lo[j] > -math.inf else UPPER
        w.place[j] = place
        w.x[j] = w.lo[j] if place == LOWER else (w.up[j] if place == UPPER else 0.0)
    for b in range(R):
        if not abs(w.x[w.basis[b]]) < math.inf:
            w.x[w.basis[b]] = 0.0
    if not _set_basics(P, r, w, _SHARP):
        if w.count[_AGE] == 0 or not _invert(P, r, w) or not _set_basics(P, r, w, _SHARP):
            return False
    _times_all(P, r, w)
    return True


@compiled
def _subtract_rows(P, r, x, out):
    """Out −= J x."""
    n, R = P.J.shape[2], P.J.shape[1]
    if P.start.shape[0] == 0:
        J = P.J[r if P.J.shape[0] > 1 else 0]
        for i in range(R):
            s = 0.0
            for j in range(n):
                s += J[i, j] * x[j]
            out[i] -= s
        return
    V = P.value[r if P.value.shape[0] > 1 else 0]
    for j in range(n):
        if x[j] != 0.0:
            for k in range(P.start[j], P.start[j + 1]):
                out[P.row[k]] -= V[k] * x[j]


@compiled
def _add_abs_rows(P, r, x, out):
    """Out += |J| |x|."""
    n, R = P.J.shape[2], P.J.shape[1]
    if P.start.shape[0] == 0:
        J = P.J[r if P.J.shape[0] > 1 else 0]
        for i in range(R):
            s = 0.0
            for j in range(n):
                s += abs(J[i, j] * x[j])
            out[i] += s
        return
    V = P.value[r if P.value.shape[0] > 1 else 0]
    for j in range(n):
        if x[j] != 0.0:
            for k in range(P.start[j], P.start[j + 1]):
                out[P.row[k]] += abs(V[k] * x[j])


@compiled
def _subtract_columns(P, r, y, out):
    """Out −= Jᵀ y."""
    n, R = P.J.shape[2], P.J.shape[1]
    if P.start.shape[0] == 0:
        J = P.J[r if P.J.shape[0] > 1 else 0]
        for i in range(R):
            if y[i] != 0.0:
                for j in range(n):
                    out[j] -= J[i, j] * y[i]
        return
    V = P.value[r if P.value.shape[0] > 1 else 0]
    for j in range(n):
        s = 0.0
        for k in range(P.start[j], P.start[j + 1]):
            s += V[k] * y[P.row[k]]
        out[j] -= s


@compiled
def _add_abs_columns(P, r, y, out):
    """Out += |J|ᵀ |y|."""
    n, R = P.J.shape[2], P.J.shape[1]
    if P.start.shape[0] == 0:
        J = P.J[r if P.J.shape[0] > 1 else 0]
        for i in range(R):
            if y[i] != 0.0:
                for j in range(n):
                    out[j] += abs(J[i, j] * y[i])
        return
    V = P.value[r if P.value.shape[0] > 1 else 0]
    for j in range(n):
        s = 0.0
        for k in range(P.start[j], P.start[j + 1]):
            s += abs(V[k] * y[P.row[k]])
        out[j] += s


@compiled
def _rows_left(P, r, w):
    """Residual = r − Jx − s for the point as it is; returns its largest entry relative to the terms."""
    n, R = w.c.shape[0], w.rhs.shape[0]
    for k in range(R):
        w.residual[k] = w.rhs[k] - w.x[n + k]
        w.row_size[k] = abs(w.rhs[k]) + abs(w.x[n + k])
    _subtract_rows(P, r, w.x, w.residual)
    _add_abs_rows(P, r, w.x, w.row_size)
    worst = 0.0
    for k in range(R):
        if w.residual[k] != 0.0:
            worst = max(worst, abs(w.residual[k]) / w.row_size[k])
        if w.residual[k] != w.residual[k]:
            worst = math.inf
    return worst


@compiled
def _set_basics(P, r, w, goal):
    """Solve the rows for the basic variables, by refinement from what they are; False where the inverse is none."""
    R = w.rhs.shape[0]
    for _ in range(3):
        if _rows_left(P, r, w) <= goal:
            return True
        for b in range(R):
            s = 0.0
            for k in range(R):
                s += w.inverse[b, k] * w.residual[k]
            w.x[w.basis[b]] += s
    return _rows_left(P, r, w) <= _FEASIBLE


@compiled
def _invert(P, r, w):
    """The inverse of the basic columns afresh, by Gauss-Jordan elimination; False where they are dependent."""
    n, R = w.c.shape[0], w.rhs.shape[0]
    J = P.J[r if P.J.shape[0] > 1 else 0]
    M, I = w.scratch, w.inverse
    for a in range(R):
        for b in range(R):
            M[a, b] = 0.0
            I[a, b] = 1.0 if a == b else 0.0
    for b in range(R):
        j = w.basis[b]
        if j >= n:
            M[j - n, b] = 1.0
        else:
            for k in range(R):
                M[k, b] = J[k, j]
    largest = 0.0
    for a in range(R):
        for b in range(R):
            largest = max(largest, abs(M[a, b]))
    for b in range(R):
        best = b
        for a in range(b + 1, R):
            if abs(M[a, b]) > abs(M[best, b]):
                best = a
        if not abs(M[best, b]) > 1e-11 * largest:
            return False
        if best != b:
            for k in range(R):
                M[b, k], M[best, k] = M[best, k], M[b, k]
                I[b, k], I[best, k] = I[best, k], I[b, k]
        scale = 1.0 / M[b, b]
        for k in range(R):
            M[b, k] *= scale
            I[b, k] *= scale
        for a in range(R):
            factor = M[a, b]
            if a != b and factor != 0.0:
                for k in range(b, R):
                    M[a, k] -= factor * M[b, k]
                for k in range(R):
                    I[a, k] -= factor * I[b, k]
    w.count[_AGE] = w.count[_FACTORED] = 0
    return True


@compiled
def _times_inverse(P, r, j, w, out):
    """B⁻¹ times the column of variable j."""
    n, R = w.c.shape[0], w.rhs.shape[0]
    if j >= n:
        for b in range(R):
            out[b] = w.inverse[b, j - n]
        return
    if P.start.shape[0] == 0:
        J = P.J[r if P.J.shape[0] > 1 else 0]
        for k in range(R):
            w.residual[k] = J[k, j]
        for b in range(R):
            s = 0.0
            for k in range(R):
                s += w.inverse[b, k] * w.residual[k]
            out[b] = s
        return
    V = P.value[r if P.value.shape[0] > 1 else 0]
    for b in range(R):
        s = 0.0
        for k in range(P.start[j], P.start[j + 1]):
            s += w.inverse[b, P.row[k]] * V[k]
        out[b] = s


@compiled
def _times_all(P, r, w):
    for t in range(w.count[_SUPERS]):
        _times_inverse(P, r, w.sup[t], w, w.W[t])
    w.count[_FACTORED] = 0


@compiled
def _exchange(w, b, column):
    """Update the inverse and W when a variable with ``column`` = B⁻¹J_j becomes basic at position b."""
    R = w.basis.shape[0]
    pivot = 1.0 / column[b]
    for k in range(R):
        w.inverse[b, k] *= pivot
    for a in range(R):
        factor = column[a]
        if a != b and factor != 0.0:
            for k in range(R):
                w.inverse[a, k] -= factor * w.inverse[b, k]
    for t in range(w.count[_SUPERS]):
        factor = w.W[t, b] * pivot
        if factor != 0.0:
            for a in range(R):
                w.W[t, a] -= factor * column[a]
            w.W[t, b] = factor
    w.count[_AGE] += 1
    w.count[_FACTORED] = 0


@compiled
def _drop(w, t):
    """Take the superbasic at position t out of the list."""
    last = w.count[_SUPERS] - 1
    for a in range(t, last):
        w.sup[a] = w.sup[a + 1]
        for b in range(w.basis.shape[0]):
            w.W[a, b] = w.W[a + 1, b]
    w.count[_SUPERS] = last
    w.count[_FACTORED] = min(w.count[_FACTORED], t)


@compiled
def _swap(w, b, t, place):
    """The basic variable at position b goes to a bound, and the superbasic at position t becomes basic instead."""
    leaving, entering = w.basis[b], w.sup[t]
    for a in range(w.basis.shape[0]):
        w.column[a] = w.W[t, a]
    _drop(w, t)
    _exchange(w, b, w.column)
    w.basis[b] = entering
    w.place[entering] = BASIC
    w.place[leaving] = place


@compiled
def _phase_one(P, r, w):
    """To a feasible point, by the sum of infeasibilities; False where there is none, or rounding has the upper hand."""
    n, R = w.c.shape[0], w.rhs.shape[0]
    N = n + R
    stalled = 0
    for _ in range(20 * N + 100):
        infeasible = False
        for k in range(R):
            w.y[k] = 0.0
        for b in range(R):
            v = w.basis[b]
            side = _side(w, v)
            w.p[b] = side
            if side != 0.0:
                infeasible = True
                for k in range(R):
                    w.y[k] += side * w.inverse[b, k]
        if not infeasible:
            return True
        for j in range(n):
            w.grad[j] = w.force[j] = 0.0
        _reduced_costs(P, r, w)
        _add_abs_columns(P, r, w.y, w.force)
        entering, best = -1, _PIVOT
        for j in range(N):
            place = w.place[j]
            if place == BASIC or w.lo[j] == w.up[j]:
                continue
            size = w.force[j] if j < n else abs(w.y[j - n])
            gain = -w.d[j] if place == LOWER else (w.d[j] if place == UPPER else abs(w.d[j]))
            if size > 0.0 and gain > best * size:
                entering, best = j, gain / size
                if stalled > _STALLED:
                    break
        if entering < 0:
            return False
        length = _phase_one_step(P, r, w, entering, -1.0 if w.d[entering] > 0.0 else 1.0)
        if length == math.inf:
            return False
        stalled = 0 if length > 0.0 else stalled + 1
    return False


@compiled
def _side(w, v):
    """−1 below the lower bound, 1 above the upper one, 0 between."""
    slop = _FEASIBLE * (1.0 + abs(w.x[v]))
    if w.x[v] < w.lo[v] - slop:
        return -1.0
    return 1.0 if w.x[v] > w.up[v] + slop else 0.0


@compiled
def _phase_one_step(P, r, w, entering, direction):
    """Move one variable until the first basic one meets a bound; returns the length, infinite where none does."""
    R = w.basis.shape[0]
    _times_inverse(P, r, entering, w, w.column)
    largest = 0.0
    for b in range(R):
        largest = max(largest, abs(w.column[b]))
    far = w.up[entering] if direction > 0.0 else w.lo[entering]
    length, leaving, place = abs(far - w.x[entering]), -1, UPPER if direction > 0.0 else LOWER
    rate_taken = 0.0
    for b in range(R):
        rate = -direction * w.column[b]
        if abs(rate) <= _PIVOT * largest:
            continue
        v, side = w.basis[b], w.p[b]
        if side == 0.0:
            goal = w.up[v] if rate > 0.0 else w.lo[v]
        elif side * rate < 0.0:
            goal = w.lo[v] if side < 0.0 else w.up[v]
        else:
            continue
        way = max(0.0, (goal - w.x[v]) / rate)
        if way < length or (way == length and abs(rate) > abs(rate_taken)):
            length, leaving, rate_taken = way, b, rate
            place = UPPER if goal == w.up[v] else LOWER
    if length == math.inf:
        return length
    for b in range(R):
        w.x[w.basis[b]] -= direction * length * w.column[b]
    w.x[entering] += direction * length
    w.count[_CHANGES] += 1
    for t in range(w.count[_SUPERS]):
        if w.sup[t] == entering:
            _drop(w, t)
            break
    if leaving < 0:
        w.place[entering] = place
        w.x[entering] = far
        return length
    gone = w.basis[leaving]
    _exchange(w, leaving, w.column)
    w.basis[leaving] = entering
    w.place[entering] = BASIC
    w.place[gone] = place
    w.x[gone] = w.up[gone] if place == UPPER else w.lo[gone]
    return length


@compiled
def _free_the_loose(P, r, w):
    """Variables without bounds have nothing to wait for."""
    for j in range(w.c.shape[0]):
        if w.place[j] == LOOSE and w.count[_SUPERS] < w.sup.shape[0] - 1:
            _enter(P, r, w, j)


@compiled
def _enter(P, r, w, j):
    t = w.count[_SUPERS]
    w.sup[t] = j
    w.place[j] = SUPER
    _times_inverse(P, r, j, w, w.W[t])
    w.count[_SUPERS] = t + 1


@compiled
def _slope(P, r, w):
    """Grad = Hx + c from the data."""
    n = w.c.shape[0]
    for j in range(n):
        w.grad[j] = w.c[j] + P.smoothing * w.x[j]
    if P.Q.shape[0] > 0:
        Q = P.Q[r if P.Q.shape[0] > 1 else 0]
        for j in range(n):
            if w.x[j] != 0.0:
                factor = P.sign * w.x[j]
                for i in range(n):
                    w.grad[i] += factor * Q[j, i]


@compiled
def _multipliers(P, r, w):
    """Y = B⁻ᵀ grad_B and d = grad − Jᵀy."""
    n, R = w.c.shape[0], w.rhs.shape[0]
    for k in range(R):
        w.y[k] = 0.0
    for b in range(R):
        if w.basis[b] < n:
            factor = w.grad[w.basis[b]]
            for k in range(R):
                w.y[k] += factor * w.inverse[b, k]
    _reduced_costs(P, r, w)


@compiled
def _reduced_costs(P, r, w):
    n, R = w.c.shape[0], w.rhs.shape[0]
    for j in range(n):
        w.d[j] = w.grad[j]
    _subtract_columns(P, r, w.y, w.d)
    for k in range(R):
        w.d[n + k] = -w.y[k]


@compiled
def _factor(P, r, w):
    """Extend the Cholesky factor of ZᵀHZ to all superbasics; returns the first along which it is flat, or −1."""
    n, R, L = w.c.shape[0], w.rhs.shape[0], w.L
    has_q = P.Q.shape[0] > 0
    Q = P.Q[r if P.Q.shape[0] > 1 else 0]
    for t in range(w.count[_FACTORED], w.count[_SUPERS]):
        s = w.sup[t]
        # H z for z = e_s − Σ W[t, b] e_basis[b], first on the basic variables
        for b in range(R):
            i = w.basis[b]
            h = 0.0
            if i < n:
                h = -P.smoothing * w.W[t, b]
                if has_q:
                    h += P.sign * (Q[i, s] if s < n else 0.0)
                    for a in range(R):
                        if w.basis[a] < n:
                            h -= P.sign * Q[i, w.basis[a]] * w.W[t, a]
            w.column[b] = h
        top = 0.0
        for a in range(t + 1):
            i = w.sup[a]
            h = 0.0
            if i < n:
                h = P.smoothing if a == t else 0.0
                if has_q:
                    h += P.sign * (Q[i, s] if s < n else 0.0)
                    for b in range(R):
                        if w.basis[b] < n:
                            h -= P.sign * Q[i, w.basis[b]] * w.W[t, b]
            size = abs(h)
            for b in range(R):
                term = w.W[a, b] * w.column[b]
                h -= term
                size += abs(term)
            if a == t:
                top = size
            for k in range(a):
                h -= L[t, k] * L[a, k]
            if a < t:
                L[t, a] = h / L[a, a]
            elif not h > _FLAT * top:
                return t
            else:
                L[t, t] = math.sqrt(h)
        w.count[_FACTORED] = t + 1
    return -1


@compiled
def _solve_reduced(w, count):
    """Q ← (LLᵀ)⁻¹ q on the first ``count`` superbasics."""
    for t in range(count):
        s = w.q[t]
        for a in range(t):
            s -= w.L[t, a] * w.q[a]
        w.q[t] = s / w.L[t, t]
    for t in range(count - 1, -1, -1):
        s = w.q[t]
        for a in range(t + 1, count):
            s -= w.L[a, t] * w.q[a]
        w.q[t] = s / w.L[t, t]


@compiled
def _direction(P, r, w):
    """Write the direction of the next step to p; returns how long it may be (1, or infinite), 0 where there is none."""
    n, R, supers = w.c.shape[0], w.rhs.shape[0], w.count[_SUPERS]
    flat = _factor(P, r, w)
    longest = 1.0
    if flat < 0:
        for t in range(supers):
            w.q[t] = -w.d[w.sup[t]]
        _solve_reduced(w, supers)
    else:
        # L[flat, :flat] holds L⁻¹ of the column, so that the flat direction needs the second half of the solve only
        for t in range(flat - 1, -1, -1):
            s = -w.L[flat, t]
            for a in range(t + 1, flat):
                s -= w.L[a, t] * w.q[a]
            w.q[t] = s / w.L[t, t]
        w.q[flat] = 1.0
        slope = size = 0.0
        for t in range(flat + 1):
            slope += w.d[w.sup[t]] * w.q[t]
            size += abs(w.d[w.sup[t]] * w.q[t])
        for t in range(flat + 1, supers):
            w.q[t] = 0.0
        if not abs(slope) > _ROUNDOFF * size:
            return 0.0
        if slope > 0.0:
            for t in range(flat + 1):
                w.q[t] = -w.q[t]
        longest = math.inf
    for b in range(R):
        s = 0.0
        for t in range(supers):
            s -= w.W[t, b] * w.q[t]
        w.column[b] = s
    return longest


@compiled
def _phase_two(P, r, w, careful):
    """From a feasible point to a minimum whose multipliers have the right signs; False where that fails."""
    N, most = w.place.shape[0], w.sup.shape[0] - 1
    stalled = 0
    _slope(P, r, w)
    at_minimum = w.count[_SUPERS] == 0
    for _ in range(20 * N + 100):
        _multipliers(P, r, w)
        if at_minimum:
            if careful or stalled > _STALLED:
                _measure_forces(P, r, w)
                entering = _most_wrong(w, stalled > _STALLED)
            else:
                entering = _most_wrong_roughly(P, w)
            if entering < 0:
                return True
            if w.count[_SUPERS] == most:
                return False
            _enter(P, r, w, entering)
            w.count[_CHANGES] += 1
        longest = _direction(P, r, w)
        if longest == 0.0:
            return False
        length, blocked = _step(P, r, w, longest)
        if not length < math.inf:
            return False
        stalled = 0 if length > 0.0 else stalled + 1
        at_minimum = not blocked or w.count[_SUPERS] == 0
    return False


@compiled
def _step(P, r, w, longest):
    """Walk along the direction in q and column, no further than the first bound; returns the length and if it was met.

    The bound's variable leaves the superbasic ones, or the basic ones, where the superbasic that moves it most takes
    its place.
    """
    R, supers = w.rhs.shape[0], w.count[_SUPERS]
    largest = 0.0
    for t in range(supers):
        largest = max(largest, abs(w.q[t]))
    for b in range(R):
        largest = max(largest, abs(w.column[b]))
    length, met, rate_taken = longest, -1, 0.0
    for a in range(supers + R):
        v = w.sup[a] if a < supers else w.basis[a - supers]
        rate = w.q[a] if a < supers else w.column[a - supers]
        if abs(rate) <= _ROUNDOFF * largest:
            continue
        goal = w.up[v] if rate > 0.0 else w.lo[v]
        way = max(0.0, (goal - w.x[v]) / rate)
        if way < length or (way == length and met >= 0 and abs(rate) > abs(rate_taken)):
            length, met, rate_taken = way, a, rate
    if not length < math.inf:
        return length, False
    if length > 0.0:
        for t in range(supers):
            _move(P, r, w, w.sup[t], length * w.q[t])
        for b in range(R):
            _move(P, r, w, w.basis[b], length * w.column[b])
    if met < 0:
        return length, False
    v = w.sup[met] if met < supers else w.basis[met - supers]
    place = UPPER if rate_taken > 0.0 else LOWER
    w.x[v] = w.up[v] if place == UPPER else w.lo[v]
    w.count[_CHANGES] += 1
    if met < supers:
        w.place[v] = place
        _drop(w, met)
        return length, True
    b, best = met - supers, 0
    for t in range(supers):
        if abs(w.W[t, b]) > abs(w.W[best, b]):
            best = t
    if w.W[best, b] == 0.0:
        return math.inf, True
    _swap(w, b, best, place)
    return length, True


@compiled
def _move(P, r, w, v, change):
    """Move one variable, and the gradient with it."""
    if change == 0.0:
        return
    w.x[v] += change
    n = w.c.shape[0]
    if v < n:
        w.grad[v] += P.smoothing * change
        if P.Q.shape[0] > 0:
            Q = P.Q[r if P.Q.shape[0] > 1 else 0]
            for i in range(n):
                w.grad[i] += P.sign * change * Q[v, i]


@compiled
def _measure_forces(P, r, w):
    """The natural size of every multiplier, as ``pear.geometry.scale`` has it."""
    n, R = w.c.shape[0], w.rhs.shape[0]
    largest = _FLOOR * w.number[_REACH] * w.number[_STIFFNESS]
    for j in range(n):
        w.force[j] = abs(w.grad[j] - w.c[j]) + abs(w.c[j])
    _add_abs_columns(P, r, w.y, w.force)
    for j in range(n):
        largest = max(largest, w.force[j])
    for j in range(n):
        w.force[j] = _positive(max(w.force[j], _SHARE_OF_FORCE * largest))
    if P.equalities < R:
        for k in range(R):
            w.row_force[k] = 0.0
        _add_abs_rows(P, r, w.force, w.row_force)
        for k in range(P.equalities, R):
            norm = P.norm[r if P.norm.shape[0] > 1 else 0, k]
            w.row_force[k] = _positive(w.row_force[k]) / _positive(norm)


@compiled
def _most_wrong(w, first):
    """The nonbasic variable whose multiplier has the wrong sign by most (or the first such one), or −1."""
    n, N = w.c.shape[0], w.place.shape[0]
    found, worst = -1, _SIGN
    for j in range(N):
        place = w.place[j]
        if place == BASIC or place == SUPER or w.lo[j] == w.up[j]:
            continue
        wrong = -w.d[j] if place == LOWER else (w.d[j] if place == UPPER else abs(w.d[j]))
        if wrong > 0.0:
            wrong /= w.force[j] if j < n else w.row_force[j - n]
            if wrong > worst:
                found, worst = j, wrong
                if first:
                    break
    return found


@compiled
def _most_wrong_roughly(P, w):
    """The same without the natural sizes: good enough to find the way, not to say that it has ended."""
    N, largest = w.place.shape[0], 0.0
    for j in range(w.c.shape[0]):
        largest = max(largest, abs(w.grad[j]))
    found, worst = -1, _SIGN * largest
    for j in range(N):
        place = w.place[j]
        if place == BASIC or place == SUPER or w.lo[j] == w.up[j]:
            continue
        wrong = -w.d[j] if place == LOWER else (w.d[j] if place == UPPER else abs(w.d[j]))
        if wrong > worst:
            found, worst = j, wrong
    return found


_AGAIN = 2


@compiled
def _refine_and_judge(P, r, w):
    """Sharpen the solution on its working set, and judge it from the data: SOLVED, GIVEN_UP or _AGAIN."""
    n, R = w.c.shape[0], w.rhs.shape[0]
    unbalanced = math.inf
    for attempt in range(_REFINEMENTS):
        if attempt > 0:
            if _factor(P, r, w) >= 0:
                return GIVEN_UP
            for t in range(w.count[_SUPERS]):
                w.q[t] = -w.d[w.sup[t]]
            _solve_reduced(w, w.count[_SUPERS])
            for t in range(w.count[_SUPERS]):
                w.x[w.sup[t]] += w.q[t]
                for b in range(R):
                    w.x[w.basis[b]] -= w.W[t, b] * w.q[t]
        if not _set_basics(P, r, w, 1e-15):
            return GIVEN_UP
        _slope(P, r, w)
        _sharp_multipliers(P, r, w)
        _measure_forces(P, r, w)
        unbalanced = 0.0
        for j in range(n):
            if w.place[j] == BASIC or w.place[j] == SUPER:
                unbalanced = max(unbalanced, abs(w.d[j]) / w.force[j])
            if w.d[j] != w.d[j]:
                return GIVEN_UP
        if unbalanced <= _SHARP:
            break
    if not unbalanced <= _TOLERANCE:
        return GIVEN_UP
    if _most_wrong(w, False) >= 0:
        return _AGAIN
    return SOLVED if _feasible(P, r, w) else GIVEN_UP


@compiled
def _sharp_multipliers(P, r, w):
    """Multipliers with one step of refinement; exactly zero for rows that are not tight."""
    n, R = w.c.shape[0], w.rhs.shape[0]
    _multipliers(P, r, w)
    for b in range(R):
        left = w.d[w.basis[b]]
        if left != 0.0:
            for k in range(R):
                w.y[k] += left * w.inverse[b, k]
    for k in range(R):
        if w.place[n + k] == BASIC or w.place[n + k] == SUPER:
            w.y[k] = 0.0
    _reduced_costs(P, r, w)


@compiled
def _feasible(P, r, w):
    """Measure every slack by its natural size, note which are tight, and say whether none is violated."""
    n, R = w.c.shape[0], w.rhs.shape[0]
    largest = _FLOOR * w.number[_REACH]
    for j in range(n):
        largest = max(largest, abs(w.x[j]))
    for k in range(R):
        w.residual[k], w.row_size[k] = w.rhs[k], abs(w.rhs[k])
    for j in range(n):
        w.size[j] = max(abs(w.x[j]), _SHARE_OF_SIZE * largest)
    _subtract_rows(P, r, w.x, w.residual)
    _add_abs_rows(P, r, w.size, w.row_size)
    good = True
    for j in range(n):
        x, lower, upper = w.x[j], math.inf, math.inf
        if w.lo[j] > -math.inf:
            lower = (x - w.lo[j]) / _positive(w.size[j] + abs(w.lo[j]))
        if w.up[j] < math.inf:
            upper = (w.up[j] - x) / _positive(w.size[j] + abs(w.up[j]))
        good = good and lower >= -_TOLERANCE and upper >= -_TOLERANCE
        at_lower = w.place[j] == LOWER or lower <= _TIGHT
        w.tight[j] = 1 if at_lower else (2 if w.place[j] == UPPER or upper <= _TIGHT else 0)
    for k in range(R):
        slack = w.residual[k] / _positive(w.row_size[k])
        if k < P.equalities:
            good = good and abs(slack) <= _TOLERANCE
            w.tight[n + k] = 1
        elif w.lo[n + k] == -math.inf:
            w.tight[n + k] = 0
        else:
            good = good and slack >= -_TOLERANCE
            w.tight[n + k] = 1 if w.place[n + k] == LOWER or slack <= _TIGHT else 0
    return good


@compiled
def _positive(value):
    return value if value > 0.0 else 1.0


@compiled
def _write(P, r, outcome, k, w):
    """Write a judged solution to row k of the outcome."""
    n, R, p = w.c.shape[0], w.rhs.shape[0], P.equalities
    for j in range(n):
        outcome.x[k, j] = w.x[j]
        pinned = w.lo[j] == w.up[j]
        lower, upper = w.tight[j] == 1, w.tight[j] == 2
        force = 0.0
        if lower or upper:
            force = -w.d[j]
            if not pinned:
                force = min(force, 0.0) if lower else max(force, 0.0)
        outcome.bound[k, j] = force
        push = abs(force) / w.force[j]
        outcome.lower[k, j], outcome.upper[k, j] = lower, upper
        outcome.weak_lower[k, j] = lower and push <= _WEAK and not pinned
        outcome.weak_upper[k, j] = upper and push <= _WEAK and not pinned
    for i in range(p):
        outcome.equality[k, i] = -w.y[i]
    for i in range(p, R):
        multiplier = max(0.0, -w.y[i])
        tight = w.tight[n + i] == 1
        outcome.inequality[k, i - p] = multiplier
        outcome.rows[k, i - p] = tight
        outcome.weak_rows[k, i - p] = tight and multiplier / w.row_force[i] <= _WEAK
    outcome.changes[k] = w.count[_CHANGES]
    outcome.kkt_residual[k] = _kkt_residual(P, r, outcome, k, w)


@compiled
def _kkt_residual(P, r, outcome, k, w):
    """The yardstick of ``pear.geometry.residual``; w.residual holds the slacks of the rows."""
    n, R, p = w.c.shape[0], w.rhs.shape[0], P.equalities
    size = _FLOOR * w.number[_REACH]
    force = size * w.number[_STIFFNESS]
    for j in range(n):
        size = max(size, abs(w.x[j]))
        force = max(force, abs(w.c[j]), abs(w.grad[j] - w.c[j]))
    force = _positive(force)
    worst = 0.0
    for j in range(n):
        bound = outcome.bound[k, j]
        worst = max(worst, abs(w.d[j] + bound) / force)
        if w.lo[j] > -math.inf:
            slack = (w.x[j] - w.lo[j]) / size
            worst = max(worst, -slack, abs(slack * min(bound, 0.0) / force))
        if w.up[j] < math.inf:
            slack = (w.up[j] - w.x[j]) / size
            worst = max(worst, -slack, abs(slack * max(bound, 0.0) / force))
    for i in range(R):
        norm = _positive(math.sqrt(P.norm[r if P.norm.shape[0] > 1 else 0, i]))
        slack = w.residual[i] / norm / size
        if i < p:
            worst = max(worst, abs(slack))
        elif w.lo[n + i] > -math.inf:
            worst = max(worst, -slack, abs(slack * outcome.inequality[k, i - p] * norm / force))
    return worst


@compiled
def _tangent(w):
    """Hold every tight constraint: superbasic variables that are tight go, and tight basic ones trade places.

    What is left superbasic are coordinates of the tangent space. Multipliers stay as they are, because the reduced
    gradient is zero along every superbasic variable.
    """
    for t in range(w.count[_SUPERS] - 1, -1, -1):
        tight = w.tight[w.sup[t]]
        if tight != 0:
            w.place[w.sup[t]] = LOWER if tight == 1 else UPPER
            _drop(w, t)
    for b in range(w.basis.shape[0]):
        tight, supers = w.tight[w.basis[b]], w.count[_SUPERS]
        if tight == 0 or supers == 0:
            continue
        best, largest = 0, 0.0
        for t in range(supers):
            if abs(w.W[t, b]) > abs(w.W[best, b]):
                best = t
        for a in range(w.basis.shape[0]):
            largest = max(largest, abs(w.W[best, a]))
        if abs(w.W[best, b]) > _PIVOT * max(1.0, largest):
            _swap(w, b, best, LOWER if tight == 1 else UPPER)


@compiled
def _centre(P, r, w):
    """Give tight constraints a multiplier each, where that costs none of the others theirs.

    A tight basic variable has multiplier zero only because it is basic. Raising it by t changes the multipliers of
    nonbasic variables by t times its row of B⁻¹J; half of what the first of them allows leaves all of them positive.
    """
    n, R = w.c.shape[0], w.rhs.shape[0]
    N = n + R
    changed = False
    for _ in range(2):
        for b in range(R):
            v = w.basis[b]
            size = w.force[v] if v < n else w.row_force[v - n]
            if w.tight[v] == 0 or w.lo[v] == w.up[v] or abs(w.d[v]) > _WEAK * size:
                continue
            sign = 1.0 if w.tight[v] == 1 else -1.0
            for j in range(n):
                w.p[j] = 0.0
            for k in range(R):
                w.column[k] = w.inverse[b, k]
            _subtract_columns(P, r, w.column, w.p)
            longest = math.inf
            for j in range(N):
                if w.place[j] == BASIC or w.place[j] == SUPER or w.lo[j] == w.up[j]:
                    continue
                rate = -w.p[j] if j < n else w.column[j - n]
                rate *= sign
                room = w.d[j]
                if w.place[j] == UPPER:
                    rate, room = -rate, -room
                if rate < -_ROUNDOFF:
                    longest = min(longest, max(0.0, room) / -rate)
            if longest == math.inf:
                longest = 0.0
                for j in range(n):
                    longest = max(longest, abs(w.grad[j]))
            if longest > 0.0:
                changed = True
                for k in range(R):
                    w.y[k] -= 0.5 * longest * sign * w.column[k]
                _reduced_costs(P, r, w)
    if changed:
        for k in range(R):
            if w.tight[n + k] == 0:
                w.y[k] = 0.0
        _reduced_costs(P, r, w)


@compiled
def _project(P, r, error, g, w):
    """G = P error at the working set of w, whose superbasics span the tangent space; False where it is not unique."""
    n, R, supers = w.c.shape[0], w.rhs.shape[0], w.count[_SUPERS]
    for j in range(n):
        g[j] = 0.0
    if supers == 0:
        return True
    if _factor(P, r, w) >= 0:
        return False
    for v in range(n + R):
        w.p[v] = 0.0
    for j in range(n):
        w.e[j] = error[j]
    top = 0.0
    for j in range(n):
        top = max(top, abs(error[j]))
    noise = _NEGLIGIBLE * top / max(w.number[_STIFFNESS], 1e-300)
    largest, change = 0.0, math.inf
    for attempt in range(_REFINEMENTS):
        if attempt > 0:
            _correct_tangent(P, r, error, w)
        for t in range(supers):
            s = w.e[w.sup[t]] if w.sup[t] < n else 0.0
            for b in range(R):
                if w.basis[b] < n:
                    s -= w.W[t, b] * w.e[w.basis[b]]
            w.q[t] = s
        _solve_reduced(w, supers)
        change = 0.0
        for t in range(supers):
            w.p[w.sup[t]] += w.q[t]
            change = max(change, abs(w.q[t]))
            for b in range(R):
                w.p[w.basis[b]] -= w.W[t, b] * w.q[t]
        if attempt == 0:
            largest = change
        elif change <= max(_SHARP * largest, 1e-3 * noise):
            break
    if not change <= max(1e-9 * largest, noise):
        return False
    biggest = 0.0
    for j in range(n):
        biggest = max(biggest, abs(w.p[j]))
    if biggest > noise:
        for j in range(n):
            g[j] = w.p[j]
    return True


@compiled
def _correct_tangent(P, r, error, w):
    """Bring p back to Jp = 0, and write what is left of the error, e = error − Hp."""
    n, R = w.c.shape[0], w.rhs.shape[0]
    for k in range(R):
        w.residual[k] = -w.p[n + k]
    _subtract_rows(P, r, w.p, w.residual)
    for b in range(R):
        s = 0.0
        for k in range(R):
            s += w.inverse[b, k] * w.residual[k]
        w.p[w.basis[b]] += s
    for j in range(n):
        w.e[j] = error[j] - P.smoothing * w.p[j]
    if P.Q.shape[0] > 0:
        Q = P.Q[r if P.Q.shape[0] > 1 else 0]
        for j in range(n):
            if w.p[j] != 0.0:
                for i in range(n):
                    w.e[i] -= P.sign * w.p[j] * Q[j, i]
