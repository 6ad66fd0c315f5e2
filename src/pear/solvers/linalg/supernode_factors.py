"""Factorisations of sparse matrices by the dense blocks of supernodes. Compiled.

The method is multifrontal: a supernode of w columns with u rows below them adds the update matrices of its children to
its block, eliminates its columns, and passes an update matrix (u, u) to its parent. All loops run through memory in
order.
"""

from __future__ import annotations

import numpy as np

from pear.compile.jit import entry, inner
from pear.solvers.linalg import Array
from pear.solvers.linalg.elimination_order import index as _at
from pear.solvers.linalg.supernodes import SupernodeBlocks

_LINES, _DEPTH, _WIDTH = 32, 64, 128  # sizes of dense products: for 2^18 multiplications OpenBLAS starts no threads
_NARROW = 4  # at most so many columns of a supernode are eliminated one by one
_DENSE = 16  # dense products are used from so many columns on


def factorise_supernodes(plan: SupernodeBlocks, data: Array, L: Array) -> tuple[Array, int]:
    """Factor a symmetric matrix as LDLᵀ, and return the diagonal of D, the pivots.

    Args:
        plan: the storage plan of L.
        data: the numbers of the upper triangle of the matrix.
        L: the numbers of L; overwritten.

    Returns:
        (n,) the pivots, and how many of them were computed: fewer than n if a pivot is zero or not finite.
    """
    pivots = np.empty(len(plan.order))
    return pivots, _factorise_supernodes_compiled(plan, data, L, pivots, *supernode_memory(plan))


def supernode_memory(plan: SupernodeBlocks) -> tuple[Array, Array, Array]:
    """Allocate memory for a factorisation: for update matrices, for products of dense matrices, and for positions."""
    tiles = np.empty((3, max(_LINES * _DEPTH, _DEPTH * _WIDTH, _LINES * _WIDTH)))
    return np.empty(plan.room), tiles, np.empty((3, len(plan.order)), np.int64)


@entry
def _factorise_supernodes_compiled(
    plan: SupernodeBlocks, data: Array, L: Array, pivots: Array, stack: Array, tiles: Array, scratch: Array
) -> int:
    """Factor a matrix as ``factorise_supernodes_into`` does. This function is for calls from Python only."""
    return factorise_supernodes_into(plan, data, L, pivots, stack, tiles, scratch)


@inner
def factorise_supernodes_into(
    plan: SupernodeBlocks, data: Array, L: Array, pivots: Array, stack: Array, tiles: Array, scratch: Array
) -> int:
    """Factor a symmetric matrix as LDLᵀ in memory that the caller provides.

    Args:
        plan, data, L: the arguments of ``factorise_supernodes``.
        pivots: (n,) overwritten.
        stack, tiles, scratch: the results of ``supernode_memory``.

    Returns:
        The number of pivots that were computed.
    """
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
    """Add the update matrix of a child to the block and to the update matrix of its parent.

    Args:
        stack: the update matrices, each as an upper triangle packed by rows.
        left: where the update matrix of the child begins in ``stack``.
        found: (size,) the position of each row of the child in the parent: k for column k of the parent, and w + k for
            row k below these columns.
        size: the number of rows of the child's update matrix.
        L: the numbers of L.
        at: where the block of the parent begins in ``L``.
        w, u: the numbers of columns of the parent and of rows below them.
        rest: where the update matrix of the parent begins in ``stack``.
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
    """Do what ``_eliminate_supernode`` does, one column after the other, which is faster for a narrow supernode.

    Args:
        L: the numbers of L.
        at: where the block begins in ``L``.
        w, u: the numbers of columns and of rows below them.
        stack: the update matrices.
        rest: where the update matrix of the supernode begins in ``stack``.
        pivots: (n,) overwritten at the columns of the supernode.
        begin: the first column of the supernode.

    Returns:
        False if a pivot is zero or not finite.
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
    """Eliminate the columns of a supernode, which gives its columns of L and their part of the update matrix.

    Args:
        block: (w, w + u) the block, of which the upper triangle is used; overwritten by columns of L.
        rest: the update matrix (u, u), an upper triangle packed by rows, from which outer products are subtracted.
        pivots: (w,) overwritten.
        tiles: memory for products of small dense matrices.

    Returns:
        False if a pivot is zero or not finite.
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
    """Subtract what columns ``k`` to ``known − 1`` contribute to row ``t`` of LDLᵀ, in place.

    A column contributes its outer product with itself, times its pivot. Four columns are subtracted at a time, so that
    each number of the row is loaded and stored once for four columns.

    Args:
        target: the row from its diagonal entry on, in the block or in the update matrix.
        block: (w, w + u) the block, whose rows are columns of L.
        pivots: (w,) the pivots.
        t: the number of the row, from 0 to w + u − 1.
        k: the first of the columns.
        known: the end of the columns.
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
    """Subtract what the columns before ``first`` contribute to the rows ``first`` to ``last − 1`` of LDLᵀ, in place.

    These contributions are computed as products of dense tiles, which are so small that BLAS starts no threads. The
    other arguments are those of ``_eliminate_supernode``; ``rest`` begins at the first of these rows if the rows lie
    below the columns of the supernode.
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
