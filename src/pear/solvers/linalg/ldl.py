"""Sparse LDLᵀ of symmetric quasi-definite matrices: ordering, structure and numbers, each computed once and reused.

A quasi-definite matrix ``[H Jᵀ; J −D]`` with H and D positive definite has the factors LDLᵀ in *every* order, without
pivoting. The order may therefore be chosen for little fill alone (approximate minimum degree), once for all matrices
with the same non-zeros, and the numbers follow in a loop that needs no search.

qdldl cannot tell what a factor will cost before it is computed, as ``max_work`` does here. Of the packages with
supernodes CHOLMOD (scikit-sparse) has no wheels, and PARDISO comes with MKL alone. Nested dissection (METIS) in place
of minimum degree saves few multiplications on grids and takes longer to find.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from pear.compile.jit import allocating
from pear.solvers.linalg.ordering import Array, minimum_degree, mirrored
from pear.solvers.linalg.supernodes import Blocks, blocks, factored
from pear.solvers.linalg.triangular import solved


class Ordering:
    """The order in which a symmetric pattern is eliminated, and what its factor will look like.

    Args:
        matrix: (n, n) upper triangle with the whole diagonal, in CSC form, canonical; only its pattern matters.
        max_work: give up once the factor would take more multiplications.

    Attributes:
        affordable: False where the fill exceeds ``max_work``; then nothing else may be used.
        fill: entries below the diagonal of L.
    """

    def __init__(self, matrix: sparse.csc_array, max_work: float) -> None:
        n = matrix.shape[0]
        self.fill = 0
        indptr, indices = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64)
        order, self.affordable = minimum_degree(n, *mirrored(n, indptr, indices), max_work)
        if not self.affordable:
            return
        ptr, rows, _ = _permuted(n, indptr, indices, order)
        # children next to their parents: the same fill, and what is used together lies together
        order = order[_postorder(_tree(n, ptr, rows)[0])]
        ptr, rows, found = _permuted(n, indptr, indices, order)
        parent, counts, work = _tree(n, ptr, rows)
        self.fill = int(counts.sum())
        self.affordable = bool(work <= max_work)
        if self.affordable:
            self._blocks = blocks(order, (ptr, rows, found), parent, counts)
            self._free: list[Array] = []

    def factor(self, data: Array) -> Factor:
        """Factor the matrix whose upper triangle has these numbers, in the order of the pattern."""
        try:
            L = self._free.pop()
        except IndexError:
            L = np.empty(self._blocks.start[-1])
        pivots, found = factored(self._blocks, data, L)
        return Factor(self._blocks, L, pivots, found, self._free)


class Factor:
    """The factors L and D of one matrix, permuted."""

    def __init__(self, blocks: Blocks, L: Array, pivots: Array, found: int, free: list[Array]) -> None:
        self._blocks, self._L, self._pivots, self._free = blocks, L, pivots, free
        self.succeeded = found == len(pivots)
        """False where a pivot was zero or not a number."""

    def __del__(self) -> None:
        # the next factor is written where this one was: to touch fresh memory takes as long as a fifth of the work
        self._free.append(self._L)

    @property
    def fill(self) -> int:
        """Numbers that it holds."""
        return len(self._L)

    @property
    def is_positive(self) -> bool:
        """True where every pivot is positive."""
        return bool((self._pivots > 0).all())

    def solve(self, rhs: Array) -> Array:
        """(n,) the solution for one right-hand side (n,)."""
        return solved(self._blocks, self._L, self._pivots, rhs)


@allocating
def _permuted(n: int, indptr: Array, indices: Array, order: Array) -> tuple[Array, Array, Array]:
    """The upper triangle in the new order, and where each of its numbers is found."""
    rank = np.empty(n, np.int64)
    for k in range(n):
        rank[order[k]] = k
    ptr = np.zeros(n + 1, np.int64)
    for j in range(n):
        for k in range(indptr[j], indptr[j + 1]):
            ptr[max(rank[indices[k]], rank[j]) + 1] += 1
    for j in range(n):
        ptr[j + 1] += ptr[j]
    free = ptr[:n].copy()
    rows, found = np.empty(len(indices), np.int64), np.empty(len(indices), np.int64)
    for j in range(n):
        for k in range(indptr[j], indptr[j + 1]):
            a, b = rank[indices[k]], rank[j]
            column = max(a, b)
            rows[free[column]] = min(a, b)
            found[free[column]] = k
            free[column] += 1
    return ptr, rows, found


@allocating
def _tree(n: int, ptr: Array, rows: Array) -> tuple[Array, Array, float]:
    """Elimination tree, entries of every column of L, and the multiplications the factor takes."""
    parent, counts, seen = np.full(n, -1, np.int64), np.zeros(n, np.int64), np.full(n, -1, np.int64)
    for j in range(n):
        seen[j] = j
        for k in range(ptr[j], ptr[j + 1]):
            i = rows[k]
            while seen[i] != j:
                if parent[i] < 0:
                    parent[i] = j
                counts[i] += 1
                seen[i] = j
                i = parent[i]
    work = 0.0
    for j in range(n):
        work += float(counts[j]) * (counts[j] + 1)
    return parent, counts, work


@allocating
def _postorder(parent: Array) -> Array:
    """Every node after all of its children."""
    n = len(parent)
    first, following = np.full(n, -1, np.int64), np.full(n, -1, np.int64)
    for j in range(n - 1, -1, -1):
        if parent[j] >= 0:
            following[j] = first[parent[j]]
            first[parent[j]] = j
    order, stack = np.empty(n, np.int64), np.empty(n, np.int64)
    place = 0
    for root in range(n):
        if parent[root] >= 0:
            continue
        stack[0] = root
        depth = 1
        while depth > 0:
            node = stack[depth - 1]
            if first[node] >= 0:
                stack[depth] = first[node]
                first[node] = following[first[node]]
                depth += 1
            else:
                order[place] = node
                place += 1
                depth -= 1
    return order
