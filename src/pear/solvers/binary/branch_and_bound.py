"""Branch and bound for 0-1 programs with few rows. Compiled.

The search is depth first. It first considers only values above a guess of the best value, and then lowers the guess. A
branch restricts a single item or the number of items taken. If values are much alike, this number decides more than any
single item.
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pear.compile import jit
from pear.compile.jit import floor, refer, span
from pear.solvers.binary.dual_simplex import compute_dual_ratios
from pear.solvers.binary.relaxation_bound import bound_relaxation, relaxation_reduced_cost
from pear.solvers.binary.selection_search import NOTHING, PROVEN, SPENT, TIED
from pear.solvers.binary.simplex_dictionary import (
    DEPTH,
    FREE,
    Array,
    Bytes,
    Ints,
    Node,
    Program,
    SearchWorkspace,
    Tree,
    copy_dictionary,
    dictionary_at,
    drop_dictionary_column,
    flip_dictionary_bound,
    inner,
    reset_dictionary,
)

_WHOLE = 1e-7  # values of the relaxation that are this close to a whole number need no branch
_NEAR, _GROWTH = 20, 1.7  # the first guessed gap is the 21st least reduced cost; the gap grows by this factor


@inner
def _fix_branch_item(program: Program, node: Node, item: int, value: int) -> None:
    """Fix ``item`` as taken (1) or not taken (0). The caller updates the dictionary's column or row of the item."""
    node.fixed_at[item] = value
    if value == 1:
        node.base[0] += program.v[item]
        for i in span(node.M):
            node.room[i] -= program.A[item, i]


@inner
def _fix_branch_items_by_cost(program: Program, node: Node, spare: float, u: Array) -> None:
    """Fix each nonbasic item at its present value if its other value would lower the bound by more than ``spare``.

    ``u`` (M,) has the multipliers of the M rows.
    """
    n, j = node.n, 0
    while j < node.size[0]:
        item = node.column[j]
        if item < n:
            r = relaxation_reduced_cost(program, u, item)
            if (r > spare and node.upper[j] == 1) or (-r > spare and node.upper[j] == 0):
                _fix_branch_item(program, node, item, node.upper[j])
                drop_dictionary_column(node, j)
                continue
        j += 1


@inner
def _rate_branch(node: Node, p: int, sign: float, work: SearchWorkspace) -> float:
    """Return how fast the objective falls as the variable of row ``p`` begins to rise (sign 1.0) or fall (−1.0).

    The result is infinite if no column can move the variable in this direction.
    """
    best = math.inf
    for k in span(compute_dual_ratios(node, p, sign, work)):
        best = min(best, work.ratio[k])
    return best


@inner
def _choose_branch(node: Node, solved: bool, gap: float, work: SearchWorkspace) -> tuple[int, bool]:
    """Choose where to branch, and which of the two branches to explore first.

    Args:
        node: the node.
        solved: whether the relaxation is solved.
        gap: the bound of the node minus the least value of interest.
        work: memory for computations.

    Returns:
        The place, and True if the upward branch comes first. The place is the position of a dictionary row, or the
        number of rows plus the position of a column, or −1 if every item is fixed.
    """
    n, M = node.n, node.M
    place, up, best = -1, False, -1.0
    for p in span(M):
        variable = node.basic[p]
        free = node.fixed_at[variable] == FREE if variable < n else variable == n + M - 1
        share = node.x[p] - floor(node.x[p])
        if not solved or not free or share < _WHOLE or share > 1 - _WHOLE:
            continue
        fall, rise = share * _rate_branch(node, p, -1.0, work), (1 - share) * _rate_branch(node, p, 1.0, work)
        score = (min(fall, gap) + 1e-6 * gap) * (min(rise, gap) + 1e-6 * gap)
        if score > best:
            place, up, best = p, rise < fall, score
    return (place, up) if place >= 0 else _any_branch(node)


@inner
def _any_branch(node: Node) -> tuple[int, bool]:
    """Return any place to branch, in the form of ``_choose_branch``.

    The search needs such a place if the relaxation is not solved, or if its solution is whole but violates a row by a
    rounding error.
    """
    n, M = node.n, node.M
    for j in span(node.size[0]):
        if node.column[j] < n:
            return M + j, node.upper[j] == 1
    for p in span(M):
        if node.basic[p] < n and node.fixed_at[node.basic[p]] == FREE:
            return p, node.x[p] > 0.5
    return -1, False


@inner
def _follow_branch(program: Program, node: Node, place: int, up: bool) -> None:
    """Apply the upward or the downward branch at ``place`` to the node."""
    n, M = node.n, node.M
    if place >= M:
        j = place - M
        if (node.upper[j] == 1) != up:
            flip_dictionary_bound(node, j)
        _fix_branch_item(program, node, node.column[j], node.upper[j])
        drop_dictionary_column(node, j)
        return
    variable = node.basic[place]
    if variable < n:
        _fix_branch_item(program, node, variable, 1 if up else 0)
        node.least[place] = node.most[place] = 1.0 if up else 0.0
    elif up:
        node.least[place] = node.lo[variable - n] = -floor(-node.x[place])
    else:
        node.most[place] = node.hi[variable - n] = floor(node.x[place])


