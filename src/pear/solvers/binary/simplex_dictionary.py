"""The simplex dictionary of a node, compiled: its arrays, its initial state, and memory for a path of nodes.

    max v·z,  y = b − Aᵀz,  lo ≤ y ≤ hi,  z_j ∈ {0, 1}

A dictionary expresses the basic variables and the objective by the nonbasic ones, which lie at one of their bounds:

    x_B = … − T x_N,    v·z = … + d·x_N.

Fixed items leave the dictionary, which soon is small. The last row counts the items taken (A_j = −1, b = 0).
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
"""Largest depth of the search tree. A search that goes deeper counts as a spent budget."""

FREE = 2
"""State of an item that is fixed neither at 1 (taken) nor at 0 (left)."""

_PERTURBATION = 1e-9  # a second d, a little off, chooses pivots: equal ratios would let the simplex method cycle

inner = partial(jit.inner, any_order=False)
"""Compile a function that only compiled functions call, with sums in a fixed order so that results do not vary."""


class Program(NamedTuple):
    """The data of a program, which does not change during a search.

    Attributes:
        v: (n,) values.
        A: (n, M) coefficients by items; the last column, of −1, counts the items.
        b: (M,) limits.
        width: (M,) upper bounds of y: infinite for inequalities, finite for equalities and for the count.
        close: largest difference of two values that counts as rounding.
    """

    v: Array
    A: Array
    b: Array
    width: Array
    close: float


class Node(NamedTuple):
    """The dictionary of a node and its fixed items. Variables are numbered: items first, then the y of the rows.

    Attributes:
        T: (M + 2, n) coefficients of the nonbasic variables, then d, then a slightly perturbed d that chooses pivots.
            The first ``size[0]`` columns are in use.
        column: (n,) the variable of each column.
        upper: (n,) 1 where the variable of a column lies at its upper bound.
        fixed_at: (n,) value of each item: 0, 1 or FREE.
        x: (M,) values of the basic variables.
        least, most: (M,) bounds of the basic variables.
        lo, hi: (M,) bounds of y.
        room: (M,) b minus what the items fixed at 1 use.
        base: (M,) the first entry is the value of the items fixed at 1.
        basic: (M,) the basic variables.
        size: (1,) number of columns in use.
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
    """The nodes of the current path by level, and the branches that are not yet explored.

    Attributes:
        T: (DEPTH, M + 2, n) coefficients of the nodes.
        item: (DEPTH, 3, n) fields of the nodes by item.
        row: (DEPTH, 7, M) fields of the nodes by row.
        basic: (DEPTH, M) basic variables of the nodes.
        size: (DEPTH, 1) columns in use.
        bound: (DEPTH,) upper bounds of the nodes.
        branch: (DEPTH, 2) place and direction of the branch that is not yet explored.
    """

    T: Array
    item: Ints
    row: Array
    basic: Ints
    size: Ints
    bound: Array
    branch: Ints


class SearchWorkspace(NamedTuple):
    """Memory for computations.

    Attributes:
        ratio: (n,) ratios of a ratio test.
        order: (n,) the columns of these ratios.
        z: (n,) a selection.
        u: (M,) multipliers.
    """

    ratio: Array
    order: Ints
    z: Bytes
    u: Array


def new_tree(n: int, M: int) -> Tree:
    """Allocate memory for DEPTH nodes of n items and M rows."""
    item, basic = np.empty((DEPTH, 3, n), np.int64), np.empty((DEPTH, M), np.int64)
    T, row, size = np.empty((DEPTH, M + 2, n)), np.empty((DEPTH, 7, M)), np.empty((DEPTH, 1), np.int64)
    return Tree(T, item, row, basic, size, np.empty(DEPTH), np.empty((DEPTH, 2), np.int64))


def new_work(n: int, M: int) -> SearchWorkspace:
    """Allocate memory for computations with n items and M rows."""
    return SearchWorkspace(np.empty(n), np.empty(n, np.int64), np.empty(n, np.int8), np.empty(M))


@inner
def node_at(tree: Tree, depth: int) -> Node:
    """Return the node at a depth of the tree."""
    T, item, row = tree.T[depth], tree.item[depth], tree.row[depth]
    height, n = T.shape
    return Node(
        *(T, item[0], item[1], item[2]),
        *(row[0], row[1], row[2], row[3], row[4], row[5], row[6]),
        *(tree.basic[depth], tree.size[depth], n, height - 2),
    )


@inner
def copy_node(node: Node, to: Node) -> None:
    """Copy the part of ``node`` that is in use to ``to``."""
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
    """Copy the first ``k`` numbers of ``row`` to ``to``."""
    for j in span(k):
        to[j] = row[j]


@inner
def reset_dictionary(program: Program, node: Node) -> None:
    """Make every item nonbasic, at the bound that suits the sign of its value, and every y basic."""
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
