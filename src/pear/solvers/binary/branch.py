"""Branch and bound for 0-1 programs with few rows, compiled: depth first, from a guess of the best value downwards.

The search may branch on the count of items as on an item: where values are much alike this says more than any single
item does.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from pear.solvers.active_set.compile import guarded
from pear.solvers.binary import dictionary as ix
from pear.solvers.binary.dictionary import (
    Array,
    Bytes,
    Ints,
    Node,
    Program,
    Tree,
    Work,
    copy,
    inner,
    level,
    new_tree,
    reset,
)
from pear.solvers.binary.relaxation import reduced_value, solve_relaxation
from pear.solvers.binary.search import NOTHING, PROVEN, SPENT, TIED
from pear.solvers.binary.simplex import drop, flip, ratios

_WHOLE = 1e-7  # values of the relaxation this close to a whole number need no branching
_NEAR, _GROWTH = 20, 1.7  # the first guess of the relaxation's gap, by reduced costs, and how it grows


@inner()
def _fix(program: Program, node: Node, item: int, value: int) -> None:
    """Fix ``item`` as taken (1) or left (0); its column or row is the caller's business."""
    node.item[ix.FIXED_AT, item] = value
    if value == 1:
        node.row[ix.BASE, 0] += program.v[item]
        for i in range(node.row.shape[1]):
            node.row[ix.ROOM, i] -= program.A[item, i]


@inner()
def _fix_by_reduced_cost(program: Program, node: Node, spare: float, u: Array) -> None:
    """Fix the items whose other value would cost more than ``spare``."""
    n, j = node.item.shape[1], 0
    while j < node.size[0]:
        item = node.item[ix.COLUMN, j]
        if item < n:
            r = reduced_value(program, u, item)
            if (r > spare and node.item[ix.UPPER, j] == 1) or (-r > spare and node.item[ix.UPPER, j] == 0):
                _fix(program, node, item, node.item[ix.UPPER, j])
                drop(node, j)
                continue
        j += 1


@inner()
def _rate(node: Node, p: int, rising: bool, work: Work) -> float:
    """What one unit of row ``p``'s variable, up or down, costs at first."""
    best = np.inf
    for k in range(ratios(node, p, rising, work)):
        best = min(best, work.ratio[k])
    return best


@inner()
def _choose(node: Node, solved: bool, gap: float, work: Work) -> tuple[int, bool]:
    """Where to branch and whether to go up first: a row, or M and a column; −1 where every item is fixed."""
    n, M = node.item.shape[1], node.row.shape[1]
    place, up, best = -1, False, -1.0
    for p in range(M):
        variable = node.basic[p]
        free = node.item[ix.FIXED_AT, variable] == ix.FREE if variable < n else variable == n + M - 1
        share = node.row[ix.X, p] - np.floor(node.row[ix.X, p])
        if not solved or not free or share < _WHOLE or share > 1 - _WHOLE:
            continue
        fall, rise = share * _rate(node, p, False, work), (1 - share) * _rate(node, p, True, work)
        score = (min(fall, gap) + 1e-6 * gap) * (min(rise, gap) + 1e-6 * gap)
        if score > best:
            place, up, best = p, rise < fall, score
    return (place, up) if place >= 0 else _any_free(node)


@inner()
def _any_free(node: Node) -> tuple[int, bool]:
    """A place to branch where the relaxation shows none: it is whole but does not fit to rounding, or is not solved."""
    n, M = node.item.shape[1], node.row.shape[1]
    for j in range(node.size[0]):
        if node.item[ix.COLUMN, j] < n:
            return M + j, node.item[ix.UPPER, j] == 1
    for p in range(M):
        if node.basic[p] < n and node.item[ix.FIXED_AT, node.basic[p]] == ix.FREE:
            return p, node.row[ix.X, p] > 0.5
    return -1, False


