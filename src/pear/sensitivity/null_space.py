"""The reduced KKT system of one sample, rescaled and solved by the null space of its rows. Exact refinement uses it.

The batched systems decide the rank in the units of the data. That decision is unreliable in float64 where the units of
variables differ by a factor of 1e6, or rows are parallel to 1e-10. Here the units of the data do not matter. The rows
and columns of

    [ H_FF  J_Fᵀ ]
    [ J_F    0   ]

are scaled until the largest entry of each is about 1. Singular values at the level of rounding then count as zero. If
the rank is still wrong, the refinement that uses this system notices it, because its exact residuals do not converge.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pear.optimality.duals_and_active_sets import ActiveSet
from pear.optimality.exact_residuals import Array
from pear.problem.quadratic_program import QuadraticProgram

_PASSES = 8  # of scaling


class NullSpace:
    """The reduced system of one dense program on the CPU, decomposed into the range and the null space of its rows.

    Args:
        qp: a batch of one program.
        active: the constraints to hold with equality.
    """

    def __init__(self, qp: QuadraticProgram, active: ActiveSet) -> None:
        self._n, self._p = qp.n, qp.p
        self._free, held = (~active.fixed)[0].numpy(), active.rows[0].numpy()
        self._held = np.concatenate([np.ones(qp.p, np.bool_), held])
        H = qp.H[0].numpy()[np.ix_(self._free, self._free)]
        J = np.concatenate([qp.A[0].numpy(), qp.G[0].numpy()[held]])[:, self._free]
        self._column, self._row = _scaling_factors(H, J)
        self._H = self._column[:, None] * H * self._column
        U, S, Vh = np.linalg.svd(self._row[:, None] * J * self._column)
        rank = int(_are_nonzero(S, len(H) + len(J)).sum())
        self._U, self._S, self._V, self._Z = U[:, :rank], S[:rank], Vh[:rank].T, Vh[rank:].T
        values, vectors = np.linalg.eigh(self._Z.T @ self._H @ self._Z)
        curved = _are_nonzero(values, len(H) + len(J))
        self.is_curved = bool(curved.all())
        """Whether the objective is curved along every tangent direction."""
        self._along, self._curvature = self._Z @ vectors[:, curved], values[curved]

    def solve(self, f: Tensor, r_eq: Tensor, r_in: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Solve for one right-hand side. Where the solution is not unique, take the one of least norm when rescaled.

        Args:
            f: (1, n) right-hand side of stationarity; entries of fixed variables are ignored.
            r_eq: (1, p) right-hand side of the equalities.
            r_in: (1, m) right-hand side of the inequalities; entries of inactive rows are ignored.

        Returns:
            x (1, n), the multipliers of the equalities (1, p), and the multipliers of the inequalities (1, m).
        """
        slope = self._column * f[0].numpy()[self._free]
        rest = self._row * torch.cat([r_eq, r_in], 1)[0].numpy()[self._held]
        dx = self._V @ ((self._U.T @ rest) / self._S)
        dx = dx + self._along @ ((self._along.T @ (slope - self._H @ dx)) / self._curvature)
        dv = self._U @ ((self._V.T @ (slope - self._H @ dx)) / self._S)
        x, v = np.zeros(self._n), np.zeros(len(self._held))
        x[self._free], v[self._held] = self._column * dx, self._row * dv
        found, multipliers = torch.from_numpy(x)[None], torch.from_numpy(v)[None]
        return found, multipliers[:, : self._p], multipliers[:, self._p :]


def _are_nonzero(values: Array, size: int) -> Array:
    """Which singular values or eigenvalues exceed the rounding error of a sum of ``size`` terms. Same shape, bool."""
    return np.asarray(values > np.finfo(np.float64).eps * size * np.abs(values).max(initial=0.0))


def _scaling_factors(H: Array, J: Array) -> tuple[Array, Array]:
    """Scaling factors, powers of two, for columns and rows that bring the largest entry of each near 1.

    Args:
        H: (f, f) curvature.
        J: (k, f) rows.

    Returns:
        The factors of the columns (f,) and of the rows (k,).
    """
    f, k = len(H), len(J)
    size, unit = np.abs(np.block([[H, J.T], [J, np.zeros((k, k))]])), np.ones(f + k)
    for _ in range(_PASSES):
        largest = (unit[:, None] * size * unit).max(1, initial=0.0)
        unit = unit / np.sqrt(np.where(largest > 0, largest, 1.0))
    powers = np.asarray(2.0 ** np.round(np.log2(unit)), np.float64)
    return powers[:f], powers[f:]
