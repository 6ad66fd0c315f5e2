"""The simplex dictionary of a node of the search tree, and the operations on it. Compiled.

    max v·z,  y = b − Aᵀz,  lo ≤ y ≤ hi,  z_j ∈ {0, 1}

A *dictionary* expresses the basic variables x_B and the objective by the nonbasic variables x_N, each of which lies at
one of its bounds. T and d are its coefficients, and the dots stand for constants:

    x_B = … − T x_N,    v·z = … + d·x_N.

Fixed items are removed, so that the dictionary is soon small. The last row counts the items taken (A_j = −1, b = 0).
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
"""The largest depth of the search tree. A search that would go deeper ends without a proof."""

FREE = 2
"""The state of an item that is fixed neither at 1 (taken) nor at 0 (not taken)."""

_PERTURBATION = 1e-9  # of a second d, which chooses pivots: with equal ratios the simplex method could cycle

inner = partial(jit.inner, any_order=False)
"""A decorator for functions that only compiled functions call. Sums have a fixed order, so that results never vary."""


class Program(NamedTuple):
    """The data of a program of n items and M rows, which do not change during a search.

    Attributes:
        v: (n,) values of the items.
        A: (n, M) coefficients, one row per item. The last column, of −1, counts the items.
        b: (M,) limits.
        width: (M,) upper bounds of the slacks y of the rows: infinite for a row without a lower limit, n for the count.
        close: the largest difference of two values that counts as rounding.
    """

    v: Array
    A: Array
    b: Array
    width: Array
    close: float


class Node(NamedTuple):
    """The dictionary and the fixed items of a node. Variables have numbers: first the items, then the slacks y of rows.

    Attributes:
        T: (M + 2, n) the coefficients of the nonbasic variables: M rows for the basic variables, one for the objective,
            and one for a slightly perturbed objective, which chooses the pivots. The first ``size[0]`` columns are in
            use.
        column: (n,) the variable of each column.
        upper: (n,) 1 if the variable of a column lies at its upper bound, else 0.
        fixed_at: (n,) the value of each item: 0, 1 or FREE.
        x: (M,) the values of the basic variables.
        least, most: (M,) the bounds of the basic variables.
        lo, hi: (M,) the bounds of the slacks y.
        room: (M,) the limits of the rows minus the coefficients of the items fixed at 1.
        base: (M,) the first entry is the value of the items fixed at 1. The other entries are not used.
        basic: (M,) the basic variables.
        size: (1,) the number of columns in use.
        n, M: the numbers of items and rows.
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
    """The nodes on the path from the root to the current node, and their branches that are not yet explored.

    There are n items and M rows.

    Attributes:
        T: (DEPTH, M + 2, n) the fields ``T`` of the nodes.
        item: (DEPTH, 3, n) the fields ``column``, ``upper`` and ``fixed_at`` of the nodes.
        row: (DEPTH, 7, M) the fields ``x``, ``least``, ``most``, ``lo``, ``hi``, ``room`` and ``base`` of the nodes.
        basic: (DEPTH, M) the fields ``basic`` of the nodes.
        size: (DEPTH, 1) the fields ``size`` of the nodes.
        bound: (DEPTH,) upper bounds of the values in the subtrees of the nodes; −inf if no branch is left to explore.
        branch: (DEPTH, 2) the place of the branch that is not yet explored, and its direction: 1 for up, 0 for down.
    """

    T: Array
    item: Ints
    row: Array
    basic: Ints
    size: Ints
    bound: Array
    branch: Ints


class SearchWorkspace(NamedTuple):
    """Memory for the computations of a search with n items and M rows.

    Attributes:
        ratio: (n,) the ratios of a ratio test.
        order: (n,) the columns of these ratios.
        z: (n,) a selection.
        u: (M,) the multipliers of the rows.
    """

    ratio: Array
    order: Ints
    z: Bytes
    u: Array


def new_dictionary_tree(n: int, M: int) -> Tree:
    """Allocate memory for DEPTH nodes of n items and M rows."""
    item, basic = np.empty((DEPTH, 3, n), np.int64), np.empty((DEPTH, M), np.int64)
    T, row, size = np.empty((DEPTH, M + 2, n)), np.empty((DEPTH, 7, M)), np.empty((DEPTH, 1), np.int64)
    return Tree(T, item, row, basic, size, np.empty(DEPTH), np.empty((DEPTH, 2), np.int64))


