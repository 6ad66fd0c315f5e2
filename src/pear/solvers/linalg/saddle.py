"""Sparse saddle-point systems ``[H + D, Jᵀ; J, −E]`` with diagonal D and E: directly, or by conjugate gradients.

The structure is analysed once; each pair of diagonals is then factored into the same structure. Where the factor would
fill up (curvature that couples variables at random), only the diagonal of H is factored together with all of J, and
that *constraint preconditioner* drives conjugate gradients: every search direction satisfies the rows exactly, and on
those directions the system is positive definite.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from pear.solvers.linalg.ldl import Factor, Ordering
from pear.solvers.linalg.ordering import Array

_MAX_ITERATIONS = 300
_PASS = 1e-10  # conjugate gradients cannot reach rounding in one go; refinement starts them again
_CHEAP = 1e4  # multiplications per unknown up to which a factorisation beats conjugate gradients
_MAX_WORK = 2e10  # multiplications that a factorisation may take at all


class SaddlePattern:
    """The structure of ``[H + D, Jᵀ; J, −E]``, analysed once.

    Args:
        H: (n, n) symmetric, both triangles.
        J: (r, n) rows.

    Attributes:
        affordable: False where not even the preconditioner can be factored.
        direct: True where the whole matrix is.
    """

    def __init__(self, H: sparse.csr_array, J: sparse.csr_array) -> None:
        self.H, self.J, self.JT = H, J, sparse.csr_array(J.T)
        self.n, self.rows = H.shape[0], J.shape[0]
        self.curvature: Array = H.diagonal()
        coupled = sparse.triu(H, 1, format="csr")
        coupled.eliminate_zeros()
        self.direct = True
        self._assemble(coupled)
        self._ordering = Ordering(self._upper, _CHEAP * (self.n + self.rows) if coupled.nnz else _MAX_WORK)
        if not self._ordering.affordable and coupled.nnz:
            self.direct = False
            self._assemble(sparse.csr_array(coupled.shape))
            self._ordering = Ordering(self._upper, _MAX_WORK)
        self.affordable = self._ordering.affordable

    def _assemble(self, coupled: sparse.csr_array) -> None:
        size = self.n + self.rows
        off = sparse.block_array([[coupled, self.JT], [None, sparse.csr_array((self.rows, self.rows))]], format="csc")
        off.eliminate_zeros()
        # ones keep the diagonal in the pattern; their values are set with every factorisation
        self._upper = sparse.csc_array(off + sparse.eye_array(size, format="csc"))
        self._upper.sort_indices()
        self._diagonal = self._upper.indptr[1:] - 1  # the last entry of each column of an upper triangle

    def factor(self, D: Array, E: Array) -> Saddle:
        """Factor with the diagonals D (n,) and E (r,), both such that the matrix is quasi-definite."""
        data = self._upper.data.copy()
        data[self._diagonal] = np.concatenate([self.curvature + D, -E])
        return Saddle(self, D, E, self._ordering.factor(data))


class Saddle:
    """One factored system; ``succeeded`` tells whether it can be used."""

    def __init__(self, pattern: SaddlePattern, D: Array, E: Array, factor: Factor) -> None:
        self._pattern, self._D, self._E, self._factor = pattern, D, E, factor
        self.succeeded = factor.succeeded

    @property
    def fill(self) -> int:
        """Entries of the factor."""
        return self._factor.fill

    @property
    def is_positive(self) -> bool:
        """True where every pivot is positive: the matrix (without rows) is positive definite."""
        return self.succeeded and self._factor.is_positive

    def solve(self, f: Array, r: Array, tolerance: float = _PASS, refinements: int = 1) -> tuple[Array, Array]:
        """The solution x (n,), v (r,) for the right-hand side f (n,), r (r,).

        Args:
            f, r: the right-hand side.
            tolerance: relative residual at which conjugate gradients stop; a direct solve needs none.
            refinements: how often a direct solve is corrected by its own residual.
        """
        rhs = np.concatenate([f, r])
        solution = self._factor.solve(rhs)
        if not self._pattern.direct:
            solution = self._conjugate_gradients(rhs, solution, tolerance)
        else:
            for _ in range(refinements):
                solution = solution + self._factor.solve(rhs - self._times(solution))
        return solution[: len(f)], solution[len(f) :]

    def _times(self, vector: Array) -> Array:
        pattern = self._pattern
        x, v = vector[: pattern.n], vector[pattern.n :]
        return np.concatenate([pattern.H @ x + self._D * x + pattern.JT @ v, pattern.J @ x - self._E * v])

    def _conjugate_gradients(self, rhs: Array, solution: Array, tolerance: float) -> Array:
        """Preconditioned by the factor of the system without H's coupling; the rows' residual stays zero."""
        n = self._pattern.n
        rest = rhs - self._times(solution)
        goal = tolerance * max(np.abs(rhs).max(initial=0.0), 1e-300)
        along = step = self._factor.solve(rest)
        size = rest @ step
        for _ in range(_MAX_ITERATIONS):
            if np.abs(rest[:n]).max(initial=0.0) <= goal or not size > 0:
                break
            image = self._times(along)
            curvature = along @ image
            if not curvature > 0:
                break
            length = size / curvature
            solution = solution + length * along
            rest = rest - length * image
            step = self._factor.solve(rest)
            new = rest @ step
            along = step + new / size * along
            size = new
        return solution
