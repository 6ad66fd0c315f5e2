"""Linear algebra in extended precision (numpy's longdouble) for small matrices, written without LAPACK.

On x86-64 a longdouble has a mantissa of 64 bits and an exponent of 15 bits. It has three more decimal digits than
float64, and the square of 1e200 does not overflow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Wide = NDArray[np.longdouble]

EPSILON = float(np.finfo(np.longdouble).eps)
TINY = np.longdouble("1e-2000")  # a divisor in place of zero


def wide(value: Any) -> Wide:
    """Convert an array to extended precision."""
    return np.asarray(value, dtype=np.longdouble)


@dataclass(frozen=True)
class ExtendedFactor:
    """The factorisation M P = Q R of a matrix M (n, k), by Householder reflections with column pivoting.

    The permutation P puts the columns of M in the order of ``order``.

    Attributes:
        Q: (n, n) an orthogonal matrix.
        R: (n, k) an upper triangular matrix.
        order: (k,) the columns of M in the order of the columns of R.
        pivots: (min(n, k),) the absolute values of the diagonal of R, in descending order.
    """

    Q: Wide
    R: Wide
    order: NDArray[np.intp]
    pivots: Wide

    def rank(self, tolerance: float) -> int:
        """Return the number of pivots above ``tolerance`` times the largest one."""
        if not len(self.pivots) or self.pivots[0] == 0:
            return 0
        return int((self.pivots > tolerance * self.pivots[0]).sum())

    def null(self, rank: int) -> Wide:
        """Return an orthonormal basis (n, n − rank) of the orthogonal complement of M's columns, for M of this rank."""
        return self.Q[:, rank:]

    def least_squares(self, rhs: Wide, rank: int) -> Wide:
        """Return the v (k,) that minimises ‖Mv − rhs‖ for rhs (n,), with zeros for columns outside ``order[:rank]``."""
        v = np.zeros(self.R.shape[1], np.longdouble)
        v[self.order[:rank]] = solve_extended_upper(self.R[:rank, :rank], (self.Q.T @ rhs)[:rank])
        return v

    def smallest_norm(self, rhs: Wide, rank: int) -> Wide:
        """Return the x (n,) of least norm with ``Mᵀx = rhs`` (k,) in the equations of the columns ``order[:rank]``."""
        w = np.zeros(self.Q.shape[0], np.longdouble)
        w[:rank] = solve_extended_lower(self.R[:rank, :rank].T, rhs[self.order[:rank]])
        return self.Q @ w


def factor_extended(matrix: Any) -> ExtendedFactor:
    """Factor a matrix (n, k) in extended precision."""
    R = wide(matrix).copy()
    n, k = R.shape
    Q, order = np.eye(n, dtype=np.longdouble), np.arange(k)
    steps = min(n, k)
    for s in range(steps):
        squares = (R[s:, s:] ** 2).sum(0)
        best = s + int(squares.argmax())
        if squares[best - s] == 0:
            break
        if best != s:
            R[:, [s, best]], order[[s, best]] = R[:, [best, s]], order[[best, s]]
        v = R[s:, s].copy()
        v[0] += np.copysign(np.sqrt((v * v).sum()), v[0])
        v /= np.sqrt((v * v).sum())
        R[s:, s:] -= 2 * np.outer(v, v @ R[s:, s:])
        R[s + 1 :, s] = 0
        Q[:, s:] -= 2 * np.outer(Q[:, s:] @ v, v)
    return ExtendedFactor(Q, R, order, np.abs(np.diagonal(R))[:steps])


def solve_extended_upper(U: Wide, rhs: Wide) -> Wide:
    """Solve ``U x = rhs`` for an upper triangular U."""
    x = rhs.copy()
    for i in range(len(x) - 1, -1, -1):
        x[i] = (x[i] - U[i, i + 1 :] @ x[i + 1 :]) / U[i, i]
    return x


def solve_extended_lower(L: Wide, rhs: Wide) -> Wide:
    """Solve ``L x = rhs`` for a lower triangular L."""
    x = rhs.copy()
    for i in range(len(x)):
        x[i] = (x[i] - L[i, :i] @ x[:i]) / L[i, i]
    return x


def solve_extended_cholesky(L: Wide, rhs: Wide) -> Wide:
    """Solve ``L Lᵀ x = rhs`` for a lower triangular L."""
    return solve_extended_upper(L.T, solve_extended_lower(L, rhs))


def extended_cholesky(M: Wide) -> Wide | None:
    """Return the lower triangular L with ``L Lᵀ = M``, or None if M is not positive definite."""
    L = M.copy()
    for k in range(len(M)):
        if not L[k, k] > 0:
            return None
        L[k, k] = np.sqrt(L[k, k])
        L[k + 1 :, k] /= L[k, k]
        L[k + 1 :, k + 1 :] -= np.outer(L[k + 1 :, k], L[k + 1 :, k])
        L[k, k + 1 :] = 0
    return L
