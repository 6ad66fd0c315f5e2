"""The dual simplex method on a dictionary, with bound flips, compiled."""

from __future__ import annotations

from pear.solvers.binary import dictionary as ix
from pear.solvers.binary.dictionary import Node, Program, Work, inner

AT_OPTIMUM, BELOW, INFEASIBLE, STUCK = 0, 1, 2, 3
"""How pivoting ends: solved; the bound is too low to matter; a row shows that nothing fits; too many pivots."""

_OUTSIDE = 1e-9  # how far a basic variable may be outside its bounds; the coefficients of a row are at most 1
_PIVOT = 1e-9
_EQUAL_RATIO = 1e-12


@inner()
def _leaving(node: Node) -> int:
    """The row of the basic variable farthest outside its bounds, or −1."""
    worst, row = _OUTSIDE, -1
    for i in range(node.row.shape[1]):
        outside = max(node.row[ix.LEAST, i] - node.row[ix.X, i], node.row[ix.X, i] - node.row[ix.MOST, i])
        if outside > worst:
            worst, row = outside, i
    return row


@inner()
def _span(node: Node, j: int) -> float:
    """The width of column ``j``'s bounds."""
    y = node.item[ix.COLUMN, j] - node.item.shape[1]
    return 1.0 if y < 0 else node.row[ix.HI, y] - node.row[ix.LO, y]


@inner()
def flip(node: Node, j: int) -> None:
    """Move column ``j`` to its other bound."""
    move = _span(node, j) if node.item[ix.UPPER, j] == 0 else -_span(node, j)
    node.item[ix.UPPER, j] = 1 - node.item[ix.UPPER, j]
    for i in range(node.row.shape[1]):
        node.row[ix.X, i] -= node.T[i, j] * move


@inner(error_model="numpy")
def ratios(node: Node, p: int, rising: bool, work: Work) -> int:
    """Write the ratio of each column that can move row ``p``'s variable to ``work``; how many there are."""
    M, found = node.row.shape[1], 0
    for j in range(node.size[0]):
        a = node.T[p, j] if rising else -node.T[p, j]
        if (a > _PIVOT and node.item[ix.UPPER, j] == 1) or (a < -_PIVOT and node.item[ix.UPPER, j] == 0):
            work.order[found] = j
            work.ratio[found] = abs(node.T[M + 1, j] / a)
            found += 1
    return found


@inner()
def _least_ratio(node: Node, p: int, found: int, work: Work) -> int:
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


@inner()
def _entering(node: Node, p: int, work: Work) -> int:
    """Bound-flipping ratio test: the column that enters in row ``p``, after flipping those passed on the way; or −1.

    Along the dual ray the bound falls at the rate of what is left outside; each column that is passed reduces it.
    """
    rising = node.row[ix.X, p] < node.row[ix.LEAST, p]
    outside = node.row[ix.LEAST, p] - node.row[ix.X, p] if rising else node.row[ix.X, p] - node.row[ix.MOST, p]
    found = ratios(node, p, rising, work)
    while found > 0:
        best = _least_ratio(node, p, found, work)
        j = work.order[best]
        outside -= abs(node.T[p, j]) * _span(node, j)
        if outside <= _OUTSIDE:
            return j
        flip(node, j)
        found -= 1
        work.order[best] = work.order[found]
        work.ratio[best] = work.ratio[found]
    return -1


@inner(error_model="numpy")
def _pivot(node: Node, p: int, q: int) -> None:
    """Exchange the basic variable of row ``p``, which goes to the bound it violates, with column ``q``."""
    n, M, k, T = node.item.shape[1], node.row.shape[1], node.size[0], node.T
    below = node.row[ix.X, p] < node.row[ix.LEAST, p]
    move = (node.row[ix.X, p] - (node.row[ix.LEAST, p] if below else node.row[ix.MOST, p])) / T[p, q]
    y, upper = node.item[ix.COLUMN, q] - n, node.item[ix.UPPER, q]
    at = float(upper) if y < 0 else (node.row[ix.HI, y] if upper == 1 else node.row[ix.LO, y])
    for i in range(M):
        node.row[ix.X, i] -= T[i, q] * move
    node.row[ix.X, p] = at + move
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


@inner()
def _exchange(node: Node, p: int, q: int, below: bool) -> None:
    """The names and bounds that a pivot exchanges; an item that is fixed leaves for good."""
    n = node.item.shape[1]
    leaving, entering = node.basic[p], node.item[ix.COLUMN, q]
    node.basic[p] = entering
    node.row[ix.LEAST, p] = 0.0 if entering < n else node.row[ix.LO, entering - n]
    node.row[ix.MOST, p] = 1.0 if entering < n else node.row[ix.HI, entering - n]
    node.item[ix.COLUMN, q] = leaving
    node.item[ix.UPPER, q] = 0 if below else 1
    if leaving < n and node.item[ix.FIXED_AT, leaving] != ix.FREE:
        drop(node, q)


@inner()
def drop(node: Node, j: int) -> None:
    """Take column ``j``, of an item that is fixed, out of the dictionary."""
    last = node.size[0] - 1
    node.size[0] = last
    node.item[ix.COLUMN, j] = node.item[ix.COLUMN, last]
    node.item[ix.UPPER, j] = node.item[ix.UPPER, last]
    for i in range(node.T.shape[0]):
        node.T[i, j] = node.T[i, last]


@inner()
def _objective(program: Program, node: Node) -> float:
    """The value of the point that the dictionary stands for, feasible or not: a bound, to rounding."""
    n, total = node.item.shape[1], node.row[ix.BASE, 0]
    for j in range(node.size[0]):
        if node.item[ix.COLUMN, j] < n and node.item[ix.UPPER, j] == 1:
            total += program.v[node.item[ix.COLUMN, j]]
    for i in range(node.row.shape[1]):
        item = node.basic[i]
        if item < n:
            fixed = 0 if node.item[ix.FIXED_AT, item] == ix.FREE else node.item[ix.FIXED_AT, item]
            total += program.v[item] * (node.row[ix.X, i] - fixed)
    return total


@inner()
def reoptimise(program: Program, node: Node, least: float, work: Work) -> tuple[int, int]:
    """Pivot until the relaxation is solved, its bound is below ``least``, or a row shows that nothing fits: which?"""
    for _ in range(100 + 10 * node.row.shape[1]):
        if _objective(program, node) < least:
            return BELOW, -1
        p = _leaving(node)
        if p < 0:
            return AT_OPTIMUM, -1
        q = _entering(node, p, work)
        if q < 0:
            return INFEASIBLE, p
        _pivot(node, p, q)
    return STUCK, -1
