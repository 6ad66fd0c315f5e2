"""Branch and bound for 0-1 programs with few rows: a dual simplex method and the search around it, compiled.

    max v·z,  y = b − Aᵀz,  lo ≤ y ≤ hi,  z_j ∈ {0, 1}

A dictionary writes the basic variables and the objective by the others, which sit at one of their bounds:

    x_B = … − T x_N,    v·z = … + d·x_N.

Items that are decided leave the dictionary, which soon is small. Every iterate has multipliers u = −d at the y, and for
any u the bound

    v·z ≤ u·b + Σ max(v_j − A_j·u, 0) + Σ max(−u_i lo_i, −u_i hi_i)

holds, whatever rounding did to T: proofs rest on this line alone, evaluated with the problem's own numbers. The last
row counts the items taken (A_j = −1, b = 0), and the search may branch on that count as on an item: where values are
much alike this says more than any single item does.

One file although it is long: what numba keeps compiled on disk is made anew when this file changes, not when another
does that it calls.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Bytes = NDArray[np.int8]

PROVEN, SPENT, NOTHING, TIED = 0, 1, 2, 3
"""How a search ends: the best is known; the budget was spent; nothing fits; two selections share the first place."""

DEPTH = 256  # levels of the tree that are kept; deeper ones count as a spent budget
_OUTSIDE = 1e-9  # how far a basic variable may be outside its bounds; the coefficients of a row are at most 1
_PIVOT = 1e-9
_EPS = 2.220446049250313e-16
_EQUAL_RATIO = 1e-12
_WHOLE = 1e-7  # values of the relaxation this close to a whole number need no branching
_SHAKE = 1e-9  # a second d, a little off, chooses pivots: equal ratios would let the simplex method go in circles
_OPTIMAL, _BELOW, _INFEASIBLE, _STUCK = 0, 1, 2, 3
_FREE = 2  # fate of an item that is neither taken (1) nor left (0)
_NEAR, _GROWTH = 20, 1.7  # the first guess of the relaxation's gap, by reduced costs, and how it grows


_COLUMN, _UPPER, _FATE = 0, 1, 2
_X, _LEAST, _MOST, _LO, _HI, _ROOM, _BASE = 0, 1, 2, 3, 4, 5, 6

_inner = partial(njit, nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)


class Program(NamedTuple):
    """What never changes during a search: v (n,), A (n, M), b (M,), and differences of values that are rounding.

    The last column of A counts items.
    """

    v: Array
    A: Array
    b: Array
    close: float


class Node(NamedTuple):
    """A dictionary and what is decided; variables are numbered, items first, then the rows' y.

    Attributes:
        T: (M + 2, n) coefficients of the nonbasic variables, then d, then the d that chooses pivots. The first
            ``size[0]`` columns are in use.
        item: (3, n) _COLUMN: the variable of each column; _UPPER: 1 where it sits at its upper bound; _FATE: of each
            item, 0, 1 or _FREE.
        row: (7, M) _X, _LEAST, _MOST: values and bounds of the basic variables; _LO, _HI: bounds of y; _ROOM: b less
            what the items taken for good need; _BASE: first, what these items earn.
        basic: (M,) basic variables.
        size: (1,) columns in use.
    """

    T: Array
    item: Ints
    row: Array
    basic: Ints
    size: Ints


class Tree(NamedTuple):
    """One node for each level, what its bound was (DEPTH,), and place and direction of the branch left (DEPTH, 2)."""

    T: Array
    item: Ints
    row: Array
    basic: Ints
    size: Ints
    bound: Array
    branch: Ints


class Work(NamedTuple):
    """Space to compute in: ratios and their columns (n,), a selection (n,), multipliers (M,)."""

    ratio: Array
    order: Ints
    z: Bytes
    u: Array


# --- memory ---------------------------------------------------------------------------------------------------------


@_inner()
def _new_tree(n: int, M: int) -> Tree:
    return Tree(
        np.empty((DEPTH, M + 2, n)),
        np.empty((DEPTH, 3, n), np.int64),
        np.empty((DEPTH, 7, M)),
        np.empty((DEPTH, M), np.int64),
        np.empty((DEPTH, 1), np.int64),
        np.empty(DEPTH),
        np.empty((DEPTH, 2), np.int64),
    )


@_inner()
def _level(tree: Tree, depth: int) -> Node:
    return Node(tree.T[depth], tree.item[depth], tree.row[depth], tree.basic[depth], tree.size[depth])


@_inner()
def _copy(node: Node, to: Node) -> None:
    k = to.size[0] = node.size[0]
    for i in range(node.T.shape[0]):
        for j in range(k):
            to.T[i, j] = node.T[i, j]
    for j in range(k):
        to.item[_COLUMN, j] = node.item[_COLUMN, j]
        to.item[_UPPER, j] = node.item[_UPPER, j]
    for j in range(node.item.shape[1]):
        to.item[_FATE, j] = node.item[_FATE, j]
    for i in range(node.row.shape[1]):
        to.basic[i] = node.basic[i]
        for k in range(7):
            to.row[k, i] = node.row[k, i]


@_inner()
def _reset(program: Program, node: Node) -> None:
    """Every item nonbasic at the bound its value asks for, every y basic."""
    n, M = program.A.shape
    node.size[0] = n
    node.row[_BASE, 0] = 0.0
    for i in range(M):
        node.basic[i] = n + i
        node.row[_X, i] = node.row[_ROOM, i] = program.b[i]
        node.row[_LEAST, i] = node.row[_LO, i] = 0.0
        node.row[_MOST, i] = node.row[_HI, i] = np.inf if i < M - 1 else float(n)
    for j in range(n):
        node.item[_COLUMN, j] = j
        node.item[_FATE, j] = _FREE
        node.T[M, j] = program.v[j]
        node.T[M + 1, j] = program.v[j] + _SHAKE * ((j * 0.6180339887498949) % 1.0 - 0.5)
        node.item[_UPPER, j] = 1 if node.T[M + 1, j] > 0 else 0
        for i in range(M):
            node.T[i, j] = program.A[j, i]
            if node.item[_UPPER, j] == 1:
                node.row[_X, i] -= program.A[j, i]


# --- the dual simplex method ------------------------------------------------------------------------------------------


@_inner()
def _leaving(node: Node) -> int:
    """The row of the basic variable farthest outside its bounds, or −1."""
    worst, row = _OUTSIDE, -1
    for i in range(node.row.shape[1]):
        outside = max(node.row[_LEAST, i] - node.row[_X, i], node.row[_X, i] - node.row[_MOST, i])
        if outside > worst:
            worst, row = outside, i
    return row


@_inner()
def _span(node: Node, j: int) -> float:
    """The width of column ``j``'s bounds."""
    y = node.item[_COLUMN, j] - node.item.shape[1]
    return 1.0 if y < 0 else node.row[_HI, y] - node.row[_LO, y]