@inner
def _rounded_branch_value(program: Program, node: Node, bound: float) -> float:
    """Estimate the value of the solution of the relaxation after it is rounded down.

    Args:
        program: the program.
        node: the node, with the solution of the relaxation.
        bound: the value of the relaxation.
    """
    n = node.n
    for i in span(node.M):
        if node.basic[i] < n and node.fixed_at[node.basic[i]] == FREE and node.x[i] <= 1 - _WHOLE:
            bound -= node.x[i] * program.v[node.basic[i]]
    return bound + _WHOLE


@inner
def _round_branch_down(node: Node, z: Bytes) -> None:
    """Round the solution of the relaxation down, and write it to ``z`` (n,)."""
    n = node.n
    for j in span(n):
        z[j] = node.fixed_at[j] if node.fixed_at[j] != FREE else 0
    for j in span(node.size[0]):
        if node.column[j] < n:
            z[node.column[j]] = node.upper[j]
    for i in span(node.M):
        if node.basic[i] < n and node.fixed_at[node.basic[i]] == FREE:
            z[node.basic[i]] = 1 if node.x[i] > 1 - _WHOLE else 0


@inner
def _feasible_branch_value(program: Program, z: Bytes) -> float:
    """Return v·z if the selection ``z`` (n,) satisfies all rows, else −inf."""
    n, M = program.A.shape
    value = 0.0
    for i in span(M - 1):
        room = program.b[i]
        for j in span(n):
            room -= program.A[j, i] * z[j]
        if room < 0 or room > program.width[i]:
            return -math.inf
    for j in span(n):
        value += program.v[j] * z[j]
    return value


@inner
def _guess_bound_gap(program: Program, work: SearchWorkspace) -> float:
    """Return a guess of the gap between the relaxation and the best selection.

    The guess is the absolute reduced cost that ``_NEAR`` items do not exceed, but at least a small share of the mean.
    """
    n, mean = len(program.v), 0.0
    near = min(_NEAR, n - 1)
    for j in span(n):
        r = abs(relaxation_reduced_cost(program, work.u, j))
        mean += r / n
        k = min(j, near)
        if j <= near or r < work.ratio[near]:  # the first entries are the smallest numbers so far, sorted
            while k > 0 and work.ratio[k - 1] > r:
                work.ratio[k] = work.ratio[k - 1]
                k -= 1
            work.ratio[k] = r
    return max(max(work.ratio[near], 1e-4 * mean), 1e-9)


@inner
def _accept_branch_selection(program: Program, z: Bytes, low: float, step: float, best: Bytes) -> tuple[float, bool]:
    """Replace the selection ``best`` by the selection ``z`` if ``z`` is feasible and has a greater value.

    Args:
        program: the program.
        z: (n,) the new selection.
        low: the value of ``best``.
        step: the least improvement of interest. If it is negative, its size is the rounding error of equal values.
        best: (n,) the best selection so far; overwritten.

    Returns:
        The value of ``best``; and whether ``z`` is another selection of equal value, always False if ``step`` ≥ 0.
    """
    value = _feasible_branch_value(program, z)
    if step < 0 and abs(value - low) <= -step:
        return low, _branch_selections_differ(z, best)
    if value > low:
        for j in span(len(z)):
            best[j] = z[j]
        return value, False
    return low, False


@inner
def _branch_selections_differ(z: Bytes, other: Bytes) -> bool:
    """Return whether two selections (n,) differ."""
    for j in span(len(z)):  # noqa: SIM110 (a plain loop is what compiles well)
        if z[j] != other[j]:
            return True
    return False


