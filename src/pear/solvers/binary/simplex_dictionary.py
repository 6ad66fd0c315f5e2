"""The dictionary of a node, compiled: what it holds, how it begins, and room for a path of nodes.

    max v·z,  y = b − Aᵀz,  lo ≤ y ≤ hi,  z_j ∈ {0, 1}

A dictionary writes the basic variables and the objective by the others, which sit at one of their bounds:

    x_B = … − T x_N,    v·z = … + d·x_N.

Items that are fixed leave the dictionary, which soon is small. The last row counts the items taken (A_j = −1, b = 0).
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pear.compile import jit
from pear.compile.jit import span

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Bytes = NDArray[np.int8]

DEPTH = 256
"""Levels of the tree that are kept; deeper ones count as a spent budget."""

FREE = 2
"""State of an item that is fixed neither at 1 (taken) nor at 0 (left)."""

_PERTURBATION = 1e-9  # a second d, a little off, chooses pivots: equal ratios would let the simplex method cycle

inner = partial(jit.inner, any_order=False)
"""Compiles a function that only compiled ones call; what it finds does not depend on how the compiler orders sums."""


class Program(NamedTuple):
    """What never changes during a search.

    Attributes:
        v: (n,) values.
        A: (n, M) coefficients by items; the last column, of −1, counts them.
        b: (M,) limits.
        width: (M,) upper bounds of y: infinite for inequalities, finite for equalities and for the count.
        close: differences of values that are rounding.
    """

    v: Array
    A: Array
    b: Array
    width: Array
    close: float


class Node(NamedTuple):
    """A dictionary and what is fixed; variables are numbered, items first, then the rows' y.

    Attributes:
        T: (M + 2, n) coefficients of the nonbasic variables, then d, then the d that chooses pivots. The first
            ``size[0]`` columns are in use.
        column: (n,) the variable of each column; upper: (n,) 1 where it sits at its upper bound.
        fixed_at: (n,) of each item, 0, 1 or FREE.
        x, least, most: (M,) values and bounds of the basic variables.
        lo, hi: (M,) bounds of y.
        room: (M,) b less what the items taken for good need; base: (M,) first, what these items earn.
        basic: (M,) basic variables.
        size: (1,) columns in use.
        n, M: numbers of items and rows.
    """

    T: Array
    column: Ints
    upper: Ints
    fixed_at: Ints
    x: Array
    least: Array
    most: Array
    lo: Array
    hi: Array
    room: Array
    base: Array
    basic: Ints
    size: Ints
    n: int
    M: int


class Tree(NamedTuple):
    """Nodes by node_at, and the branches that are left.

    Attributes:
        T: (DEPTH, M + 2, n); item: (DEPTH, 3, n); row: (DEPTH, 7, M); basic: (DEPTH, M); size: (DEPTH, 1): the nodes.
        bound: (DEPTH,) bounds of the nodes; branch: (DEPTH, 2) place and direction of the branch left.
    """

    T: Array
    item: Ints
    row: Array
    basic: Ints
    size: Ints
    bound: Array
    branch: Ints


class SearchWorkspace(NamedTuple):
    """Space to compute in: ratios and their columns (n,), a selection (n,), multipliers (M,)."""

    ratio: Array
    order: Ints
    z: Bytes
    u: Array


def new_tree(n: int, M: int) -> Tree:
    """Room for DEPTH nodes of n items and M rows."""
    item, basic = np.empty((DEPTH, 3, n), np.int64), np.empty((DEPTH, M), np.int64)
    T, row, size = np.empty((DEPTH, M + 2, n)), np.empty((DEPTH, 7, M)), np.empty((DEPTH, 1), np.int64)
    return Tree(T, item, row, basic, size, np.empty(DEPTH), np.empty((DEPTH, 2), np.int64))


def new_work(n: int, M: int) -> SearchWorkspace:
    """Room for n items and M rows."""
    return SearchWorkspace(np.empty(n), np.empty(n, np.int64), np.empty(n, np.int8), np.empty(M))


@inner
def node_at(tree: Tree, depth: int) -> Node:
    """The node at that depth."""
    T, item, row = tree.T[depth], tree.item[depth], tree.row[depth]
    height, n = T.shape
    return Node(
        *(T, item[0], item[1], item[2]),
        *(row[0], row[1], row[2], row[3], row[4], row[5], row[6]),
        *(tree.basic[depth], tree.size[depth], n, height - 2),
    )


@inner
def copy_node(node: Node, to: Node) -> None:
    """Write the part of ``node`` that is in use to ``to``."""
    k = to.size[0] = node.size[0]
    for i in span(node.M + 2):
        copy_floats(node.T[i], to.T[i], k)
    for j in span(k):
        to.column[j], to.upper[j] = node.column[j], node.upper[j]
    for j in span(node.n):
        to.fixed_at[j] = node.fixed_at[j]
    for i in span(node.M):
        to.basic[i] = node.basic[i]
        to.x[i], to.least[i], to.most[i] = node.x[i], node.least[i], node.most[i]
        to.lo[i], to.hi[i], to.room[i], to.base[i] = node.lo[i], node.hi[i], node.room[i], node.base[i]


@inner
def copy_floats(row: Array, to: Array, k: int) -> None:
    """Write the first ``k`` numbers of ``row`` to ``to``."""
    for j in span(k):
        to[j] = row[j]


@inner
def reset_dictionary(program: Program, node: Node) -> None:
    """Every item nonbasic at the bound its value asks for, every y basic."""
    n, M = program.A.shape
    node.size[0] = n
    node.base[0] = 0.0
    for i in span(M):
        node.basic[i] = n + i
        node.x[i] = node.room[i] = program.b[i]
        node.least[i] = node.lo[i] = 0.0
        node.most[i] = node.hi[i] = program.width[i]
    for j in span(n):
        node.column[j] = j
        node.fixed_at[j] = FREE
        node.T[M, j] = program.v[j]
        node.T[M + 1, j] = program.v[j] + _PERTURBATION * ((j * 0.6180339887498949) % 1.0 - 0.5)
        node.upper[j] = 1 if node.T[M + 1, j] > 0 else 0
        for i in span(M):
            node.T[i, j] = program.A[j, i]
            if node.upper[j] == 1:
                node.x[i] -= program.A[j, i]