@_inner()
def _flip(node: Node, j: int) -> None:
    """Move column ``j`` to its other bound."""
    move = _span(node, j) if node.item[_UPPER, j] == 0 else -_span(node, j)
    node.item[_UPPER, j] = 1 - node.item[_UPPER, j]
    for i in range(node.row.shape[1]):
        node.row[_X, i] -= node.T[i, j] * move


@_inner(error_model="numpy")
def _candidates(node: Node, p: int, rising: bool, work: Work) -> int:
    """Write what each column that can move row ``p``'s variable costs for one unit to ``work``; how many there are."""
    M, found = node.row.shape[1], 0
    for j in range(node.size[0]):
        a = node.T[p, j] if rising else -node.T[p, j]
        if (a > _PIVOT and node.item[_UPPER, j] == 1) or (a < -_PIVOT and node.item[_UPPER, j] == 0):
            work.order[found] = j
            work.ratio[found] = abs(node.T[M + 1, j] / a)
            found += 1
    return found


@_inner()
def _cheapest(node: Node, p: int, found: int, work: Work) -> int:
    """The position of the least ratio; among equal ones, of the largest pivot."""
    best = 0
    for k in range(1, found):
        if work.ratio[k] < work.ratio[best]:
            best = k
    limit = work.ratio[best] + _EQUAL_RATIO
    for k in range(found):
        if work.ratio[k] <= limit and abs(node.T[p, work.order[k]]) > abs(node.T[p, work.order[best]]):
            best = k
    return best


@_inner()
def _entering(node: Node, p: int, work: Work) -> int:
    """The column that takes the place of row ``p``, after moving those passed on the way to their other bound; or −1.

    Along the dual ray the bound falls at the rate of what is left outside; each column that is passed reduces it.
    """
    rising = node.row[_X, p] < node.row[_LEAST, p]
    outside = node.row[_LEAST, p] - node.row[_X, p] if rising else node.row[_X, p] - node.row[_MOST, p]
    found = _candidates(node, p, rising, work)
    while found > 0:
        best = _cheapest(node, p, found, work)
        j = work.order[best]
        outside -= abs(node.T[p, j]) * _span(node, j)
        if outside <= _OUTSIDE:
            return j
        _flip(node, j)
        found -= 1
        work.order[best] = work.order[found]
        work.ratio[best] = work.ratio[found]
    return -1