@inner
def _explore_branches(
    program: Program,
    tree: Tree,
    work: SearchWorkspace,
    cut: float,
    low: float,
    step: float,
    best: Bytes,
    left: int,
    budget: Ints,
) -> tuple[int, float, int]:
    """Search all selections whose value is at least both ``cut`` and ``low + step``.

    Level 0 of the tree is the root, whose relaxation is solved. The root does not change.

    Args:
        program: the program.
        tree: memory for the nodes.
        work: memory for computations.
        cut: the least value of interest.
        low: the value of ``best``.
        step: the least improvement of interest. A negative step also finds selections that are as good as ``best``. The
            search ends with TIED when it finds one of them.
        best: (n,) the best selection so far; overwritten.
        left: the number of nodes that may be visited.
        budget: (1,) set to 0 by another thread to stop the search.

    Returns:
        PROVEN if the search is complete, SPENT if it was stopped or ran out of nodes, or TIED; the value of ``best``;
        and the number of nodes that may still be visited.
    """
    depth = 1
    copy_dictionary(refer(dictionary_at(tree, 0)), refer(dictionary_at(tree, 1)))
    while left > 0 and budget[0] > 0:
        left -= 1
        node = refer(dictionary_at(tree, depth))
        solved, bound = bound_relaxation(program, node, max(cut, low + step), work)
        place, up = -1, False
        if bound >= max(cut, low + step):
            spare = bound - max(cut, low + step)
            _fix_branch_items_by_cost(program, node, spare, work.u)
            place, up = _choose_branch(node, solved, spare, work)
            if place < 0 or (solved and _rounded_branch_value(program, node, bound) > low + min(step, 0.0)):
                _round_branch_down(node, work.z)
                low, tied = _accept_branch_selection(program, work.z, low, step, best)
                if tied:
                    return TIED, low, left
        if place >= 0 and bound >= max(cut, low + step):
            if depth + 1 == DEPTH:
                return SPENT, low, left
            tree.bound[depth], tree.branch[depth, 0], tree.branch[depth, 1] = bound, place, 0 if up else 1
            depth += 1
            copy_dictionary(node, refer(dictionary_at(tree, depth)))
        else:
            depth -= 1
            while depth > 0 and tree.bound[depth] < max(cut, low + step):
                depth -= 1
            if depth == 0:
                return PROVEN, low, left
            place, up = tree.branch[depth, 0], tree.branch[depth, 1] == 1
            tree.bound[depth] = -math.inf  # both branches are explored after this one
        _follow_branch(program, refer(dictionary_at(tree, depth)), place, up)
    return SPENT, low, left


class SearchLimits(NamedTuple):
    """What limits the searches of all samples: the rows, and the number of nodes that each sample may visit.

    Attributes:
        A: (n, M) the coefficients, at most 1 in absolute value, one column for each of M rows. The last column, of −1,
            counts the items taken.
        b: (M,) the limits of the rows; that of the count is 0.
        width: (M,) how far below its limit a row may be: infinite for a row without a lower limit, n for the count.
        budget: (1,) the largest number of nodes per sample. Another thread stops the search by setting it to 0.
    """

    A: Array
    b: Array
    width: Array
    budget: Ints


class SearchBatch(NamedTuple):
    """B programs and the results of their searches.

    Attributes:
        values: (B, n) values between −1 and 1.
        units: (B,) for each sample a number of which all values are multiples; 0 if no such number is known.
        close: (B,) the largest difference of two values that counts as rounding.
        has_start: (B,) bool, True if ``best`` contains a feasible selection to start from.
        best: (B, n) selections to start from; overwritten by the best selections.
        most: (B,) overwritten by upper bounds of the values, which are proven if the outcome is PROVEN.
        outcome: (B,) overwritten by the outcomes that ``selection_search`` defines: PROVEN, SPENT or NOTHING, or TIED
            if a search with a start finds two best selections.
    """

    values: Array
    units: Array
    close: Array
    has_start: NDArray[np.bool_]
    best: Bytes
    most: Array
    outcome: Bytes


@partial(jit.entry, any_order=False)
def branch_and_bound_all(samples: SearchBatch, limits: SearchLimits, tree: Tree, work: SearchWorkspace) -> None:
    """Find the best selection of every sample.

    The search guesses the gap between the relaxation and the best selection, and considers only values within this gap.
    The guess grows until a selection is found. With a good guess, far fewer nodes must be explored.
    """
    samples, limits, tree, work = refer(samples), refer(limits), refer(tree), refer(work)
    root = refer(dictionary_at(tree, 0))
    for s in span(len(samples.values)):
        program = refer(Program(samples.values[s], limits.A, limits.b, limits.width, samples.close[s]))
        _branch_and_bound_sample(program, samples, s, tree, root, work, limits.budget)


@inner
def _branch_and_bound_sample(
    program: Program, samples: SearchBatch, s: int, tree: Tree, root: Node, work: SearchWorkspace, budget: Ints
) -> None:
    """Find the best selection of sample ``s``, and write it and the outcome into ``samples``."""
    unit, close, has_start, best = samples.units[s], samples.close[s], samples.has_start[s], samples.best[s]
    least = -2.0 * root.n - 1.0  # below the value of every selection
    low = _feasible_branch_value(program, best) if has_start else -math.inf
    step = unit - close if unit > 0 else (-close if has_start else close)
    reset_dictionary(program, root)
    _, bound = bound_relaxation(program, root, least, work)
    guess, cut, left = _guess_bound_gap(program, work), math.inf, budget[0]
    outcome = PROVEN if bound >= least else NOTHING
    while outcome == PROVEN and low < cut:
        if cut <= max(least, low + step):
            outcome = PROVEN if low > -math.inf else NOTHING
            break
        target = bound - guess
        if unit > 0:
            target = min(floor((target + close) / unit) * unit, cut + 2.0 * close - unit)
        cut = max(target - 2.0 * close, least)
        outcome, low, left = _explore_branches(program, tree, work, cut, low, step, best, left, budget)
        guess *= _GROWTH
    samples.outcome[s] = outcome
    # No selection has a value of low + step or more. Values that are multiples of a unit cannot lie in between.
    samples.most[s] = low if unit > 0 else low + max(step, 0.0)
