"""The dual simplex method on a dictionary, with bound flips, compiled."""

from __future__ import annotations

from pear.solvers.binary.dictionary import (
    BASE,
    COLUMN,
    FIXED_AT,
    FREE,
    HI,
    LEAST,
    LO,
    MOST,
    UPPER,
    Node,
    Program,
    Work,
    X,
    inner,
)

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
        outside = max(node.row[LEAST, i] - node.row[X, i], node.row[X, i] - node.row[MOST, i])
        if outside > worst:
            worst, row = outside, i
    return row


@inner()
def _span(node: Node, j: int) -> float:
    """The width of column ``j``'s bounds."""
    y = node.item[COLUMN, j] - node.item.shape[1]
    return 1.0 if y < 0 else node.row[HI, y] - node.row[LO, y]


@inner()
def flip(node: Node, j: int) -> None:
    """Move column ``j`` to its other bound."""
    move = _span(node, j) if node.item[UPPER, j] == 0 else -_span(node, j)
    node.item[UPPER, j] = 1 - node.item[UPPER, j]
    for i in range(node.row.shape[1]):
        node.row[X, i] -= node.T[i, j] * move


@inner(error_model="numpy")
def ratios(node: Node, p: int, rising: bool, work: Work) -> int:
    """Write the ratio of each column that can move row ``p``'s variable to ``work``; how many there are."""
    M, found = node.row.shape[1], 0
    for j in range(node.size[0]):
        a = node.T[p, j] if rising else -node.T[p, j]
        if (a > _PIVOT and node.item[UPPER, j] == 1) or (a < -_PIVOT and node.item[UPPER, j] == 0):
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
    rising = node.row[X, p] < node.row[LEAST, p]
    outside = node.row[LEAST, p] - node.row[X, p] if rising else node.row[X, p] - node.row[MOST, p]
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
    below = node.row[X, p] < node.row[LEAST, p]
    move = (node.row[X, p] - (node.row[LEAST, p] if below else node.row[MOST, p])) / T[p, q]
    y = node.item[COLUMN, q] - n
    at = float(node.item[UPPER, q]) if y < 0 else (node.row[HI, y] if node.item[UPPER, q] == 1 else node.row[LO, y])
    for i in range(M):
        node.row[X, i] -= T[i, q] * move
    node.row[X, p] = at + move
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
    leaving, entering = node.basic[p], node.item[COLUMN, q]
    node.basic[p] = entering
    node.row[LEAST, p] = 0.0 if entering < n else node.row[LO, entering - n]
    node.row[MOST, p] = 1.0 if entering < n else node.row[HI, entering - n]
    node.item[COLUMN, q] = leaving
    node.item[UPPER, q] = 0 if below else 1
    if leaving < n and node.item[FIXED_AT, leaving] != FREE:
        drop(node, q)


@inner()
def drop(node: Node, j: int) -> None:
    """Take column ``j``, of an item that is fixed, out of the dictionary."""
    last = node.size[0] - 1
    node.size[0] = last
    node.item[COLUMN, j] = node.item[COLUMN, last]
    node.item[UPPER, j] = node.item[UPPER, last]
    for i in range(node.T.shape[0]):
        node.T[i, j] = node.T[i, last]


@inner()
def _objective(program: Program, node: Node) -> float:
    """The value of the point that the dictionary stands for, feasible or not: a bound, to rounding."""
    n, total = node.item.shape[1], node.row[BASE, 0]
    for j in range(node.size[0]):
        if node.item[COLUMN, j] < n and node.item[UPPER, j] == 1:
            total += program.v[node.item[COLUMN, j]]
    for i in range(node.row.shape[1]):
        item = node.basic[i]
        if item < n:
            fixed = 0 if node.item[FIXED_AT, item] == FREE else node.item[FIXED_AT, item]
            total += program.v[item] * (node.row[X, i] - fixed)
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
