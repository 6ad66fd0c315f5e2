"""Supernodes of a sparse LDLᵀ, and its factorisation by dense blocks, compiled.

Columns of L with nearly the same rows form a *supernode*.

A supernode of w columns with u rows below them is stored as a block (w, w + u), one column of L after another. The
method is multifrontal: a supernode adds the update matrices of its children, eliminates its columns, and passes an
update matrix (u, u) to its parent. Numbers that are used together lie together in memory, and every loop goes along
them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pear.compile.jit import allocating, entry, inner
from pear.solvers.linalg import Array
from pear.solvers.linalg.elimination_order import index as _at

_SMALL = 4  # columns up to which a whole subtree is one supernode
_ZEROS = 0.2  # share of a block that may be zeros
_LINES, _DEPTH, _WIDTH = 32, 64, 128  # of dense products: 2^18 multiplications, up to which OpenBLAS starts no threads
_NARROW = 4  # columns up to which they are eliminated one by one
_DENSE = 16  # columns from which a dense product pays


class SupernodeBlocks(NamedTuple):
    """The storage plan of L.

    Attributes:
        order: (n,) the rows and columns of the matrix in the order of elimination.
        first: (s + 1,) the first column of every supernode.
        row_start, rows: the rows below supernode k are ``rows[row_start[k] : row_start[k + 1]]``, ascending.
        start: (s + 1,) where the block of every supernode begins.
        children: (s,) the number of supernodes that pass an update matrix to it.
        entry_start, source: the entries of the matrix that belong to supernode k are those at ``source[entry_start[k] :
            entry_start[k + 1]]``.
        place: the positions of these entries in the blocks.
        room: the largest number of entries of update matrices at one time.
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
    """Find the supernodes of a matrix in postorder, and plan the storage of L.

    Args:
        order: (n,) see ``SupernodeBlocks``.
        upper: the upper triangle in that order: column pointers, row indices, and the position of each entry's value.
        parent: (n,) elimination tree.
        counts: (n,) the number of entries below the diagonal of every column of L.
    """
    first = _merge_into_supernodes(parent, counts)
    owner, above, row_start, start, children, room = _supernode_tree(first, parent, counts)
    rows, entry_start, source, place = _supernode_rows(*upper, first, owner, above, row_start, start)
    return SupernodeBlocks(order, first, row_start, rows, start, children, entry_start, source, place, room)


