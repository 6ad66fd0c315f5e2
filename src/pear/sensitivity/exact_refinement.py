"""Refinement with exact residuals, for systems whose terms cancel beyond the accuracy of float64.

Nearly parallel rows can have multipliers of 1e9 whose terms cancel each other. The rounding errors of these terms in
float64 then exceed the largest allowed residual. Each round of the refinement therefore computes the residual of a
reduced KKT system exactly, solves the system for a correction in float64, and adds the correction to a point that is
stored as the sum of two vectors. Each round gains as many digits as the factorisation has, so that a few rounds suffice
even if rows are parallel up to 1e-10.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pear.optimality.duals_and_active_sets import ActiveSet, Duals
from pear.optimality.kkt_residual import OptimalityResiduals
from pear.optimality.verification import Verification, verify
from pear.problem.quadratic_program import QuadraticProgram

Array = NDArray[np.float64]

_ROUNDS = 12
_SCALING_PASSES = 8
_SPLITTER = 2.0**27 + 1.0  # splits the 53 bits of a float64 into two halves


@dataclass
class RefinementVector:
    """A vector of about twice the digits of float64, stored as the sum ``high + low`` of two float64 vectors.

    Attributes:
        high: (k,) the vector rounded to float64.
        low: (k,) the rounding error of ``high``; zero by default.
    """

    high: Array
    low: Array = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        self.low = self.low if len(self.low) else np.zeros_like(self.high)

    def add(self, change: Array) -> None:
        """Add a float64 vector in place. The rounding error of the addition is kept in ``low``."""
        total = self.high + change
        back = total - self.high
        lost = (self.high - (total - back)) + (change - back)
        low = self.low + lost
        self.high = total + low
        self.low = low - (self.high - total)


class RefinementSystem:
    """The reduced KKT system of one dense program on the CPU, with exact residuals and float64 corrections.

    ``DenseReducedSystems`` decides the rank of the active rows in the units of the data. In float64 this decision is
    unreliable if the units of variables differ by a factor of 1e6, or if rows are parallel up to 1e-10. Therefore this
    class scales the rows and columns of

        [ H_FF  J_Fᵀ ]
        [ J_F    0   ]

    until the largest entry of each is about 1. H is the curvature, F are the free variables, and J has the equalities
    and the active inequalities as rows. Singular values at the level of rounding count as zero. If the rank is still
    wrong, the exact residuals do not converge, which the refinement notices.

    Args:
        qp: a batch of one program.
        active: the constraints to hold with equality.

    Attributes:
        is_curved: whether the objective is curved along every tangent direction.
    """

    def __init__(self, qp: QuadraticProgram, active: ActiveSet) -> None:
        data: dict[str, Any] = {
            name: getattr(qp, name)[0].numpy() for name in ("H", "c", "A", "b", "G", "h", "lb", "ub")
        }
        self._data, self._active, self._p = data, active, qp.p
        self._columns = np.concatenate([data["H"], data["A"].T, data["G"].T], 1)
        self._rows = np.concatenate([data["A"], data["G"]])
        self._free, held = (~active.fixed)[0].numpy(), active.rows[0].numpy()
        self._held = np.concatenate([np.ones(qp.p, np.bool_), held])
        H, J = data["H"][np.ix_(self._free, self._free)], self._rows[self._held][:, self._free]
        self._column, self._row = _refinement_scaling(H, J)
        self._H = self._column[:, None] * H * self._column
        U, S, Vh = np.linalg.svd(self._row[:, None] * J * self._column)
        rank = int(_exceeds_exact_rounding(S, len(H) + len(J)).sum())
        self._U, self._S, self._V, Z = U[:, :rank], S[:rank], Vh[:rank].T, Vh[rank:].T
        values, vectors = np.linalg.eigh(Z.T @ self._H @ Z)
        curved = _exceeds_exact_rounding(values, len(H) + len(J))
        self.is_curved = bool(curved.all())
        self._along, self._curvature = Z @ vectors[:, curved], values[curved]

    def refine(self, x: RefinementVector, y: RefinementVector) -> OptimalityResiduals:
        """Correct a point and its multipliers in place, while each correction is less than half of the one before.

        Args:
            x: (n,) the point.
            y: (p + m,) the multipliers of the rows.

        Returns:
            The residuals of the optimality conditions at the corrected point, accurate to the last digit.
        """
        left, n, smallest = self._exact_residuals(x, y), len(x.high), np.inf
        first: Array | None = None
        for _ in range(_ROUNDS):
            change = self._solve(left)
            sizes = np.array([np.abs(part).max(initial=0.0) for part in np.split(change, [n])])
            first = np.where(sizes > 0, sizes, 1.0) if first is None else first
            size = float((sizes / first).max())  # relative to the first correction, because x may go to zero
            if not size < 0.5 * smallest:  # also true if size is NaN
                break
            smallest = size
            x.add(change[:n])
            y.add(change[n:])
            left = self._exact_residuals(x, y)
        return left

    def _exact_residuals(self, x: RefinementVector, y: RefinementVector) -> OptimalityResiduals:
        """Compute the residuals of the optimality conditions at x (n,) with the multipliers y (p + m,) of the rows."""
        data = self._data
        both = RefinementVector(np.concatenate([x.high, y.high]), np.concatenate([x.low, y.low]))
        absent = np.isinf(data["h"])
        rows = _exact_affine(self._rows, x, np.concatenate([-data["b"], np.where(absent, 0.0, -data["h"])]))
        values = (
            _exact_affine(data["H"], x),
            _exact_affine(self._columns, both, data["c"]),
            rows[: self._p],
            np.where(absent, np.inf, -rows[self._p :]),
            (x.high - data["lb"]) + x.low,
            (data["ub"] - x.high) - x.low,
        )
        return OptimalityResiduals(*(torch.from_numpy(np.asarray(value))[None] for value in values))

    def _solve(self, left: OptimalityResiduals) -> Array:
        """Compute the correction (n + p + m,) of x and the multipliers that removes the residuals ``left``.

        If several corrections remove them, the result is the one of least norm in the scaled units.
        """
        slope = self._column * -left.gradient[0].numpy()[self._free]
        rest = self._row * torch.cat([-left.equality, left.rows], 1)[0].numpy()[self._held]
        dx = self._V @ ((self._U.T @ rest) / self._S)
        dx = dx + self._along @ ((self._along.T @ (slope - self._H @ dx)) / self._curvature)
        dv = self._U @ ((self._V.T @ (slope - self._H @ dx)) / self._S)
        x, v = np.zeros(len(self._free)), np.zeros(len(self._held))
        x[self._free], v[self._held] = self._column * dx, self._row * dv
        return np.concatenate([x, v])


def refine_solution(qp: QuadraticProgram, x: Tensor, duals: Duals, working: ActiveSet) -> Verification:
    """Refine one point (1, n) on its working set, and verify it by its exact residuals.

    Args:
        qp: a batch of one dense program on the CPU.
        x: (1, n) a point near the solution.
        duals: the multipliers of the point.
        working: the constraints to hold with equality.
    """
    held = torch.cat([torch.ones(1, qp.p, dtype=torch.bool), working.rows], 1)[0].numpy()
    point = RefinementVector(torch.where(working.lower, qp.lb, torch.where(working.upper, qp.ub, x))[0].numpy().copy())
    y = RefinementVector(np.where(held, torch.cat([duals.equality, duals.inequality], 1)[0].numpy(), 0.0))
    left = RefinementSystem(qp, working).refine(point, y)
    equality, inequality = torch.from_numpy(y.high.copy())[None].split([qp.p, qp.m], 1)
    refined = Duals(equality, inequality, torch.where(working.fixed, -left.gradient, 0.0))
    return verify(qp, torch.from_numpy(point.high.copy())[None], refined, working, left, exact=True)


def refine_projection(
    qp: QuadraticProgram, active: ActiveSet, e: Tensor, x: Tensor, v_eq: Tensor, v_in: Tensor
) -> tuple[Tensor, Tensor, Tensor, bool]:
    """Refine the projection P e of one sample.

    P e is the solution of the program with cost −e whose constraints are the active constraints of ``qp``, with
    right-hand sides of zero.

    Args:
        qp: a batch of one dense program on the CPU.
        active: the constraints that define the tangent space.
        e: (1, n) the vector to project.
        x: (1, n) an approximation of P e.
        v_eq: (1, p) the multipliers of the equalities at x.
        v_in: (1, m) the multipliers of the inequalities at x.

    Returns:
        P e (1, n), the multipliers (1, p) and (1, m), and whether the objective is curved along every tangent
        direction.
    """
    zero: dict[str, Any] = {name: torch.zeros_like(getattr(qp, name)) for name in ("b", "h")}
    lb, ub = torch.full_like(qp.lb, -torch.inf), torch.full_like(qp.ub, torch.inf)
    system = RefinementSystem(replace(qp, c=-e, **zero, lb=lb, ub=ub), active)
    g, v = (RefinementVector(value[0].numpy().copy()) for value in (x, torch.cat([v_eq, v_in], 1)))
    system.refine(g, v)
    refined_eq, refined_in = torch.from_numpy(v.high)[None].split([qp.p, qp.m], 1)
    return torch.from_numpy(g.high)[None], refined_eq, refined_in, system.is_curved


def _exceeds_exact_rounding(values: Array, size: int) -> Array:
    """Return which singular values or eigenvalues exceed the rounding error of a sum of ``size`` terms, as a mask."""
    return np.asarray(values > np.finfo(np.float64).eps * size * np.abs(values).max(initial=0.0))


def _refinement_scaling(H: Array, J: Array) -> tuple[Array, Array]:
    """Compute powers of two that scale the largest entry of each column and row of ``[H Jᵀ; J 0]`` to about 1.

    Args:
        H: (f, f) curvature.
        J: (k, f) rows.

    Returns:
        The factors of the columns (f,) and of the rows (k,).
    """
    f, k = len(H), len(J)
    size, unit = np.abs(np.block([[H, J.T], [J, np.zeros((k, k))]])), np.ones(f + k)
    for _ in range(_SCALING_PASSES):
        largest = (unit[:, None] * size * unit).max(1, initial=0.0)
        unit = unit / np.sqrt(np.where(largest > 0, largest, 1.0))
    powers = np.asarray(2.0 ** np.round(np.log2(unit)), np.float64)
    return powers[:f], powers[f:]


def _exact_affine(matrix: Array, x: RefinementVector, *constants: Array) -> Array:
    """Compute ``matrix @ x`` plus the constants, with a single rounding error in each entry. Shape (r,).

    Args:
        matrix: (r, k) coefficients.
        x: (k,) the vector.
        *constants: vectors (r,) to add.
    """
    terms = [
        *_exact_products(matrix, x.high),
        matrix * x.low,
        *(constant[:, None] for constant in constants),
    ]
    return np.array([math.fsum(row) for row in np.concatenate(terms, 1).tolist()])


def _exact_products(matrix: Array, x: Array) -> tuple[Array, Array]:
    """Compute the products ``matrix[i, j] * x[j]`` in float64, and their exact rounding errors. Shapes (r, k)."""
    product = matrix * x
    a_high, a_low = _exact_halves(matrix)
    b_high, b_low = _exact_halves(x)
    lost = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return product, lost


def _exact_halves(value: Array) -> tuple[Array, Array]:
    """Split numbers into two summands with half of their digits each, so that products of summands are exact."""
    scaled = _SPLITTER * value
    high = scaled - (scaled - value)
    return high, value - high
