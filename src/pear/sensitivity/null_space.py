"""One reduced KKT system, solved by the null space of its rows in its own units. Exact refinement uses it.

The batched systems decide the rank in the units of the data. That decision is at the limit of float64 where the units
of variables differ by 1e6, or rows are parallel to 1e-10. Here the units of the data do not matter. Rows and columns of

    [ H_FF  J_Fᵀ ]
    [ J_F    0   ]

are scaled together until the largest entry of each is about 1, and only what is rounding then is dropped. A rank that
is still wrong shows: the refinement that calls this has exact residuals, and does not converge.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pear.optimality.duals_and_active_sets import ActiveSet
from pear.optimality.exact_residuals import Array
from pear.problem.quadratic_program import QuadraticProgram

_PASSES = 8


class NullSpace:
    """The reduced system of one dense program on the CPU, decomposed into the range and the null space of its rows.

    Args:
        qp: one program.
        active: the constraints to hold with equality.
    """

    def __init__(self, qp: QuadraticProgram, active: ActiveSet) -> None:
        self._n, self._p = qp.n, qp.p
        self._free, held = (~active.fixed)[0].numpy(), active.rows[0].numpy()
        self._held = np.concatenate([np.ones(qp.p, np.bool_), held])
        H = qp.H[0].numpy()[np.ix_(self._free, self._free)]
        J = np.concatenate([qp.A[0].numpy(), qp.G[0].numpy()[held]])[:, self._free]
        self._column, self._row = _units(H, J)
        self._H = self._column[:, None] * H * self._column
        U, S, Vh = np.linalg.svd(self._row[:, None] * J * self._column)
        rank = int(_counts(S, len(H) + len(J)).sum())
        self._U, self._S, self._V, self._Z = U[:, :rank], S[:rank], Vh[:rank].T, Vh[rank:].T
        values, vectors = np.linalg.eigh(self._Z.T @ self._H @ self._Z)
        curved = _counts(values, len(H) + len(J))
        self.is_curved = bool(curved.all())
        """Whether the objective is curved along every tangent direction."""
        self._along, self._curvature = self._Z @ vectors[:, curved], values[curved]

    def solve(self, f: Tensor, r_eq: Tensor, r_in: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x (1, n) and the multipliers (1, p) and (1, m) for one right-hand side, of least norm in these units.

        Args:
            f: (1, n); r_eq: (1, p); r_in: (1, m). Entries of fixed variables and inactive rows are ignored.
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


def _counts(values: Array, size: int) -> Array:
    """Which singular values or eigenvalues exceed the rounding error of ``size`` rows."""
    return np.asarray(values > np.finfo(np.float64).eps * size * np.abs(values).max(initial=0.0))


def _units(H: Array, J: Array) -> tuple[Array, Array]:
    """Powers of two for columns and rows that bring the largest entry of every one of them near 1."""
    f, k = len(H), len(J)
    size, unit = np.abs(np.block([[H, J.T], [J, np.zeros((k, k))]])), np.ones(f + k)
    for _ in range(_PASSES):
        largest = (unit[:, None] * size * unit).max(1, initial=0.0)
        unit = unit / np.sqrt(np.where(largest > 0, largest, 1.0))
    powers = np.asarray(2.0 ** np.round(np.log2(unit)), np.float64)
    return powers[:f], powers[f:]