@allocating
def _merge_into_supernodes(parent: Array, counts: Array) -> Array:
    """Return (s + 1,) the first columns of supernodes.

    Neighbouring columns with nearly the same rows, and subtrees of few columns, are merged.
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

    Returns:
        (n,) the supernode of every column; (s,) the parent of every supernode; then ``row_start``, ``start``,
        ``children`` and ``room`` of ``SupernodeBlocks``.
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
    """Find the rows below every supernode, and the places of the entries of the matrix in the blocks.

    Returns:
        ``rows``, ``entry_start``, ``source`` and ``place`` of ``SupernodeBlocks``.
    """
    count, n = len(above), len(owner)
    put, seen = row_start[:count].copy(), np.full(count, -1, np.int64)
    below, entry_start = np.empty(row_start[count], np.uint32), np.zeros(count + 1, np.int64)
    for i in rows:
        entry_start[owner[i] + 1] += 1
    for s in range(count):
        entry_start[s + 1] += entry_start[s]
    free, source, place = entry_start[:count].copy(), np.empty_like(rows), np.empty_like(rows)
    for j in range(n):  # row by row, so that the rows of each supernode come in order
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


def factorise_supernodes(plan: SupernodeBlocks, data: Array, L: Array) -> tuple[Array, int]:
    """Factor a matrix.

    Args:
        plan: the storage plan of the matrix.
        data: the numbers of the matrix.
        L: the blocks; written.

    Returns:
        (n,) the pivots, and how many were computed: n, unless one is zero or not a number.
    """
    pivots = np.empty(len(plan.order))
    return pivots, _factorise_supernodes_compiled(plan, data, L, pivots, *supernode_memory(plan))


def supernode_memory(plan: SupernodeBlocks) -> tuple[Array, Array, Array]:
    """Return memory for a factorisation: for update matrices, for products of dense matrices, and for positions."""
    tiles = np.empty((3, max(_LINES * _DEPTH, _DEPTH * _WIDTH, _LINES * _WIDTH)))
    return np.empty(plan.room), tiles, np.empty((3, len(plan.order)), np.int64)


@entry
def _factorise_supernodes_compiled(
    plan: SupernodeBlocks, data: Array, L: Array, pivots: Array, stack: Array, tiles: Array, scratch: Array
) -> int:
    """Do what ``factorise_supernodes_into`` does, for callers in Python."""
    return factorise_supernodes_into(plan, data, L, pivots, stack, tiles, scratch)


@inner
def factorise_supernodes_into(
    plan: SupernodeBlocks, data: Array, L: Array, pivots: Array, stack: Array, tiles: Array, scratch: Array
) -> int:
    """Factor a matrix in memory that the caller provides; return how many pivots were computed."""
    first, row_start, rows, start = plan.first, plan.row_start, plan.rows, plan.start
    source, place = plan.source, plan.place
    count, n = len(first) - 1, len(plan.order)
    local, found, waiting = scratch[0], scratch[1], scratch[2]
    top, depth = 0, 0
    for s in range(count):
        begin, w, r, u = first[s], first[s + 1] - first[s], row_start[s], row_start[s + 1] - row_start[s]
        at, left, below = start[s], u * (u + 1) // 2, top
        for k in range(at, start[s + 1]):
            L[_at(k)] = 0.0
        for k in range(top, top + left):
            stack[_at(k)] = 0.0
        for k in range(plan.entry_start[s], plan.entry_start[s + 1]):
            L[_at(place[_at(k)])] = data[_at(source[_at(k)])]
        if plan.children[s] > 0:
            for k in range(w):
                local[_at(begin + k)] = k
            for k in range(u):
                local[rows[_at(r + k)]] = w + k
        for _ in range(plan.children[s]):
            depth -= 1
            child = row_start[waiting[depth]]
            size = row_start[waiting[depth] + 1] - child
            below -= size * (size + 1) // 2
            for k in range(size):
                found[_at(k)] = local[rows[_at(child + k)]]
            _add_supernode_update(stack, below, found, size, L, at, w, u, top)
        if w <= _NARROW:
            done = _eliminate_narrow_supernode(L, at, w, u, stack, top, pivots, begin)
        else:
            block, rest = L[at : start[s + 1]].reshape(w, w + u), stack[top : top + left]
            done = _eliminate_supernode(block, rest, pivots[begin : begin + w], tiles)
        if not done:
            return begin
        if below < top:
            for k in range(left):
                stack[_at(below + k)] = stack[_at(top + k)]
        top = below + left
        waiting[depth] = s
        depth += 1
    return n


@inner
def _add_supernode_update(
    stack: Array, left: int, found: Array, size: int, L: Array, at: int, w: int, u: int, rest: int
) -> None:
    """Add the update matrix of a child to the block of its parent and to the parent's own update matrix.

    Args:
        stack: update matrices; each is an upper triangle packed by rows.
        left: where the update matrix of the child begins.
        found: (size,) the positions of the child's rows in the parent: columns of the block first, then rows below.
        size: the number of rows of the child's update matrix.
        L: the blocks.
        at: where the block of the parent begins.
        w, u: the numbers of columns of the parent and of rows below them.
        rest: where the update matrix of the parent begins.
    """
    for a in range(size):
        row = found[_at(a)]
        left -= a
        if row < w:
            to = at + row * (w + u)
            for b in range(a, size):
                L[_at(to + found[_at(b)])] += stack[_at(left + b)]
        else:
            row -= w
            to = rest + row * u - row * (row + 1) // 2 - w
            for b in range(a, size):
                stack[_at(to + found[_at(b)])] += stack[_at(left + b)]
        left += size


@inner
def _eliminate_narrow_supernode(
    L: Array, at: int, w: int, u: int, stack: Array, rest: int, pivots: Array, begin: int
) -> bool:
    """Eliminate the columns of a narrow block one by one; return False at a pivot that is zero or not finite.

    The result is that of ``_eliminate_supernode``.
    """
    size = w + u
    for k in range(w):
        line = at + k * size
        pivot = L[_at(line + k)]
        if pivot == 0.0 or not np.isfinite(pivot):
            return False
        pivots[_at(begin + k)] = pivot
        inverse = 1.0 / pivot
        for t in range(k + 1, w):
            factor, to = L[_at(line + t)] * inverse, at + t * size
            for i in range(t, size):
                L[_at(to + i)] -= factor * L[_at(line + i)]
        to = rest - w
        for t in range(w, size):
            factor = L[_at(line + t)] * inverse
            for i in range(t, size):
                stack[_at(to + i)] -= factor * L[_at(line + i)]
            to += size - t - 1
        for i in range(line + k + 1, line + size):
            L[_at(i)] *= inverse
    return True


@inner
def _eliminate_supernode(block: Array, rest: Array, pivots: Array, tiles: Array) -> bool:
    """Eliminate the columns of a block: compute its columns of L and their part of the update matrix.

    Args:
        block: (w, w + u) the block, of which the upper triangle is used; overwritten by columns of L.
        rest: the update matrix (u, u), an upper triangle packed by rows; the outer products are subtracted.
        pivots: (w,) written.
        tiles: memory for products of small dense matrices.

    Returns:
        False at a pivot that is zero or not finite.
    """
    w, size = block.shape
    first, used = 0, 0
    while first < size:
        last = min(first + _LINES, w if first < w else size)
        known = min(first, w) if min(first, w) >= _DENSE else 0
        if known > 0:
            _subtract_supernode_tiles(block, rest[used:], pivots, tiles, first, last)
        for t in range(first, last):
            target = block[t, t:] if t < w else rest[used : used + size - t]
            used += 0 if t < w else size - t
            _subtract_supernode_columns(target, block, pivots, t, known, min(t, w))
            if t < w:
                pivot = target[0]
                if pivot == 0.0 or not np.isfinite(pivot):
                    return False
                pivots[t] = pivot
                inverse = 1.0 / pivot
                for i in range(1, size - t):
                    target[i] *= inverse
        first = last
    return True


@inner
def _subtract_supernode_columns(target: Array, block: Array, pivots: Array, t: int, k: int, known: int) -> None:
    """Subtract the outer products of columns ``k`` to ``known`` from row ``t`` of a block or an update matrix.

    Four columns are subtracted at a time, so that each number of the row is loaded and stored once for four.
    """
    while k + 3 < known:
        a, b = block[k, t] * pivots[k], block[k + 1, t] * pivots[k + 1]
        c, d = block[k + 2, t] * pivots[k + 2], block[k + 3, t] * pivots[k + 3]
        A, B, C, D = block[k, t:], block[k + 1, t:], block[k + 2, t:], block[k + 3, t:]
        for i in range(len(target)):
            target[i] -= a * A[i] + b * B[i] + c * C[i] + d * D[i]
        k += 4
    while k < known:
        a, A = block[k, t] * pivots[k], block[k, t:]
        for i in range(len(target)):
            target[i] -= a * A[i]
        k += 1


@inner
def _subtract_supernode_tiles(block: Array, rest: Array, pivots: Array, tiles: Array, first: int, last: int) -> None:
    """Subtract the outer products of all earlier columns from rows ``first`` to ``last``.

    They are computed as products of dense tiles, which are small enough for BLAS to work in the calling thread.
    """
    w, size = block.shape
    known, height = min(first, w), last - first
    for k0 in range(0, known, _DEPTH):
        depth = min(_DEPTH, known - k0)
        left = tiles[0, : height * depth].reshape(height, depth)
        for k in range(depth):
            for t in range(height):
                left[t, k] = block[k0 + k, first + t] * pivots[k0 + k]
        for i0 in range(first, size, _WIDTH):
            width = min(_WIDTH, size - i0)
            right = tiles[1, : depth * width].reshape(depth, width)
            for k in range(depth):
                for i in range(width):
                    right[k, i] = block[k0 + k, i0 + i]
            product = tiles[2, : height * width].reshape(height, width)
            np.dot(left, right, product)
            used = 0
            for t in range(height):
                row = first + t
                target = block[row, row:] if first < w else rest[used : used + size - row]
                used += size - row
                for i in range(max(i0, row), i0 + width):
                    target[i - row] -= product[t, i - i0]
