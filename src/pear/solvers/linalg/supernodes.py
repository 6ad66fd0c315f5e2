"""Supernodes of sparse LDLᵀ factors: neighbouring columns of L with nearly the same rows. Compiled.

A supernode of w columns with u rows below them is stored as a block (w, w + u), one column of L after another. Numbers
that are used together are stored together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pear.compile.jit import allocating
from pear.solvers.linalg import Array

_SMALL = 4  # a subtree of at most so many columns is one supernode
_ZEROS = 0.2  # the largest share of zeros in a block


class SupernodeBlocks(NamedTuple):
    """The storage plan of the factor L: the blocks of s supernodes.

    Attributes:
        order: (n,) the rows of the matrix in the order of elimination.
        first: (s + 1,) the first column of every supernode, then n.
        row_start, rows: the rows below supernode k are ``rows[row_start[k] : row_start[k + 1]]``, in ascending order.
        start: (s + 1,) where the block of every supernode begins.
        children: (s,) the number of children of every supernode: supernodes that pass their update matrices to it.
        entry_start, source: the entries of the matrix that belong to supernode k have the positions
            ``source[entry_start[k] : entry_start[k + 1]]`` in the matrix.
        place: the positions of all entries in the blocks, in the order of ``source``.
        room: the largest number of entries of all update matrices that exist at one time.
    """

    order: Array
    first: Array
    row_start: Array
    rows: Array
    start: Array
    children: Array
    entry_start: Array
    source: Array
    place: Array
    room: int


def find_supernodes(order: Array, upper: tuple[Array, Array, Array], parent: Array, counts: Array) -> SupernodeBlocks:
    """Find the supernodes of a matrix whose elimination order is a postorder, and plan the storage of the factor L.

    Args:
        order: (n,) the rows of the matrix in the order of elimination.
        upper: the upper triangle in this order: column pointers, row indices, and the position of each entry in the
            original matrix.
        parent: (n,) the parent of every column in the elimination tree, −1 for roots.
        counts: (n,) the number of entries below the diagonal in every column of L.
    """
    first = _merge_into_supernodes(parent, counts)
    owner, above, row_start, start, children, room = _supernode_tree(first, parent, counts)
    rows, entry_start, source, place = _supernode_rows(*upper, first, owner, above, row_start, start)
    return SupernodeBlocks(order, first, row_start, rows, start, children, entry_start, source, place, room)


@allocating
def _merge_into_supernodes(parent: Array, counts: Array) -> Array:
    """Merge neighbouring columns with nearly the same rows, and subtrees of few columns, into supernodes.

    Args:
        parent: (n,) the parent of every column in the elimination tree, −1 for roots.
        counts: (n,) the number of entries below the diagonal in every column of L.

    Returns:
        (s + 1,) the first column of each of the s supernodes, then n.
    """
    n = len(parent)
    size, alike, first = np.ones(n, np.int64), np.arange(n), np.empty(n + 1, np.int64)
    for j in range(n):
        if parent[j] >= 0:
            size[parent[j]] += size[j]
    for j in range(n - 2, -1, -1):  # the last of the columns from j on that have the same rows
        if parent[j] == j + 1 and counts[j] == counts[j + 1] + 1:
            alike[j] = alike[j + 1]
    found, j, begin, entries = 0, 0, 0, 0
    while j < n:
        end = alike[j]
        width = end + 1 - begin
        block = width * (width + 1) // 2 + width * counts[end]
        more = counts[j : end + 1].sum() + end + 1 - j
        if j == 0 or parent[j - 1] != j or block - entries - more > _ZEROS * block:
            first[found], begin, entries = j, j, 0
            found += 1
            while parent[end] >= 0 and parent[end] - size[parent[end]] + 1 == j and size[parent[end]] <= _SMALL:
                end = parent[end]
            more = counts[j : end + 1].sum() + end + 1 - j
        entries += more
        j = end + 1
    first[found] = n
    return first[: found + 1].copy()


@allocating
def _supernode_tree(first: Array, parent: Array, counts: Array) -> tuple[Array, Array, Array, Array, Array, int]:
    """Find the tree of supernodes, and the sizes of their blocks.

    Args:
        first: (s + 1,) the first column of each of the s supernodes, then n.
        parent: (n,) the parent of every column in the elimination tree, −1 for roots.
        counts: (n,) the number of entries below the diagonal in every column of L.

    Returns:
        The supernode of every column (n,); the parent of every supernode (s,), −1 for roots; and the fields
        ``row_start``, ``start``, ``children`` and ``room`` of ``SupernodeBlocks``.
    """
    count, n = len(first) - 1, len(parent)
    owner, above, children = np.empty(n, np.int64), np.full(count, -1, np.int64), np.zeros(count, np.int64)
    row_start, start = np.zeros(count + 1, np.int64), np.zeros(count + 1, np.int64)
    for s in range(count):
        w, u = first[s + 1] - first[s], counts[first[s + 1] - 1]
        for j in range(first[s], first[s + 1]):
            owner[j] = s
        row_start[s + 1] = row_start[s] + u
        start[s + 1] = start[s] + w * (w + u)
    waiting, depth, top, room = np.empty(count, np.int64), 0, 0, 0
    for s in range(count):
        last = first[s + 1] - 1
        if parent[last] >= 0:
            above[s] = owner[parent[last]]
            children[above[s]] += 1
        size = counts[last] * (counts[last] + 1) // 2
        room = max(room, top + size)
        for _ in range(children[s]):
            depth -= 1
            top -= waiting[depth]
        waiting[depth] = size
        depth += 1
        top += size
    return owner, above, row_start, start, children, room


@allocating
def _supernode_rows(
    ptr: Array, rows: Array, found: Array, first: Array, owner: Array, above: Array, row_start: Array, start: Array
) -> tuple[Array, Array, Array, Array]:
    """Find the rows below every supernode, and the positions of the entries of the matrix in the blocks.

    Args:
        ptr, rows, found: the upper triangle of the matrix, as ``find_supernodes`` takes it.
        first, row_start, start: the fields of ``SupernodeBlocks``.
        owner: (n,) the supernode of every column.
        above: (s,) the parent of each of the s supernodes, −1 for roots.

    Returns:
        The fields ``rows``, ``entry_start``, ``source`` and ``place`` of ``SupernodeBlocks``.
    """
    count, n = len(above), len(owner)
    put, seen = row_start[:count].copy(), np.full(count, -1, np.int64)
    below, entry_start = np.empty(row_start[count], np.uint32), np.zeros(count + 1, np.int64)
    for i in rows:
        entry_start[owner[i] + 1] += 1
    for s in range(count):
        entry_start[s + 1] += entry_start[s]
    free, source, place = entry_start[:count].copy(), np.empty_like(rows), np.empty_like(rows)
    for j in range(n):  # row by row, so that the rows of each supernode are in ascending order
        for k in range(ptr[j], ptr[j + 1]):
            i = rows[k]
            s = owner[i]
            while s != owner[j] and seen[s] != j:
                seen[s] = j
                below[put[s]] = j
                put[s] += 1
                s = above[s]
            s = owner[i]
            width, height = first[s + 1] - first[s], row_start[s + 1] - row_start[s]
            # j is a column of the supernode, or the last row so far
            at = j - first[s] if s == owner[j] else width + put[s] - 1 - row_start[s]
            source[free[s]], place[free[s]] = found[k], start[s] + (i - first[s]) * (width + height) + at
            free[s] += 1
    return below, entry_start, source, place
