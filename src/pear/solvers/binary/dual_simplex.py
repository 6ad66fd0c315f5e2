"""The dual simplex method on a dictionary, with bound flips, compiled."""

from __future__ import annotations

from pear.compile.jit import span
from pear.solvers.binary.simplex_dictionary import FREE, Array, Node, Program, SearchWorkspace, inner

AT_OPTIMUM, BELOW, INFEASIBLE, STUCK = 0, 1, 2, 3
"""How pivoting ends.

AT_OPTIMUM: the relaxation is solved. BELOW: the bound is too low to matter. INFEASIBLE: a row proves that no selection
is feasible. STUCK: there were too many pivots.
"""

_OUTSIDE = 1e-9  # how far a basic variable may be outside its bounds; the coefficients of a row are at most 1
_PIVOT = 1e-9
_EQUAL_RATIO = 1e-12


@inner
def _leaving_row(node: Node) -> int:
    """Return the row of the basic variable farthest outside its bounds, or −1."""
    worst, row = _OUTSIDE, -1
    for i in span(node.M):
        outside = max(node.least[i] - node.x[i], node.x[i] - node.most[i])
        if outside > worst:
            worst, row = outside, i
    return row


@inner
def _column_width(node: Node, j: int) -> float:
    """Return the distance between the bounds of column ``j``."""
    y = node.column[j] - node.n
    return 1.0 if y < 0 else node.hi[y] - node.lo[y]


@inner
def flip_bound(node: Node, j: int) -> None:
    """Move column ``j`` to its other bound."""
    move = _column_width(node, j) if node.upper[j] == 0 else -_column_width(node, j)
    node.upper[j] = 1 - node.upper[j]
    for i in span(node.M):
        node.x[i] -= node.T[i, j] * move


@inner
def compute_ratios(node: Node, p: int, sign: float, work: SearchWorkspace) -> int:
    """Write to ``work`` the ratio of each column that can move the basic variable of row ``p``.

    Args:
        node: the dictionary.
        p: the row.
        sign: 1.0 where the variable rises, −1.0 where it falls. It is not a bool, because numba would compile the
            function once for each constant.
        work: the ratios and their columns are written here.

    Returns:
        The number of these columns.
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
    """Return the position of the least ratio; among equal ratios, that of the largest pivot."""
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
    """Find the column that enters in row ``p`` by the bound-flipping ratio test, or −1.

    As the step grows, the bound on the objective falls at a rate equal to the remaining infeasibility of the row. Each
    column that the step passes is flipped to its other bound, which reduces this rate.
    """
    rising = node.x[p] < node.least[p]
    outside = node.least[p] - node.x[p] if rising else node.x[p] - node.most[p]
    found = compute_ratios(node, p, 1.0 if rising else -1.0, work)
    while found > 0:
        best = _least_ratio(node, p, found, work)
        j = work.order[best]
        outside -= abs(node.T[p, j]) * _column_width(node, j)
        if outside <= _OUTSIDE:
            return j
        flip_bound(node, j)
        found -= 1
        work.order[best] = work.order[found]
        work.ratio[best] = work.ratio[found]
    return -1


@inner
def _pivot_dictionary(node: Node, p: int, q: int) -> None:
    """Make column ``q`` basic in place of the variable of row ``p``, which moves to the bound that it violates."""
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
            _subtract_row(factor, row, T[i], k)
            T[i, q] = -factor * inverse
    T[p, q] = inverse
    _exchange_variables(node, p, q, below)


@inner
def _subtract_row(factor: float, row: Array, other: Array, k: int) -> None:
    """Subtract a multiple of the first ``k`` numbers of ``row`` from those of ``other``."""
    for j in span(k):
        other[j] -= factor * row[j]


@inner
def _exchange_variables(node: Node, p: int, q: int, below: bool) -> None:
    """Exchange the names and bounds of a pivot's two variables. A fixed item that leaves the basis is dropped."""
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
    """Remove column ``j``, which belongs to a fixed item, from the dictionary."""
    last = node.size[0] - 1
    node.size[0] = last
    node.column[j] = node.column[last]
    node.upper[j] = node.upper[last]
    for i in span(node.M + 2):
        node.T[i, j] = node.T[i, last]


@inner
def _dictionary_objective(program: Program, node: Node) -> float:
    """Return the objective at the dictionary's point, feasible or not. It is an upper bound, up to rounding."""
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
    """Pivot until the relaxation is solved, its bound is below ``least``, or a row proves infeasibility.

    Returns:
        AT_OPTIMUM, BELOW, INFEASIBLE or STUCK, and the row that proves infeasibility, else −1.
    """
    for _ in span(100 + 10 * node.M):
        if _dictionary_objective(program, node) < least:
            return BELOW, -1
        p = _leaving_row(node)
        if p < 0:
            return AT_OPTIMUM, -1
        q = _entering_column(node, p, work)
        if q < 0:
            return INFEASIBLE, p
        _pivot_dictionary(node, p, q)
    return STUCK, -1