def new_simplex_workspace(n: int, M: int) -> SearchWorkspace:
    """Allocate memory for the computations of a search with n items and M rows."""
    return SearchWorkspace(np.empty(n), np.empty(n, np.int64), np.empty(n, np.int8), np.empty(M))


@inner
def dictionary_at(tree: Tree, depth: int) -> Node:
    """Return the dictionary of the node at a depth of the tree."""
    T, item, row = tree.T[depth], tree.item[depth], tree.row[depth]
    height, n = T.shape
    return Node(
        *(T, item[0], item[1], item[2]),
        *(row[0], row[1], row[2], row[3], row[4], row[5], row[6]),
        *(tree.basic[depth], tree.size[depth], n, height - 2),
    )


@inner
def copy_dictionary(node: Node, to: Node) -> None:
    """Copy the part of a node that is in use to the node ``to``."""
    k = to.size[0] = node.size[0]
    for i in span(node.M + 2):
        _copy_dictionary_row(node.T[i], to.T[i], k)
    for j in span(k):
        to.column[j], to.upper[j] = node.column[j], node.upper[j]
    for j in span(node.n):
        to.fixed_at[j] = node.fixed_at[j]
    for i in span(node.M):
        to.basic[i] = node.basic[i]
        to.x[i], to.least[i], to.most[i] = node.x[i], node.least[i], node.most[i]
        to.lo[i], to.hi[i], to.room[i], to.base[i] = node.lo[i], node.hi[i], node.room[i], node.base[i]


@inner
def _copy_dictionary_row(row: Array, to: Array, k: int) -> None:
    """Copy the first ``k`` numbers of ``row`` to the row ``to``."""
    for j in span(k):
        to[j] = row[j]


@inner
def reset_dictionary(program: Program, node: Node) -> None:
    """Make every slack basic, and every item nonbasic: at 1 if its perturbed value is positive, else at 0."""
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


@inner
def dictionary_column_width(node: Node, j: int) -> float:
    """Return the distance between the bounds of the variable of column ``j``."""
    y = node.column[j] - node.n
    return 1.0 if y < 0 else node.hi[y] - node.lo[y]


@inner
def flip_dictionary_bound(node: Node, j: int) -> None:
    """Move the variable of column ``j`` to its other bound."""
    move = dictionary_column_width(node, j) if node.upper[j] == 0 else -dictionary_column_width(node, j)
    node.upper[j] = 1 - node.upper[j]
    for i in span(node.M):
        node.x[i] -= node.T[i, j] * move


@inner
def pivot_dictionary(node: Node, p: int, q: int) -> None:
    """Exchange the variables of column ``q`` and row ``p``. The variable of the row moves to the bound it violates."""
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
            _subtract_dictionary_row(factor, row, T[i], k)
            T[i, q] = -factor * inverse
    T[p, q] = inverse
    _exchange_dictionary_variables(node, p, q, below)


@inner
def _subtract_dictionary_row(factor: float, row: Array, other: Array, k: int) -> None:
    """Subtract ``factor`` times the first ``k`` numbers of ``row`` from the row ``other``."""
    for j in span(k):
        other[j] -= factor * row[j]


@inner
def _exchange_dictionary_variables(node: Node, p: int, q: int, below: bool) -> None:
    """Exchange the numbers and bounds of the variables of a pivot. A fixed item that leaves the basis is dropped."""
    n = node.n
    leaving, entering = node.basic[p], node.column[q]
    node.basic[p] = entering
    node.least[p] = 0.0 if entering < n else node.lo[entering - n]
    node.most[p] = 1.0 if entering < n else node.hi[entering - n]
    node.column[q] = leaving
    node.upper[q] = 0 if below else 1
    if leaving < n and node.fixed_at[leaving] != FREE:
        drop_dictionary_column(node, q)


@inner
def drop_dictionary_column(node: Node, j: int) -> None:
    """Remove column ``j``, which belongs to a fixed item, from the dictionary."""
    last = node.size[0] - 1
    node.size[0] = last
    node.column[j] = node.column[last]
    node.upper[j] = node.upper[last]
    for i in span(node.M + 2):
        node.T[i, j] = node.T[i, last]


@inner
def dictionary_objective(program: Program, node: Node) -> float:
    """Return the objective at the dictionary's point: up to rounding, an upper bound of the values in the subtree."""
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