@_inner(error_model="numpy")
def _pivot(node: Node, p: int, q: int) -> None:
    """Exchange the basic variable of row ``p``, which goes to the bound it violates, with column ``q``."""
    n, M, k, T = node.item.shape[1], node.row.shape[1], node.size[0], node.T
    below = node.row[_X, p] < node.row[_LEAST, p]
    move = (node.row[_X, p] - (node.row[_LEAST, p] if below else node.row[_MOST, p])) / T[p, q]
    y = node.item[_COLUMN, q] - n
    at = float(node.item[_UPPER, q]) if y < 0 else (node.row[_HI, y] if node.item[_UPPER, q] == 1 else node.row[_LO, y])
    for i in range(M):
        node.row[_X, i] -= T[i, q] * move
    node.row[_X, p] = at + move
    inverse = 1.0 / T[p, q]
    for j in range(k):
        T[p, j] *= inverse
    for i in range(M + 2):
        factor = T[i, q]
        if i != p and factor != 0.0:
            for j in range(k):
                T[i, j] -= factor * T[p, j]
            T[i, q] = -factor * inverse
    T[p, q] = inverse
    _exchange(node, p, q, below)


@_inner()
def _exchange(node: Node, p: int, q: int, below: bool) -> None:
    """The names and bounds that a pivot exchanges; an item that is decided leaves for good."""
    n = node.item.shape[1]
    leaving, entering = node.basic[p], node.item[_COLUMN, q]
    node.basic[p] = entering
    node.row[_LEAST, p] = 0.0 if entering < n else node.row[_LO, entering - n]
    node.row[_MOST, p] = 1.0 if entering < n else node.row[_HI, entering - n]
    node.item[_COLUMN, q] = leaving
    node.item[_UPPER, q] = 0 if below else 1
    if leaving < n and node.item[_FATE, leaving] != _FREE:
        _drop(node, q)


@_inner()
def _drop(node: Node, j: int) -> None:
    """Take column ``j``, of an item that is decided, out of the dictionary."""
    last = node.size[0] - 1
    node.size[0] = last
    node.item[_COLUMN, j] = node.item[_COLUMN, last]
    node.item[_UPPER, j] = node.item[_UPPER, last]
    for i in range(node.T.shape[0]):
        node.T[i, j] = node.T[i, last]


@_inner()
def _objective(program: Program, node: Node) -> float:
    """The value of the point that the dictionary stands for, feasible or not: a bound, to rounding."""
    n, total = node.item.shape[1], node.row[_BASE, 0]
    for j in range(node.size[0]):
        if node.item[_COLUMN, j] < n and node.item[_UPPER, j] == 1:
            total += program.v[node.item[_COLUMN, j]]
    for i in range(node.row.shape[1]):
        item = node.basic[i]
        if item < n:
            booked = 0 if node.item[_FATE, item] == _FREE else node.item[_FATE, item]
            total += program.v[item] * (node.row[_X, i] - booked)
    return total


@_inner()
def _reoptimise(program: Program, node: Node, least: float, work: Work) -> tuple[int, int]:
    """Pivot until the relaxation is solved, its bound is below ``least``, or a row shows that nothing fits: which?"""
    for _ in range(100 + 10 * node.row.shape[1]):
        if _objective(program, node) < least:
            return _BELOW, -1
        p = _leaving(node)
        if p < 0:
            return _OPTIMAL, -1
        q = _entering(node, p, work)
        if q < 0:
            return _INFEASIBLE, p
        _pivot(node, p, q)
    return _STUCK, -1


# --- bounds -----------------------------------------------------------------------------------------------------------


@_inner()
def _multipliers(node: Node, u: Array) -> None:
    """Write the rows' multipliers to ``u`` (M,); where y has no upper bound they must not be negative."""
    n, M = node.item.shape[1], node.row.shape[1]
    for i in range(M):
        u[i] = 0.0
    for j in range(node.size[0]):
        if node.item[_COLUMN, j] >= n:
            u[node.item[_COLUMN, j] - n] = -node.T[M, j]
    for i in range(M - 1):
        u[i] = max(u[i], 0.0)


