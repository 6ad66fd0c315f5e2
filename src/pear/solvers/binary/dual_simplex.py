"""The dual simplex method with bound flips, on the dictionary of a node. Compiled."""

from __future__ import annotations

from pear.compile.jit import span
from pear.solvers.binary.simplex_dictionary import (
    Node,
    Program,
    SearchWorkspace,
    dictionary_column_width,
    dictionary_objective,
    flip_dictionary_bound,
    inner,
    pivot_dictionary,
)

AT_OPTIMUM, BELOW, INFEASIBLE, STUCK = 0, 1, 2, 3
"""The outcomes of the dual simplex method.

AT_OPTIMUM: the relaxation is solved. BELOW: the objective is below the least value of interest. INFEASIBLE: a row
proves that no selection is feasible. STUCK: the largest number of pivots is reached.
"""

_OUTSIDE = 1e-9  # how far a basic variable may be outside its bounds; the coefficients of a row are at most 1
_PIVOT = 1e-9
_EQUAL_RATIO = 1e-12


@inner
def _dual_leaving_row(node: Node) -> int:
    """Return the row of the basic variable that is farthest outside its bounds; −1 if none is."""
    worst, row = _OUTSIDE, -1
    for i in span(node.M):
        outside = max(node.least[i] - node.x[i], node.x[i] - node.most[i])
        if outside > worst:
            worst, row = outside, i
    return row


@inner
def compute_dual_ratios(node: Node, p: int, sign: float, work: SearchWorkspace) -> int:
    """Write to ``work`` the ratio of each column that can move the basic variable of row ``p``.

    The ratio is the size of the column's entry in the perturbed objective, divided by that of its entry in row ``p``.

    Args:
        node: the dictionary.
        p: the row.
        sign: 1.0 if the variable rises, −1.0 if it falls. A bool would make numba compile the function twice.
        work: receives the ratios and their columns.

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
def _least_dual_ratio(node: Node, p: int, found: int, work: SearchWorkspace) -> int:
    """Return the position of the least of the first ``found`` ratios; among equal ratios, that of the largest pivot."""
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
def _dual_entering_column(node: Node, p: int, work: SearchWorkspace) -> int:
    """Find the column that enters the basis in row ``p``, by the bound-flipping ratio test.

    The bound on the objective falls by the step times the infeasibility of the row. Each column whose ratio the step
    exceeds is flipped to its other bound, which reduces the infeasibility.

    Returns:
        The column; −1 if the row proves that the relaxation is infeasible.
    """
    rising = node.x[p] < node.least[p]
    outside = node.least[p] - node.x[p] if rising else node.x[p] - node.most[p]
    found = compute_dual_ratios(node, p, 1.0 if rising else -1.0, work)
    while found > 0:
        best = _least_dual_ratio(node, p, found, work)
        j = work.order[best]
        outside -= abs(node.T[p, j]) * dictionary_column_width(node, j)
        if outside <= _OUTSIDE:
            return j
        flip_dictionary_bound(node, j)
        found -= 1
        work.order[best] = work.order[found]
        work.ratio[best] = work.ratio[found]
    return -1


@inner
def run_dual_simplex(program: Program, node: Node, least: float, work: SearchWorkspace) -> tuple[int, int]:
    """Pivot until the relaxation is solved, the objective is below ``least``, or a row proves infeasibility.

    The search also ends after a largest number of pivots.

    Returns:
        AT_OPTIMUM, BELOW, INFEASIBLE, or STUCK after too many pivots; and the row that proves infeasibility, or −1 for
        another outcome.
    """
    for _ in span(100 + 10 * node.M):
        if dictionary_objective(program, node) < least:
            return BELOW, -1
        p = _dual_leaving_row(node)
        if p < 0:
            return AT_OPTIMUM, -1
        q = _dual_entering_column(node, p, work)
        if q < 0:
            return INFEASIBLE, p
        pivot_dictionary(node, p, q)
    return STUCK, -1
