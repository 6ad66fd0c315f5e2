"""The linear relaxation of a node, and an upper bound that is valid in spite of rounding errors. Compiled.

The symbols are those of ``simplex_dictionary``, and A_j has the coefficients of item j. Every dictionary has
multipliers u of the rows: −d_i if the slack y_i is nonbasic, else 0. For any u the bound

    v·z ≤ u·b + Σ max(v_j − A_j·u, 0) + Σ max(−u_i lo_i, −u_i hi_i)

holds, whatever the rounding errors of T are. Proofs use only this bound, evaluated with the data of the program.
"""

from __future__ import annotations

import math

from pear.compile import jit
from pear.compile.jit import span
from pear.solvers.binary.dual_simplex import AT_OPTIMUM, BELOW, INFEASIBLE, run_dual_simplex
from pear.solvers.binary.simplex_dictionary import FREE, Array, Node, Program, SearchWorkspace, inner

_EPS = 2.220446049250313e-16


@inner
def _relaxation_multipliers(node: Node, u: Array) -> None:
    """Write the multipliers of the rows to ``u``. A negative multiplier of an inequality is replaced by zero."""
    n, M = node.n, node.M
    for i in span(M):
        u[i] = 0.0
    for j in span(node.size[0]):
        if node.column[j] >= n:
            u[node.column[j] - n] = -node.T[M, j]
    for i in span(M):
        if node.hi[i] == math.inf:
            u[i] = max(u[i], 0.0)


@inner
def _move_along_relaxation_ray(node: Node, p: int, length: float, u: Array) -> None:
    """Move the multipliers ``u`` by ``length`` along the dual ray of the dictionary's infeasible row ``p``."""
    n, M = node.n, node.M
    step = length if node.x[p] < node.least[p] else -length
    if node.basic[p] >= n:
        u[node.basic[p] - n] += step
    for j in span(node.size[0]):
        if node.column[j] >= n:
            u[node.column[j] - n] += step * node.T[p, j]
    for i in span(M):
        if node.hi[i] == math.inf:
            u[i] = max(u[i], 0.0)


@jit.inner
def relaxation_reduced_cost(program: Program, u: Array, item: int) -> float:
    """Return the reduced cost of ``item``: its value minus the product of its coefficients and the multipliers u."""
    r = program.v[item]
    for i in span(len(u)):
        r -= u[i] * program.A[item, i]
    return r


@inner
def _relaxation_bound(program: Program, node: Node, u: Array) -> float:
    """Return the upper bound that the multipliers ``u`` prove for the values of all selections in a node's subtree."""
    n, M = program.A.shape
    total, size = node.base[0], 0.0
    for i in span(M):
        total += u[i] * node.room[i] - u[i] * (node.lo[i] if u[i] >= 0 else node.hi[i])
        size += abs(u[i]) * (abs(node.room[i]) + node.size[0])
    for j in span(node.size[0]):
        if node.column[j] < n:
            total += max(relaxation_reduced_cost(program, u, node.column[j]), 0.0)
    for i in span(M):
        if node.basic[i] < n and node.fixed_at[node.basic[i]] == FREE:
            total += max(relaxation_reduced_cost(program, u, node.basic[i]), 0.0)
    rounding = _EPS * size  # may exceed ``close`` if multipliers are large
    return total + rounding if rounding > 0.25 * program.close else total


@inner
def bound_relaxation(program: Program, node: Node, least: float, work: SearchWorkspace) -> tuple[bool, float]:
    """Solve the relaxation of a node, but stop once the bound is below ``least``.

    Returns:
        Whether the relaxation is solved, and a proven upper bound of all values in the node's subtree.
    """
    state, p = run_dual_simplex(program, node, least, work)
    _relaxation_multipliers(node, work.u)
    bound = _relaxation_bound(program, node, work.u)
    if state == BELOW and bound >= least:
        state, p = run_dual_simplex(program, node, -math.inf, work)
        _relaxation_multipliers(node, work.u)
        bound = _relaxation_bound(program, node, work.u)
    length = 1.0
    while state == INFEASIBLE and bound >= least and length < 1e15:
        _move_along_relaxation_ray(node, p, length, work.u)
        bound = _relaxation_bound(program, node, work.u)
        length *= 2
    return state == AT_OPTIMUM, bound
