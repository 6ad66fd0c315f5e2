"""Sparse saddle-point systems ``[H + D, Jᵀ; J, −E]`` with diagonal D and E.

The structure is analysed once for all pairs of diagonals. Most systems are solved by factors of the whole matrix. If
off-diagonal entries of H would fill the factors, only the diagonal of H is factored, together with all of J. These
factors are a *constraint preconditioner* for conjugate gradients: all search directions satisfy the rows exactly, and
the system is positive definite on these directions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import sparse

from pear.solvers.linalg import Array
from pear.solvers.linalg.ldl import LDLFactor, SymbolicLDL

if TYPE_CHECKING:
    from pear.solvers.linalg.supernodes import SupernodeBlocks

_MAX_ITERATIONS = 300
_PASS = 1e-10  # tolerance of conjugate gradients, which refinement restarts, because one pass cannot reach rounding
_CHEAP = 1e4  # multiplications per unknown; conjugate gradients replace a costlier factorisation of the whole matrix
_MAX_WORK = 2e10  # the largest number of multiplications of any factorisation
_FEW = 2  # the elimination of a variable with at most so many entries causes no fill


class SaddlePattern:
    """The structure of the saddle-point systems ``[H + D, Jᵀ; J, −E]``, analysed once.

    Args:
        H: (n, n) the symmetric curvature, both triangles.
        J: (r, n) the r rows.

    Attributes:
        affordable: False if all possible factors, those of the preconditioner included, take too many multiplications.
        direct: True if the whole matrix is factored, False if conjugate gradients are used.
    """

    def __init__(self, H: sparse.csr_array, J: sparse.csr_array) -> None:
        self.H, self.J, self.JT = H, J, sparse.csr_array(J.T)
        self.JT.sum_duplicates()
        self.JT.eliminate_zeros()
        self.n, self.rows = H.shape[0], J.shape[0]
        self.curvature: Array = H.diagonal()
        coupled = sparse.triu(H, 1, format="csr")
        coupled.eliminate_zeros()
        self.direct = True
        self._assemble(coupled)
        self._ordering = SymbolicLDL(self._upper, _CHEAP * (self.n + self.rows) if coupled.nnz else _MAX_WORK)
        if not self._ordering.affordable and coupled.nnz:
            self.direct = False
            self._assemble(sparse.csr_array(coupled.shape))
            self._ordering = SymbolicLDL(self._upper, _MAX_WORK)
        self.affordable = self._ordering.affordable

    def _assemble(self, coupled: sparse.csr_array) -> None:
        """Build the pattern of the matrix that remains after some variables are eliminated.

        These are the variables with at most two entries in J and none in ``coupled``. Every good elimination order
        begins with them. Without them, finding an order and factoring take less time. The method also records how
        their elimination changes the numbers of the matrix.

        Args:
            coupled: (n, n) the entries of H above the diagonal that are to be factored.
        """
        joined = np.diff(self.JT.indptr) > _FEW
        joined |= np.bincount(np.concatenate(coupled.nonzero()), minlength=self.n) > 0
        kept, size = np.flatnonzero(joined), int(joined.sum()) + self.rows
        self.alone: Array | slice = np.flatnonzero(~joined)
        self.left: Array | slice = np.concatenate([kept, np.arange(self.n, self.n + self.rows)])
        if not len(kept):  # slices need no copies
            self.alone, self.left = slice(self.n), slice(self.n, None)
        self.alone_JT = sparse.csr_array(self.JT[self.alone])
        self.alone_J = sparse.csr_array(self.alone_JT.T)
        H, J = sparse.coo_array(coupled[kept][:, kept]), sparse.coo_array(self.JT[kept])
        pairs, shift, everything = _find_saddle_row_pairs(self.alone_JT), len(kept), np.arange(size)
        row = np.concatenate([everything, H.row, J.row, pairs.first + shift])
        column = np.concatenate([everything, H.col, J.col + shift, pairs.second + shift])
        numbered = sparse.coo_array((np.arange(len(row)), (row, column)), shape=(size, size))
        numbered.has_canonical_format = True  # there are no duplicates, and the order of rows does not matter
        self._upper = sparse.csc_array(numbered)
        place = np.empty_like(self._upper.data)
        place[self._upper.data] = np.arange(len(row))
        self._diagonal, in_H, in_J, in_pairs = np.split(place, np.cumsum([size, len(H.data), len(J.data)]))
        self._data = np.zeros(len(row))
        self._data[in_H], self._data[in_J] = H.data, J.data
        at = np.concatenate([self._diagonal[self.alone_JT.indices + shift], in_pairs[pairs.which]])
        taken = -pairs.products, (at, pairs.variables)
        self._taken = sparse.csr_array(taken, shape=(len(row), self.n - len(kept)))

    @property
    def numbers(self) -> tuple[SupernodeBlocks, Array, Array, sparse.csr_array]:
        """The data from which compiled functions factor the whole matrix; valid if ``direct`` is True.

        The tuple holds the storage plan, the numbers of the matrix that remains after some variables are eliminated,
        with zeros on the diagonal, the positions of the diagonal among these numbers, and a matrix T. The elimination
        adds T d to the numbers, where d is the inverse diagonal of the eliminated variables.
        """
        return self._ordering.blocks, self._data, self._diagonal, self._taken

    def factor(self, D: Array, E: Array) -> Saddle:
        """Return the factored system with the diagonals D (n,) and E (one entry per row). It must be quasi-definite."""
        diagonal, data = np.concatenate([self.curvature + D, -E]), self._data.copy()
        with np.errstate(divide="ignore"):  # a pivot of zero is detected later
            inverse = 1.0 / diagonal[self.alone]
        data[self._diagonal] = diagonal[self.left]
        return Saddle(self, D, E, self._ordering.factor(data + self._taken @ inverse), inverse)


class _SaddleRowPairs(NamedTuple):
    """What the elimination of variables with at most two entries in J changes in the matrix that remains.

    A variable with an entry in one row changes the diagonal at this row, in proportion to the square of the entry. A
    variable with entries in two rows changes the diagonal at both rows, and the off-diagonal entry of this pair of
    rows, in proportion to the product of its two entries.

    Attributes:
        first, second: the two rows of each pair, with ``first < second``. No pair is repeated.
        which: for each variable with two entries, the position of its pair in ``first`` and ``second``.
        products: the squares of all entries of these variables, then the products of the variables with two entries.
        variables: the variable to which each of these squares and products belongs.
    """

    first: Array
    second: Array
    which: Array
    products: Array
    variables: Array


def _find_saddle_row_pairs(columns: sparse.csr_array) -> _SaddleRowPairs:
    """Find what the elimination of variables with at most two entries in J changes.

    Args:
        columns: (variables, r) the columns of J that belong to these variables, as the rows of a matrix.
    """
    rows, values, entries = columns.indices.astype(np.int64), columns.data, np.diff(columns.indptr)
    two = np.flatnonzero(entries == 2)
    a, b, size = columns.indptr[two], columns.indptr[two] + 1, columns.shape[1]
    keys = np.minimum(rows[a], rows[b]) * size + np.maximum(rows[a], rows[b])
    pairs, which = np.unique(keys, return_inverse=True)
    variables = np.concatenate([np.repeat(np.arange(len(entries)), entries), two])
    products = np.concatenate([values**2, values[a] * values[b]])
    return _SaddleRowPairs(*(np.divmod(pairs, size) if size else (pairs, pairs)), which, products, variables)


class Saddle:
    """A factored saddle-point system for one pair of diagonals.

    Args:
        pattern: the structure of the system.
        D: (n,) the diagonal that is added to H.
        E: (r,) the diagonal of the lower right block −E, without the minus sign, for r rows.
        factor: the factors of the matrix that remains after some variables are eliminated.
        inverse: the inverse diagonal entries of these variables.

    Attributes:
        succeeded: False if a pivot is zero or not finite. Then nothing can be solved.
    """

    def __init__(self, pattern: SaddlePattern, D: Array, E: Array, factor: LDLFactor, inverse: Array) -> None:
        self._pattern, self._D, self._E, self._factor, self._inverse = pattern, D, E, factor, inverse
        self.succeeded = factor.succeeded and bool(np.isfinite(inverse).all())

    @property
    def fill(self) -> int:
        """The number of stored entries of the factor."""
        return self._factor.fill

    @property
    def is_positive(self) -> bool:
        """True if every pivot is positive. A system without rows is then positive definite."""
        return self.succeeded and self._factor.is_positive and bool((self._inverse > 0).all())

    def solve(self, f: Array, r: Array, tolerance: float = _PASS, refinements: int = 1) -> tuple[Array, Array]:
        """Solve ``(H + D) x + Jᵀv = f`` and ``J x − E v = r``.

        Args:
            f: (n,) right-hand side of the first equation.
            r: right-hand side of the second equation, one entry per row of J.
            tolerance: relative residual at which conjugate gradients stop; not used if the whole matrix is factored.
            refinements: how often the residual corrects the solution if the whole matrix is factored.

        Returns:
            x (n,), and v with one entry per row of J.
        """
        rhs = np.concatenate([f, r])
        solution = self._solve_by_factor(rhs)
        if not self._pattern.direct:
            solution = self._conjugate_gradients(rhs, solution, tolerance)
        else:
            for _ in range(refinements):
                solution = solution + self._solve_by_factor(rhs - self._matrix_times(solution))
        return solution[: len(f)], solution[len(f) :]

    def _solve_by_factor(self, rhs: Array) -> Array:
        """Return the solution of the factored system: the whole system, or that of the preconditioner.

        Args:
            rhs: (n + r,) the right-hand side for n variables and r rows.
        """
        pattern = self._pattern
        if not pattern.alone_J.shape[1]:
            return self._factor.solve(rhs)
        own, solution, rest = rhs[pattern.alone], np.empty_like(rhs), rhs.copy()
        rest[pattern.n :] -= pattern.alone_J @ (own * self._inverse)
        solution[pattern.left] = self._factor.solve(rest[pattern.left])
        solution[pattern.alone] = self._inverse * (own - pattern.alone_JT @ solution[pattern.n :])
        return solution

    def _matrix_times(self, vector: Array) -> Array:
        """Return the product of the whole matrix and a vector with an entry for each variable, then for each row."""
        pattern = self._pattern
        x, v = vector[: pattern.n], vector[pattern.n :]
        return np.concatenate([pattern.H @ x + self._D * x + pattern.JT @ v, pattern.J @ x - self._E * v])

    def _conjugate_gradients(self, rhs: Array, solution: Array, tolerance: float) -> Array:
        """Improve a solution by conjugate gradients. The residuals of the rows stay zero.

        Args:
            rhs: (n + r,) the right-hand side for n variables and r rows.
            solution: (n + r,) the solution of the preconditioner, which satisfies the rows.
            tolerance: the relative residual at which the iterations stop.

        Returns:
            (n + r,) the improved solution.
        """
        n = self._pattern.n
        rest = rhs - self._matrix_times(solution)
        goal = tolerance * max(np.abs(rhs).max(initial=0.0), 1e-300)
        along = step = self._solve_by_factor(rest)
        size = rest @ step
        for _ in range(_MAX_ITERATIONS):
            if np.abs(rest[:n]).max(initial=0.0) <= goal or not size > 0:
                break
            image = self._matrix_times(along)
            curvature = along @ image
            if not curvature > 0:
                break
            length = size / curvature
            solution = solution + length * along
            rest = rest - length * image
            step = self._solve_by_factor(rest)
            new = rest @ step
            along = step + new / size * along
            size = new
        return solution
