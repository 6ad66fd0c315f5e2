"""The linear relaxation of a node, and an upper bound that rounding cannot break, compiled.

Every dictionary has multipliers u, which are −d at the y. For any u the bound

    v·z ≤ u·b + Σ max(v_j − A_j·u, 0) + Σ max(−u_i lo_i, −u_i hi_i)

holds, whatever the rounding errors of T are. Proofs use this line alone, evaluated with the program's own numbers.
"""

from __future__ import annotations

import math

from pear.compile import jit
from pear.compile.jit import span
from pear.solvers.binary.dual_simplex import AT_OPTIMUM, BELOW, INFEASIBLE, reoptimise
from pear.solvers.binary.simplex_dictionary import FREE, Array, Node, Program, SearchWorkspace, inner

_EPS = 2.220446049250313e-16


@inner
def _row_multipliers(node: Node, u: Array) -> None:
    """Write the multipliers of the rows to ``u`` (M,). They are not negative where y has no upper bound."""
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
def _along_ray(node: Node, p: int, length: float, u: Array) -> None:
    """Move ``u`` along the dual ray by which row ``p`` proves that the relaxation is infeasible."""
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
def reduced_value(program: Program, u: Array, item: int) -> float:
    """Return the reduced cost v_j − A_j·u of ``item``."""
    r = program.v[item]
    for i in span(len(u)):
        r -= u[i] * program.A[item, i]
    return r


@inner
def _bound_by(program: Program, node: Node, u: Array) -> float:
    """Return the upper bound of the node's value that the multipliers ``u`` prove."""
    n, M = program.A.shape
    total, size = node.base[0], 0.0
    for i in span(M):
        total += u[i] * node.room[i] - u[i] * (node.lo[i] if u[i] >= 0 else node.hi[i])
        size += abs(u[i]) * (abs(node.room[i]) + node.size[0])
    for j in span(node.size[0]):
        if node.column[j] < n:
            total += max(reduced_value(program, u, node.column[j]), 0.0)
    for i in span(M):
        if node.basic[i] < n and node.fixed_at[node.basic[i]] == FREE:
            total += max(reduced_value(program, u, node.basic[i]), 0.0)
    rounding = _EPS * size  # more than ``close`` allows for where multipliers are large
    return total + rounding if rounding > 0.25 * program.close else total


@inner
def solve_relaxation(program: Program, node: Node, least: float, work: SearchWorkspace) -> tuple[bool, float]:
    """Solve the relaxation of a node, but stop once its bound is below ``least``.

    Returns:
        Whether the relaxation is solved, and a verified upper bound.
    """
    state, p = reoptimise(program, node, least, work)
    _row_multipliers(node, work.u)
    bound = _bound_by(program, node, work.u)
    if state == BELOW and bound >= least:
        state, p = reoptimise(program, node, -math.inf, work)
        _row_multipliers(node, work.u)
        bound = _bound_by(program, node, work.u)
    length = 1.0
    while state == INFEASIBLE and bound >= least and length < 1e15:
        _along_ray(node, p, length, work.u)
        bound = _bound_by(program, node, work.u)
        length *= 2
    return state == AT_OPTIMUM, bound