@_inner()
def _along_ray(node: Node, p: int, length: float, u: Array) -> None:
    """Move ``u`` along the dual ray by which row ``p`` shows that nothing fits."""
    n, M = node.item.shape[1], node.row.shape[1]
    step = length if node.row[_X, p] < node.row[_LEAST, p] else -length
    if node.basic[p] >= n:
        u[node.basic[p] - n] += step
    for j in range(node.size[0]):
        if node.item[_COLUMN, j] >= n:
            u[node.item[_COLUMN, j] - n] += step * node.T[p, j]
    for i in range(M - 1):
        u[i] = max(u[i], 0.0)


@_inner(fastmath={"reassoc", "contract"})
def _reduced(program: Program, u: Array, item: int) -> float:
    """What ``item`` earns beyond what it takes."""
    r = program.v[item]
    for i in range(u.shape[0]):
        r -= u[i] * program.A[item, i]
    return r


@_inner()
def _bound(program: Program, node: Node, u: Array) -> float:
    """The most that the items decided upon and any choice of the others earn, by the multipliers ``u``."""
    n, M = program.A.shape
    total, size = node.row[_BASE, 0], 0.0
    for i in range(M):
        total += u[i] * node.row[_ROOM, i] - u[i] * (node.row[_LO, i] if u[i] >= 0 else node.row[_HI, i])
        size += abs(u[i]) * (abs(node.row[_ROOM, i]) + node.size[0])
    for j in range(node.size[0]):
        if node.item[_COLUMN, j] < n:
            total += max(_reduced(program, u, node.item[_COLUMN, j]), 0.0)
    for i in range(M):
        if node.basic[i] < n and node.item[_FATE, node.basic[i]] == _FREE:
            total += max(_reduced(program, u, node.basic[i]), 0.0)
    rounding = _EPS * size  # more than ``close`` allows for where multipliers are large
    return total + rounding if rounding > 0.25 * program.close else total


@_inner()
def _visit(program: Program, node: Node, least: float, work: Work) -> tuple[bool, float]:
    """Solve the relaxation of a node as far as needed: whether it is solved, and a verified bound."""
    state, p = _reoptimise(program, node, least, work)
    _multipliers(node, work.u)
    reach = _bound(program, node, work.u)
    if state == _BELOW and reach >= least:
        state, p = _reoptimise(program, node, -np.inf, work)
        _multipliers(node, work.u)
        reach = _bound(program, node, work.u)
    length = 1.0
    while state == _INFEASIBLE and reach >= least and length < 1e15:
        _along_ray(node, p, length, work.u)
        reach = _bound(program, node, work.u)
        length *= 2
    return state == _OPTIMAL, reach


# --- branch and bound -------------------------------------------------------------------------------------------------


@_inner()
def _decide(program: Program, node: Node, item: int, fate: int) -> None:
    """Book ``item`` as taken (1) or left (0); its column or row is the caller's business."""
    node.item[_FATE, item] = fate
    if fate == 1:
        node.row[_BASE, 0] += program.v[item]
        for i in range(node.row.shape[1]):
            node.row[_ROOM, i] -= program.A[item, i]


@_inner()
def _decide_clear(program: Program, node: Node, spare: float, u: Array) -> None:
    """Decide the items whose other value would cost more than ``spare``."""
    n, j = node.item.shape[1], 0
    while j < node.size[0]:
        item = node.item[_COLUMN, j]
        if item < n:
            r = _reduced(program, u, item)
            if (r > spare and node.item[_UPPER, j] == 1) or (-r > spare and node.item[_UPPER, j] == 0):
                _decide(program, node, item, node.item[_UPPER, j])
                _drop(node, j)
                continue
        j += 1


@_inner()
def _rate(node: Node, p: int, rising: bool, work: Work) -> float:
    """What one unit of row ``p``'s variable, up or down, costs at first."""
    best = np.inf
    for k in range(_candidates(node, p, rising, work)):
        best = min(best, work.ratio[k])
    return best


@_inner()
def _choose(node: Node, solved: bool, gap: float, work: Work) -> tuple[int, bool]:
    """Where to branch and whether to go up first: a row, or M and a column; −1 where every item is decided."""
    n, M = node.item.shape[1], node.row.shape[1]
    place, up, best = -1, False, -1.0
    for p in range(M):
        variable = node.basic[p]
        free = node.item[_FATE, variable] == _FREE if variable < n else variable == n + M - 1
        share = node.row[_X, p] - np.floor(node.row[_X, p])
        if not solved or not free or share < _WHOLE or share > 1 - _WHOLE:
            continue
        fall, rise = share * _rate(node, p, False, work), (1 - share) * _rate(node, p, True, work)
        score = (min(fall, gap) + 1e-6 * gap) * (min(rise, gap) + 1e-6 * gap)
        if score > best:
            place, up, best = p, rise < fall, score
    return (place, up) if place >= 0 else _any_free(node)


