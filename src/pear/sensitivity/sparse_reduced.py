"""The reduced KKT system of one large sparse program.

This is the system of ``pear.sensitivity.dense_reduced`` with a sparse factorisation. Rows and columns are equilibrated,
the rows get a relative shift, and the solution is refined to rounding. Rows without a free variable are left out, and
their multipliers are zero.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pear.optimality.rule import PROJECTED, SHARP
from pear.problem.quadratic_program import QuadraticProgram
from pear.sensitivity.program_curvature import curvature_sign
from pear.solvers.interior_point.sparse_interior_point import equilibrated_program
from pear.solvers.linalg.saddle import SaddlePattern

Array = NDArray[Any]

_SHIFT = 1e-10  # shift of the rows relative to the curvature, for rows that are nearly dependent
_LIFT = (
    1e-7  # shift of a curvature that may be singular, and of the rows then; larger, so that rounding does not hide it
)
_SMALL = 0.2  # share of the unknowns; an exchange of constraints then takes a fraction of an interior-point iteration
_REFINEMENTS = 40
_STALLED = 0.7  # refinement stops where more than this share of the residual remains


class SparseReducedKKT:
    """The factorised reduced system of one sample.

    Args:
        qp: the program; only its matrices matter.
        fixed: (n,) bool, variables at a bound.
        rows: (m,) bool, active rows of G.
    """

    def __init__(self, qp: QuadraticProgram, fixed: Array, rows: Array) -> None:
        self._n, self._p, self._m = qp.n, qp.p, qp.m
        self._free = np.flatnonzero(~fixed)
        whole, self._units = equilibrated_program(qp), equilibrated_program(qp).columns[self._free]
        H = _principal(whole.pattern.H, self._free, qp.diagonal)
        J = sparse.csr_array(whole.by_columns[:, self._free])
        held = np.concatenate([np.ones(qp.p, bool), rows])
        self._rows = np.flatnonzero(held & (np.diff(J.indptr) > 0))
        J = sparse.csr_array(J[self._rows])
        squares = np.asarray(J.multiply(J).sum(1)).reshape(-1)
        # rows are scaled to length one, so that the shift does not depend on their units
        length = np.sqrt(np.where(squares > 0, squares, 1.0))
        J = sparse.csr_array(sparse.diags_array(1 / length) @ J) if len(self._rows) else J
        self._length = length / whole.rows[self._rows]
        pattern = SaddlePattern(H, J)
        self._pattern = pattern
        top = float(pattern.curvature.max(initial=0.0))
        self._max_curvature = top if top > 0 else 1.0
        lift, shift = (0.0, _SHIFT) if curvature_sign(qp) > 0 else (_LIFT, _LIFT)
        D, E = np.full(pattern.n, lift * self._max_curvature), np.full(pattern.rows, shift / self._max_curvature)
        self._system = pattern.factor(D, E) if pattern.affordable else None

    @property
    def usable(self) -> bool:
        """False where the system could not be factored."""
        return self._system is not None and self._system.succeeded

    @property
    def small(self) -> bool:
        """True where the system has at most a fifth of the unknowns of the whole program."""
        return self._pattern.n + self._pattern.rows <= _SMALL * (self._n + self._p + self._m)

    @property
    def fill(self) -> int:
        """The number of stored entries of the factor and the rows."""
        return self._system.fill + 4 * self._pattern.J.nnz if self._system is not None else 0

    def solve(self, f: Array, r: Array) -> tuple[Array, Array, bool]:
        """Solve for x and v with ``[H Jᵀ; J 0][x; v] = [f; r]``.

        Args:
            f: (n,) right-hand side of stationarity; entries of fixed variables are ignored.
            r: (p + m,) right-hand side of the rows; entries of rows that are not in the system are ignored.

        Returns:
            x (n,), zero on fixed variables; v (p + m,), zero on rows that are not in the system; and whether the
            residual vanished up to rounding.
        """
        x, v = np.zeros(self._n), np.zeros(self._p + self._m)
        if not self.usable:
            return x, v, False
        free_x, free_v, good = self._refined(f[self._free] * self._units, r[self._rows] / self._length)
        x[self._free], v[self._rows] = free_x * self._units, free_v / self._length
        return x, v, good

    def is_curved(self) -> bool:
        """Whether the objective is curved along every tangent direction, tested by projecting one random vector."""
        e = np.random.default_rng(0).standard_normal(self._n)
        return self.solve(e, np.zeros(self._p + self._m))[2]

    def _refined(self, f: Array, r: Array) -> tuple[Array, Array, bool]:
        assert self._system is not None
        H, J, JT = self._pattern.H, self._pattern.J, self._pattern.JT
        x, v = np.zeros_like(f), np.zeros_like(r)
        rest_f, rest_r = f, r
        last = np.inf
        for _ in range(_REFINEMENTS):
            dx, dv = self._system.solve(rest_f, rest_r, refinements=0)
            if not (np.isfinite(dx).all() and np.isfinite(dv).all()):
                return x, v, False
            x, v = x + dx, v + dv
            terms = H @ x, JT @ v
            rest_f, rest_r = f - terms[0] - terms[1], r - J @ x
            rest = self._relative(rest_f, rest_r, f, r, x, terms)
            if rest <= SHARP or rest > _STALLED * last:
                return x, v, rest <= PROJECTED
            last = rest
        return x, v, False

    def _relative(
        self, rest_f: Array, rest_r: Array, f: Array, r: Array, x: Array, terms: tuple[Array, Array]
    ) -> float:
        """The residual (rest_f, rest_r) relative to the terms it is computed from."""
        if not len(f):
            return 0.0
        largest = float((np.abs(terms[0]) + np.abs(terms[1]) + np.abs(f)).max())
        size = max(float(np.abs(x).max()), float(np.abs(f).max()) / self._max_curvature)
        size += float(np.abs(r).max(initial=0.0))
        over_f = float(np.abs(rest_f).max()) / largest if largest > 0 else 0.0
        return max(over_f, float(np.abs(rest_r).max(initial=0.0)) / size if size > 0 else 0.0)


def _principal(H: sparse.csr_array, free: Array, diagonal: bool) -> sparse.csr_array:
    """The rows and columns of H that belong to the free variables."""
    if diagonal:
        return sparse.csr_array(sparse.diags_array(H.diagonal()[free]))
    return sparse.csr_array(H[free][:, free])