@inner()
def _take_branch(program: Program, node: Node, place: int, up: bool) -> None:
    """Take one side of the branch at ``place``."""
    n, M = node.item.shape[1], node.row.shape[1]
    if place >= M:
        j = place - M
        if (node.item[ix.UPPER, j] == 1) != up:
            flip(node, j)
        _fix(program, node, node.item[ix.COLUMN, j], node.item[ix.UPPER, j])
        drop(node, j)
        return
    variable = node.basic[place]
    if variable < n:
        _fix(program, node, variable, 1 if up else 0)
        node.row[ix.LEAST, place] = node.row[ix.MOST, place] = 1.0 if up else 0.0
    elif up:
        node.row[ix.LEAST, place] = node.row[ix.LO, variable - n] = np.ceil(node.row[ix.X, place])
    else:
        node.row[ix.MOST, place] = node.row[ix.HI, variable - n] = np.floor(node.row[ix.X, place])


@inner()
def _after_rounding(program: Program, node: Node, bound: float) -> float:
    """About what the selection below the relaxation earns, given what the relaxation does."""
    n = node.item.shape[1]
    for i in range(node.row.shape[1]):
        if node.basic[i] < n and node.item[ix.FIXED_AT, node.basic[i]] == ix.FREE and node.row[ix.X, i] <= 1 - _WHOLE:
            bound -= node.row[ix.X, i] * program.v[node.basic[i]]
    return bound + _WHOLE


@inner()
def _round_down(node: Node, z: Bytes) -> None:
    """Write the whole part of the relaxation's solution to ``z``."""
    n = node.item.shape[1]
    for j in range(n):
        z[j] = node.item[ix.FIXED_AT, j] if node.item[ix.FIXED_AT, j] != ix.FREE else 0
    for j in range(node.size[0]):
        if node.item[ix.COLUMN, j] < n:
            z[node.item[ix.COLUMN, j]] = node.item[ix.UPPER, j]
    for i in range(node.row.shape[1]):
        if node.basic[i] < n and node.item[ix.FIXED_AT, node.basic[i]] == ix.FREE:
            z[node.basic[i]] = 1 if node.row[ix.X, i] > 1 - _WHOLE else 0


@inner()
def _worth(program: Program, z: Bytes) -> float:
    """v·z where ``z`` fits, −inf elsewhere."""
    n, M = program.A.shape
    value = 0.0
    for i in range(M - 1):
        room = program.b[i]
        for j in range(n):
            room -= program.A[j, i] * z[j]
        if room < 0 or room > program.width[i]:
            return -np.inf
    for j in range(n):
        value += program.v[j] * z[j]
    return value


@inner()
def _first_guess(program: Program, work: Work) -> float:
    """How much of the relaxation's value the best selection may lose: what flipping one of the nearest items costs."""
    n = program.v.shape[0]
    mean = 0.0
    for j in range(n):
        work.ratio[j] = abs(reduced_value(program, work.u, j))
        mean += work.ratio[j] / n
    near = min(_NEAR, n - 1)
    return max(np.partition(work.ratio, near)[near], 1e-4 * mean, 1e-9)


@inner()
def _accept(program: Program, z: Bytes, low: float, step: float, best: Bytes) -> tuple[float, bool]:
    """Take ``z`` for the best where it is; what the best earns then, and whether ``z`` is as good but another."""
    value = _worth(program, z)
    if step < 0 and abs(value - low) <= -step:
        return low, not np.array_equal(z, best)
    if value > low:
        for j in range(z.shape[0]):
            best[j] = z[j]
        return value, False
    return low, False


