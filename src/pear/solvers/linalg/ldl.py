"""Sparse LDLᵀ factors of symmetric quasi-definite matrices.

A quasi-definite matrix ``[H Jᵀ; J −D]`` with positive definite H and D has factors LDLᵀ in *every* elimination order,
without pivoting. One order, chosen for little fill only (approximate minimum degree), therefore serves all matrices
with the same pattern of non-zeros. The order and the structure of L are computed once, and the numbers for each matrix.

Why not a library? These are processor milliseconds for one factorisation of a KKT matrix and, in brackets, one solve:

====================  ===========  ===========  ==========
matrix                ours         qdldl 0.1.9  SciPy splu
====================  ===========  ===========  ==========
40×40 paths           0.4 (0.09)   0.6 (0.06)   4.4 (0.10)
100×100 paths         3.3 (0.66)   6.6 (0.50)   41 (0.71)
200×200 paths         19 (3.8)     51 (4.5)     187 (4.5)
20 batteries, 168 h   0.7 (0.25)   1.1 (0.13)   7.4 (0.21)
transport, 50 to 100  0.3 (0.09)   0.6 (0.05)   3.0 (0.07)
====================  ===========  ===========  ==========

qdldl has no limit like ``max_work``, which stops before the factors are computed if they would cost too much.
Of the packages with supernodes, CHOLMOD (scikit-sparse) has no wheels, and PARDISO comes only with MKL. Nested
dissection (METIS) instead of minimum degree saves few multiplications on grids and takes longer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from pear.solvers.linalg import Array

if TYPE_CHECKING:
    from pear.solvers.linalg.supernodes import SupernodeBlocks


class SymbolicLDL:
    """The symbolic LDLᵀ factorisation of a symmetric pattern: the elimination order and the structure of L.

    Args:
        matrix: (n, n) the upper triangle with the whole diagonal, in canonical CSC form. Only its pattern is used.
        max_work: the largest number of multiplications that a factorisation may take.

    Attributes:
        affordable: False if a factorisation takes more multiplications than ``max_work``. Then ``factor`` must not be
            called.
        fill: the number of entries below the diagonal of L.
        blocks: the storage plan of L.
    """

    def __init__(self, matrix: sparse.csc_array, max_work: float) -> None:
        from pear.solvers.linalg import elimination_order, supernodes  # numba, which takes a moment to import

        n = matrix.shape[0]
        self.fill = 0
        indptr, indices = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64)
        order, self.affordable = elimination_order.minimum_degree_order(
            n, *elimination_order.elimination_graph(n, indptr, indices), max_work
        )
        if not self.affordable:
            return
        ptr, rows, _ = elimination_order.permute_to_elimination_order(n, indptr, indices, order)
        # the postorder has the same fill, and numbers that are used together are stored together
        order = order[elimination_order.elimination_postorder(elimination_order.elimination_tree(n, ptr, rows)[0])]
        ptr, rows, found = elimination_order.permute_to_elimination_order(n, indptr, indices, order)
        parent, counts, work = elimination_order.elimination_tree(n, ptr, rows)
        self.fill = int(counts.sum())
        self.affordable = bool(work <= max_work)
        if self.affordable:
            self.blocks = supernodes.find_supernodes(order, (ptr, rows, found), parent, counts)
            self._free: list[Array] = []

    def factor(self, data: Array) -> LDLFactor:
        """Return the factors of a matrix with this pattern.

        Args:
            data: the numbers of the upper triangle, in the order of the CSC form.
        """
        from pear.solvers.linalg.supernode_factors import factorise_supernodes

        try:
            L = self._free.pop()
        except IndexError:
            L = np.empty(self.blocks.start[-1])
        pivots, found = factorise_supernodes(self.blocks, data, L)
        return LDLFactor(self.blocks, L, pivots, found, self._free)


class LDLFactor:
    """The factors L and D of one matrix, in the elimination order.

    Args:
        blocks: the storage plan of L.
        L: the numbers of L.
        pivots: (n,) the diagonal of D.
        found: the number of pivots that were computed.
        free: a list that receives the memory of L when this object is deleted.

    Attributes:
        succeeded: False if a pivot was zero or not finite.
    """

    def __init__(self, blocks: SupernodeBlocks, L: Array, pivots: Array, found: int, free: list[Array]) -> None:
        self._blocks, self._L, self._pivots, self._free = blocks, L, pivots, free
        self.succeeded = found == len(pivots)

    def __del__(self) -> None:
        # the next factorisation reuses this memory; new memory would take a fifth of the time of a factorisation
        self._free.append(self._L)

    @property
    def fill(self) -> int:
        """The number of entries of L that are stored."""
        return len(self._L)

    @property
    def is_positive(self) -> bool:
        """True if every pivot is positive, so that the matrix is positive definite."""
        return bool((self._pivots > 0).all())

    def solve(self, rhs: Array) -> Array:
        """Solve the system for one right-hand side (n,). Shape (n,)."""
        from pear.solvers.linalg.triangular import solve_triangular

        return solve_triangular(self._blocks, self._L, self._pivots, rhs)