@_inner()
def _any_free(node: Node) -> tuple[int, bool]:
    """A place to branch where the relaxation shows none: it is whole but does not fit to rounding, or is not solved."""
    n, M = node.item.shape[1], node.row.shape[1]
    for j in range(node.size[0]):
        if node.item[_COLUMN, j] < n:
            return M + j, node.item[_UPPER, j] == 1
    for p in range(M):
        if node.basic[p] < n and node.item[_FATE, node.basic[p]] == _FREE:
            return p, node.row[_X, p] > 0.5
    return -1, False


@_inner()
def _restrict(program: Program, node: Node, place: int, up: bool) -> None:
    """Take one side of the branch at ``place``."""
    n, M = node.item.shape[1], node.row.shape[1]
    if place >= M:
        j = place - M
        if (node.item[_UPPER, j] == 1) != up:
            _flip(node, j)
        _decide(program, node, node.item[_COLUMN, j], node.item[_UPPER, j])
        _drop(node, j)
        return
    variable = node.basic[place]
    if variable < n:
        _decide(program, node, variable, 1 if up else 0)
        node.row[_LEAST, place] = node.row[_MOST, place] = 1.0 if up else 0.0
    elif up:
        node.row[_LEAST, place] = node.row[_LO, variable - n] = np.ceil(node.row[_X, place])
    else:
        node.row[_MOST, place] = node.row[_HI, variable - n] = np.floor(node.row[_X, place])


@_inner()
def _after_rounding(program: Program, node: Node, reach: float) -> float:
    """About what the selection below the relaxation earns, given what the relaxation does."""
    n = node.item.shape[1]
    for i in range(node.row.shape[1]):
        if node.basic[i] < n and node.item[_FATE, node.basic[i]] == _FREE and node.row[_X, i] <= 1 - _WHOLE:
            reach -= node.row[_X, i] * program.v[node.basic[i]]
    return reach + _WHOLE


@_inner()
def _round_down(node: Node, z: Bytes) -> None:
    """Write the whole part of the relaxation's solution to ``z``."""
    n = node.item.shape[1]
    for j in range(n):
        z[j] = node.item[_FATE, j] if node.item[_FATE, j] != _FREE else 0
    for j in range(node.size[0]):
        if node.item[_COLUMN, j] < n:
            z[node.item[_COLUMN, j]] = node.item[_UPPER, j]
    for i in range(node.row.shape[1]):
        if node.basic[i] < n and node.item[_FATE, node.basic[i]] == _FREE:
            z[node.basic[i]] = 1 if node.row[_X, i] > 1 - _WHOLE else 0


@_inner()
def _worth(program: Program, z: Bytes) -> float:
    """v·z where ``z`` fits, −inf elsewhere."""
    n, M = program.A.shape
    value = 0.0
    for i in range(M - 1):
        room = program.b[i]
        for j in range(n):
            room -= program.A[j, i] * z[j]
        if room < 0:
            return -np.inf
    for j in range(n):
        value += program.v[j] * z[j]
    return value


@_inner()
def _same(a: Bytes, b: Bytes) -> bool:
    for j in range(a.shape[0]):  # noqa: SIM110 (numba knows no all())
        if a[j] != b[j]:
            return False
    return True


@_inner()
def _kth_least(x: Array, k: int) -> float:
    """The (k + 1)-th smallest number of ``x``, which is reordered."""
    for i in range(k + 1):
        least = i
        for j in range(i + 1, x.shape[0]):
            if x[j] < x[least]:
                least = j
        x[i], x[least] = x[least], x[i]
    return x[k]


@_inner()
def _first_guess(program: Program, work: Work) -> float:
    """How much of the relaxation's value the best selection may lose: what flipping one of the nearest items costs."""
    n = program.v.shape[0]
    mean = 0.0
    for j in range(n):
        work.ratio[j] = abs(_reduced(program, work.u, j))
        mean += work.ratio[j] / n
    return max(_kth_least(work.ratio, min(_NEAR, n - 1)), 1e-4 * mean, 1e-9)


