"""The dual simplex method on a dictionary, with bound flips, compiled."""

from __future__ import annotations

from pear.compile.jit import span
from pear.solvers.binary.simplex_dictionary import FREE, Array, Node, Program, SearchWorkspace, inner

AT_OPTIMUM, BELOW, INFEASIBLE, STUCK = 0, 1, 2, 3
"""How pivoting ends: solved; the bound is too low to matter; a row shows that nothing fits; too many pivots."""

_OUTSIDE = 1e-9  # how far a basic variable may be outside its bounds; the coefficients of a row are at most 1
_PIVOT = 1e-9
_EQUAL_RATIO = 1e-12


@inner
def _leaving_row(node: Node) -> int:
    """The row of the basic variable farthest outside its bounds, or −1."""
    worst, row = _OUTSIDE, -1
    for i in span(node.M):
        outside = max(node.least[i] - node.x[i], node.x[i] - node.most[i])
        if outside > worst:
            worst, row = outside, i
    return row


@inner
def _width(node: Node, j: int) -> float:
    """The width of column ``j``'s bounds."""
    y = node.column[j] - node.n
    return 1.0 if y < 0 else node.hi[y] - node.lo[y]


@inner
def flip_bound(node: Node, j: int) -> None:
    """Move column ``j`` to its other bound."""
    move = _width(node, j) if node.upper[j] == 0 else -_width(node, j)
    node.upper[j] = 1 - node.upper[j]
    for i in span(node.M):
        node.x[i] -= node.T[i, j] * move


@inner
def compute_ratios(node: Node, p: int, sign: float, work: SearchWorkspace) -> int:
    """Write the ratio of each column that can move row ``p``'s variable to ``work``; how many there are.

    Args:
        node, p: of which dictionary, and of which row.
        sign: 1.0 where the variable rises, −1.0 where it falls: of a bool that is a constant numba would make a type,
            and compile this once for each.
        work: written to.
    """
    M, found = node.M, 0
    for j in span(node.size[0]):
        a = sign * node.T[p, j]
        if (a > _PIVOT and node.upper[j] == 1) or (a < -_PIVOT and node.upper[j] == 0):
            work.order[found] = j
            work.ratio[found] = abs(node.T[M + 1, j] / a)
            found += 1
    return found


@inner
def _least_ratio(node: Node, p: int, found: int, work: SearchWorkspace) -> int:
    """The position of the least ratio; among equal ones, of the largest pivot."""
    best = 0
    for k in span(1, found):
        if work.ratio[k] < work.ratio[best]:
            best = k
    limit = work.ratio[best] + _EQUAL_RATIO
    for k in span(found):
        if work.ratio[k] <= limit and abs(node.T[p, work.order[k]]) > abs(node.T[p, work.order[best]]):
            best = k
    return best


@inner
def _entering_column(node: Node, p: int, work: SearchWorkspace) -> int:
    """Bound-flipping ratio test: the column that enters in row ``p``, after flipping those passed on the way; or −1.

    Along the dual ray the bound falls at the rate of what is left outside; each column that is passed reduces it.
    """
    rising = node.x[p] < node.least[p]
    outside = node.least[p] - node.x[p] if rising else node.x[p] - node.most[p]
    found = compute_ratios(node, p, 1.0 if rising else -1.0, work)
    while found > 0:
        best = _least_ratio(node, p, found, work)
        j = work.order[best]
        outside -= abs(node.T[p, j]) * _width(node, j)
        if outside <= _OUTSIDE:
            return j
        flip_bound(node, j)
        found -= 1
        work.order[best] = work.order[found]
        work.ratio[best] = work.ratio[found]
    return -1


@inner
def _pivot(node: Node, p: int, q: int) -> None:
    """Exchange the basic variable of row ``p``, which goes to the bound it violates, with column ``q``."""
    n, M, k, T = node.n, node.M, node.size[0], node.T
    below = node.x[p] < node.least[p]
    move = (node.x[p] - (node.least[p] if below else node.most[p])) / T[p, q]
    y, upper = node.column[q] - n, node.upper[q]
    at = (1.0 if upper == 1 else 0.0) if y < 0 else (node.hi[y] if upper == 1 else node.lo[y])
    for i in span(M):
        node.x[i] -= T[i, q] * move
    node.x[p] = at + move
    inverse = 1.0 / T[p, q]
    row = T[p]
    for j in span(k):
        row[j] *= inverse
    for i in span(M + 2):
        factor = T[i, q]
        if i != p and factor != 0.0:
            _subtract(factor, row, T[i], k)
            T[i, q] = -factor * inverse
    T[p, q] = inverse
    _exchange(node, p, q, below)


@inner
def _subtract(factor: float, row: Array, other: Array, k: int) -> None:
    """Subtract a multiple of the first ``k`` numbers of ``row`` from those of ``other``."""
    for j in span(k):
        other[j] -= factor * row[j]


@inner
def _exchange(node: Node, p: int, q: int, below: bool) -> None:
    """The names and bounds that a pivot exchanges; an item that is fixed leaves for good."""
    n = node.n
    leaving, entering = node.basic[p], node.column[q]
    node.basic[p] = entering
    node.least[p] = 0.0 if entering < n else node.lo[entering - n]
    node.most[p] = 1.0 if entering < n else node.hi[entering - n]
    node.column[q] = leaving
    node.upper[q] = 0 if below else 1
    if leaving < n and node.fixed_at[leaving] != FREE:
        drop_column(node, q)


@inner
def drop_column(node: Node, j: int) -> None:
    """Take column ``j``, of an item that is fixed, out of the dictionary."""
    last = node.size[0] - 1
    node.size[0] = last
    node.column[j] = node.column[last]
    node.upper[j] = node.upper[last]
    for i in span(node.M + 2):
        node.T[i, j] = node.T[i, last]


@inner
def _objective(program: Program, node: Node) -> float:
    """The value of the point that the dictionary stands for, feasible or not: a bound, to rounding."""
    n, total = node.n, node.base[0]
    for j in span(node.size[0]):
        if node.column[j] < n and node.upper[j] == 1:
            total += program.v[node.column[j]]
    for i in span(node.M):
        item = node.basic[i]
        if item < n:
            fixed = 0 if node.fixed_at[item] == FREE else node.fixed_at[item]
            total += program.v[item] * (node.x[i] - fixed)
    return total


@inner
def reoptimise(program: Program, node: Node, least: float, work: SearchWorkspace) -> tuple[int, int]:
    """Pivot until the relaxation is solved, its bound is below ``least``, or a row shows that nothing fits: which?"""
    for _ in span(100 + 10 * node.M):
        if _objective(program, node) < least:
            return BELOW, -1
        p = _leaving_row(node)
        if p < 0:
            return AT_OPTIMUM, -1
        q = _entering_column(node, p, work)
        if q < 0:
            return INFEASIBLE, p
        _pivot(node, p, q)
    return STUCK, -1