@inner()
def _explore(
    program: Program, tree: Tree, work: Work, cut: float, low: float, step: float, best: Bytes, left: int, budget: Ints
) -> tuple[int, float, int]:
    """Look at every selection that earns at least ``cut`` and ``low + step``, ``low`` being what ``best`` earns.

    With a negative step, which keeps selections as good as the best, a second one of these ends the search. Level 0 is
    the root, solved already; it stays as it is. ``left`` nodes may be looked at, and none once ``budget`` is 0.

    Returns:
        PROVEN, SPENT or TIED, what ``best`` earns now, and how many nodes are left.
    """
    depth = 1
    copy(level(tree, 0), level(tree, 1))
    while left > 0 and budget[0] > 0:
        left -= 1
        node = level(tree, depth)
        solved, bound = solve_relaxation(program, node, max(cut, low + step), work)
        place, up = -1, False
        if bound >= max(cut, low + step):
            spare = bound - max(cut, low + step)
            _fix_by_reduced_cost(program, node, spare, work.u)
            place, up = _choose(node, solved, spare, work)
            if place < 0 or (solved and _after_rounding(program, node, bound) > low + min(step, 0.0)):
                _round_down(node, work.z)
                low, tied = _accept(program, work.z, low, step, best)
                if tied:
                    return TIED, low, left
        if place >= 0 and bound >= max(cut, low + step):
            if depth + 1 == ix.DEPTH:
                return SPENT, low, left
            tree.bound[depth], tree.branch[depth, 0], tree.branch[depth, 1] = bound, place, 0 if up else 1
            depth += 1
            copy(node, level(tree, depth))
        else:
            depth -= 1
            while depth > 0 and tree.bound[depth] < max(cut, low + step):
                depth -= 1
            if depth == 0:
                return PROVEN, low, left
            place, up = tree.branch[depth, 0], tree.branch[depth, 1] == 1
            tree.bound[depth] = -np.inf  # nothing is left here after this
        _take_branch(program, level(tree, depth), place, up)
    return SPENT, low, left


@guarded
@njit(nogil=True)
def search_all(
    values: Array,
    A: Array,
    b: Array,
    width: Array,
    units: Array,
    close: Array,
    best: Bytes,
    has_start: NDArray[np.bool_],
    most: Array,
    budget: Ints,
) -> Bytes:
    """The best selection for each row of ``values``, written to ``best``.

    The gap to the relaxation is guessed, and the guess grows until there is a selection within it: with a good lower
    limit from the start, far fewer nodes are open.

    Args:
        values: (B, n) between −1 and 1.
        A: (n, M) coefficients of the rows, none above 1 in size; the last column is −1.
        b: (M,) limits; the last is 0.
        width: (M,) how far below its limit a row may be; the last is n.
        units: (B,) of which all values of a sample are multiples; 0 where there is no such number.
        close: (B,) differences that are rounding.
        best: (B, n) selections that fit, where ``has_start`` says so; overwritten.
        has_start: (B,).
        most: (B,) overwritten by what no selection earns more than, where the outcome is PROVEN.
        budget: (1,) nodes per sample; another thread ends the search by setting it to 0.

    Returns:
        (B,) PROVEN, SPENT, NOTHING, or TIED where there was a start and it or a better one has an equal.
    """
    n, M = A.shape
    tree = new_tree(n, M)
    work = Work(np.empty(n), np.empty(n, np.int64), np.empty(n, np.int8), np.empty(M))
    outcome = np.empty(len(values), np.int8)
    floor = -2.0 * n - 1.0  # no selection earns as little
    for s in range(len(values)):
        program = Program(values[s], A, b, width, close[s])
        low = _worth(program, best[s]) if has_start[s] else -np.inf
        step = units[s] - close[s] if units[s] > 0 else (-close[s] if has_start[s] else close[s])
        reset(program, level(tree, 0))
        _, bound = solve_relaxation(program, level(tree, 0), floor, work)
        guess, cut, left = _first_guess(program, work), np.inf, budget[0]
        outcome[s] = PROVEN if bound >= floor else NOTHING
        while outcome[s] == PROVEN and low < cut:
            if cut <= max(floor, low + step):
                outcome[s] = PROVEN if low > -np.inf else NOTHING
                break
            target = bound - guess
            if units[s] > 0:
                target = min(np.floor((target + close[s]) / units[s]) * units[s], cut + 2.0 * close[s] - units[s])
            cut = max(target - 2.0 * close[s], floor)
            outcome[s], low, left = _explore(program, tree, work, cut, low, step, best[s], left, budget)
            guess *= _GROWTH
        # Nothing earns low + step or more. Where values are multiples of a unit, nothing lies between low and that.
        most[s] = low if units[s] > 0 else low + max(step, 0.0)
    return outcome