@_inner()
def _offer(program: Program, z: Bytes, low: float, step: float, best: Bytes) -> tuple[float, bool]:
    """Take ``z`` for the best where it is; what the best earns then, and whether ``z`` is as good but another."""
    value = _worth(program, z)
    if step < 0 and abs(value - low) <= -step:
        return low, not _same(z, best)
    if value > low:
        for j in range(z.shape[0]):
            best[j] = z[j]
        return value, False
    return low, False


@_inner()
def _explore(
    program: Program, tree: Tree, work: Work, cut: float, low: float, step: float, best: Bytes, budget: int
) -> tuple[int, float, int]:
    """Look at every selection that earns at least ``cut`` and ``low + step``, ``low`` being what ``best`` earns.

    With a negative step, which keeps selections as good as the best, a second one of these ends the search. Level 0 is
    the root, solved already; it stays as it is.

    Returns:
        PROVEN, SPENT or TIED, what ``best`` earns now, and what is left of the budget.
    """
    depth = 1
    _copy(_level(tree, 0), _level(tree, 1))
    while budget > 0:
        budget -= 1
        node = _level(tree, depth)
        solved, reach = _visit(program, node, max(cut, low + step), work)
        place, up = -1, False
        if reach >= max(cut, low + step):
            spare = reach - max(cut, low + step)
            _decide_clear(program, node, spare, work.u)
            place, up = _choose(node, solved, spare, work)
            if place < 0 or (solved and _after_rounding(program, node, reach) > low + min(step, 0.0)):
                _round_down(node, work.z)
                low, tied = _offer(program, work.z, low, step, best)
                if tied:
                    return TIED, low, budget
        if place >= 0 and reach >= max(cut, low + step):
            if depth + 1 == DEPTH:
                return SPENT, low, budget
            tree.bound[depth], tree.branch[depth, 0], tree.branch[depth, 1] = reach, place, 0 if up else 1
            depth += 1
            _copy(node, _level(tree, depth))
        else:
            depth -= 1
            while depth > 0 and tree.bound[depth] < max(cut, low + step):
                depth -= 1
            if depth == 0:
                return PROVEN, low, budget
            place, up = tree.branch[depth, 0], tree.branch[depth, 1] == 1
            tree.bound[depth] = -np.inf  # nothing is left here after this
        _restrict(program, _level(tree, depth), place, up)
    return SPENT, low, budget


@njit(cache=True, nogil=True)
def search_all(
    values: Array, A: Array, b: Array, units: Array, close: Array, best: Bytes, known: NDArray[np.bool_], budget: int
) -> Bytes:
    """The best selection for each row of ``values``, written to ``best``.

    The gap to the relaxation is guessed, and the guess grows until there is a selection within it: with a good lower
    limit from the start, far fewer nodes are open.

    Args:
        values: (B, n) between −1 and 1.
        A: (n, M) coefficients of the rows, none above 1 in size; the last column is −1.
        b: (M,) limits; the last is 0.
        units: (B,) of which all values of a sample are multiples; 0 where there is no such number.
        close: (B,) differences that are rounding.
        best: (B, n) selections that fit, where ``known`` says so; overwritten.
        known: (B,).
        budget: nodes per sample.

    Returns:
        (B,) PROVEN, SPENT, NOTHING, or TIED where a selection was known before and it or a better one has an equal.
    """
    n, M = A.shape
    tree = _new_tree(n, M)
    work = Work(np.empty(n), np.empty(n, np.int64), np.empty(n, np.int8), np.empty(M))
    outcome = np.empty(len(values), np.int8)
    floor = -2.0 * n - 1.0  # no selection earns as little
    for s in range(len(values)):
        program = Program(values[s], A, b, close[s])
        low = _worth(program, best[s]) if known[s] else -np.inf
        step = units[s] - close[s] if units[s] > 0 else (-close[s] if known[s] else close[s])
        _reset(program, _level(tree, 0))
        _, reach = _visit(program, _level(tree, 0), floor, work)
        guess, cut, left = _first_guess(program, work), np.inf, budget
        outcome[s] = PROVEN if reach >= floor else NOTHING
        while outcome[s] == PROVEN and low < cut:
            if cut <= max(floor, low + step):
                outcome[s] = PROVEN if low > -np.inf else NOTHING
                break
            target = reach - guess
            if units[s] > 0:
                target = min(np.floor((target + close[s]) / units[s]) * units[s], cut + 2.0 * close[s] - units[s])
            cut = max(target - 2.0 * close[s], floor)
            outcome[s], low, left = _explore(program, tree, work, cut, low, step, best[s], left)
            guess *= _GROWTH
    return outcome
