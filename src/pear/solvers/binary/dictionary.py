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
from numba import njit
from numpy.typing import NDArray

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Bytes = NDArray[np.int8]

DEPTH = 256
"""Levels of the tree that are kept; deeper ones count as a spent budget."""

FREE = 2
"""State of an item that is fixed neither at 1 (taken) nor at 0 (left)."""

COLUMN, UPPER, FIXED_AT = 0, 1, 2
X, LEAST, MOST, LO, HI, ROOM, BASE = 0, 1, 2, 3, 4, 5, 6

_PERTURBATION = 1e-9  # a second d, a little off, chooses pivots: equal ratios would let the simplex method cycle

inner = partial(njit, nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)
"""Compiles a function that only compiled ones call; its code is cached as part of theirs."""


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
        item: (3, n) COLUMN: the variable of each column; UPPER: 1 where it sits at its upper bound; FIXED_AT: of each
            item, 0, 1 or FREE.
        row: (7, M) X, LEAST, MOST: values and bounds of the basic variables; LO, HI: bounds of y; ROOM: b less
            what the items taken for good need; BASE: first, what these items earn.
        basic: (M,) basic variables.
        size: (1,) columns in use.
    """

    T: Array
    item: Ints
    row: Array
    basic: Ints
    size: Ints


class Tree(NamedTuple):
    """Nodes by level (DEPTH, …), what their bounds were (DEPTH,), place and direction of the branch left (DEPTH, 2)."""

    nodes: Node
    bound: Array
    branch: Ints


class Work(NamedTuple):
    """Space to compute in: ratios and their columns (n,), a selection (n,), multipliers (M,)."""

    ratio: Array
    order: Ints
    z: Bytes
    u: Array


@inner()
def new_tree(n: int, M: int) -> Tree:
    """Room for DEPTH nodes of n items and M rows."""
    nodes = Node(
        np.empty((DEPTH, M + 2, n)),
        np.empty((DEPTH, 3, n), np.int64),
        np.empty((DEPTH, 7, M)),
        np.empty((DEPTH, M), np.int64),
        np.empty((DEPTH, 1), np.int64),
    )
    return Tree(nodes, np.empty(DEPTH), np.empty((DEPTH, 2), np.int64))


@inner()
def level(tree: Tree, depth: int) -> Node:
    """The node at that depth."""
    every = tree.nodes
    return Node(every.T[depth], every.item[depth], every.row[depth], every.basic[depth], every.size[depth])


@inner()
def copy(node: Node, to: Node) -> None:
    """Write the part of ``node`` that is in use to ``to``."""
    k = to.size[0] = node.size[0]
    to.T[:, :k] = node.T[:, :k]
    to.item[:FIXED_AT, :k] = node.item[:FIXED_AT, :k]
    to.item[FIXED_AT] = node.item[FIXED_AT]
    to.basic[:] = node.basic
    to.row[:] = node.row


@inner()
def reset(program: Program, node: Node) -> None:
    """Every item nonbasic at the bound its value asks for, every y basic."""
    n, M = program.A.shape
    node.size[0] = n
    node.row[BASE, 0] = 0.0
    for i in range(M):
        node.basic[i] = n + i
        node.row[X, i] = node.row[ROOM, i] = program.b[i]
        node.row[LEAST, i] = node.row[LO, i] = 0.0
        node.row[MOST, i] = node.row[HI, i] = program.width[i]
    for j in range(n):
        node.item[COLUMN, j] = j
        node.item[FIXED_AT, j] = FREE
        node.T[M, j] = program.v[j]
        node.T[M + 1, j] = program.v[j] + _PERTURBATION * ((j * 0.6180339887498949) % 1.0 - 0.5)
        node.item[UPPER, j] = 1 if node.T[M + 1, j] > 0 else 0
        for i in range(M):
            node.T[i, j] = program.A[j, i]
            if node.item[UPPER, j] == 1:
                node.row[X, i] -= program.A[j, i]
