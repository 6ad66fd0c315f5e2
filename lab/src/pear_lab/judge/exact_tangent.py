"""``ExactTangent``: the exact gradient of the regret, from the null space of active constraints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pear_lab.judge.extended_precision import (
    TINY,
    ExtendedFactor,
    Wide,
    extended_cholesky,
    factor_extended,
    solve_extended_cholesky,
    wide,
)
from pear_lab.judge.judged_program import Array, JudgedProgram, Mask
from pear_lab.judge.point_residuals import PointResiduals
from pear_lab.judge.program_units import ProgramUnits

CLEAR = 1e-6
"""The least relative slack of a clearly loose inequality, and the least relative multiplier of a clearly held one."""
TIGHT = 1e-10
"""The largest relative slack of a tight inequality."""
RANK = (1e-15, 1e-10)
"""The range of relative pivots that leave the rank unclear. The library computes ranks from singular values at 1e-11,
which may be several times smaller than the pivots of the same rows."""
CONDITION = 1e10
"""The largest condition number of the curvature on the tangent space at which gradients are compared."""
WRONG = 1e-6
"""The least relative error of a wrong gradient. Rounding errors of the data may raise it."""

_ROUNDING = 10 * 2.2e-16


@dataclass(frozen=True)
class ExactTangent:
    """The tangent space of the constraints that hold a decision of n variables.

    A constraint holds the decision if it stays tight when the costs change a little. G has m rows.

    Attributes:
        s: the program, with curvature H.
        units: the units of the program.
        tight: (m + 2n,) mask of the tight inequalities: rows, lower bounds, upper bounds.
        held: (m + 2n,) mask of the tight inequalities that hold the decision.
        Z: (n, t) an orthonormal basis of the tangent space of t dimensions, in the program's own units.
        L: (t, t) the Cholesky factor of the curvature on the tangent space, ZᵀHZ.
        rounding: the relative error that rounding of the data may cause in the decision and the gradient.
        rows: (r, n) the r equalities and rows of G that hold the decision.
        scale: (r,) the factors by which these rows are multiplied before they are factored.
        factored: the factorisation of the scaled rows on the variables that no bound holds; None without rows.
        rank: the rank of the factored rows.
    """

    s: JudgedProgram
    units: ProgramUnits
    tight: Mask
    held: Mask
    Z: Wide
    L: Wide
    rounding: float
    rows: Wide
    scale: Wide
    factored: ExtendedFactor | None
    rank: int

    @property
    def tolerance(self) -> float:
        """The largest relative error of a gradient that still counts as right."""
        return max(WRONG, self.rounding)

    @property
    def fixed(self) -> Mask:
        """(n,) mask of the variables that a bound holds."""
        m, n = len(self.s.h), self.s.n
        return np.asarray(self.held[m : m + n] | self.held[m + n :])

    def project(self, e: Wide) -> Wide:
        """Compute Z (ZᵀHZ)⁻¹ Zᵀ e for e (n,): the gradient of the regret for the prediction error e."""
        reduced = solve_extended_cholesky(self.L, self.Z.T @ (self.units.column * e))
        return self.units.column * (self.Z @ reduced)

    def error(self, g: Array, e: Array) -> float:
        """Compute the relative error of a gradient g (n,) for the prediction error e (n,).

        The norm of the difference is divided by the norm of the exact gradient. If the exact gradient is tiny, the
        divisor is a millionth of ‖e‖, divided by the largest diagonal entry of H. All are in the program's own units.
        """
        exact, d = self.project(wide(e)), self.units.column
        largest = (np.abs(np.diagonal(self.s.H)) * d * d).max()
        unprojected = np.sqrt(((d * wide(e)) ** 2).sum()) / largest
        size = np.maximum(np.sqrt(((exact / d) ** 2).sum()), 1e-6 * unprojected)
        off = np.sqrt((((wide(g) - exact) / d) ** 2).sum())
        return float(off / size) if size > 0 else float(off > 0)

    def longest_step(self, x: Any, y: tuple[Any, Any], direction: Array) -> float:
        """Compute the largest t such that a change of the cost by ±t · direction keeps the set of tight constraints.

        For a smaller t, the decision and its multipliers are linear functions of t.

        Args:
            x: (n,) the solution.
            y: the multipliers of the rows of G (m,) and of the bounds (n,).
            direction: (n,) the direction in which the cost changes.
        """
        s, z, m = self.s, wide(x), len(self.s.h)
        dx = -self.project(wide(direction))
        room = np.concatenate([wide(s.h) - wide(s.G) @ z, z - s.lb, s.ub - z])
        rate = np.concatenate([wide(s.G) @ dx, dx, dx])
        inside = np.min((room / np.maximum(np.abs(rate), TINY))[~self.tight], initial=np.inf)
        dv, dbound = self.multipliers(wide(direction) + wide(s.H) @ dx)
        movable = self.fixed & (s.lb < s.ub)
        held = np.abs(np.concatenate([wide(y[0])[self.held[:m]], wide(y[1])[movable]]))
        change = np.abs(np.concatenate([dv[len(s.b) :], dbound[movable]]))
        return float(np.min(held / np.maximum(change, TINY), initial=inside))

    def multipliers(self, gradient: Wide) -> tuple[Wide, Wide]:
        """Compute the multipliers of ``rows`` (r,) and of the bounds (n,) that balance a gradient (n,)."""
        v = np.zeros(len(self.rows), np.longdouble)
        if self.factored is not None:
            v = self.factored.least_squares(-(gradient * self.units.column)[~self.fixed], self.rank) * self.scale
        return v, -(gradient + self.rows.T @ v)


def exact_tangent(s: JudgedProgram, units: ProgramUnits, tight: Mask, held: Mask) -> ExactTangent | None:
    """Compute the tangent space of the constraints that ``held`` marks and of the equalities.

    Args:
        s: a dense program.
        units: the units of the program.
        tight, held: (m + 2n,) masks as in ``ExactTangent``.

    Returns:
        The tangent space, or None if the rank of the constraints is not clear, or if the curvature on the tangent space
        is not clearly positive.
    """
    n, m = s.n, len(s.h)
    fixed = held[m : m + n] | held[m + n :]
    rows = np.vstack([wide(s.A), wide(s.G)[held[:m]]])
    scale = np.concatenate([units.row[: len(s.b)], units.row[len(s.b) :][held[:m]]])
    J = (rows * scale[:, None] * units.column)[:, ~fixed]
    Z = np.zeros((n, int((~fixed).sum())), np.longdouble)
    Z[~fixed] = np.eye(Z.shape[1], dtype=np.longdouble)
    rounding, rank, factored = _ROUNDING, 0, None
    if len(J) and Z.shape[1]:
        factored = factor_extended(J.T)
        share = factored.pivots / factored.pivots[0] if factored.pivots[0] > 0 else factored.pivots
        if ((share > RANK[0]) & (share < RANK[1])).any():
            return None
        rank = factored.rank(RANK[1])
        Z = Z[:, : Z.shape[1] - rank].copy()
        Z[~fixed] = factored.null(rank)
        if rank:
            rounding = _ROUNDING / float(share[rank - 1])
    curved = _factor_tangent_curvature(s, units, Z)
    if curved is None:
        return None
    L, condition = curved
    rounding = max(rounding, _ROUNDING * condition)
    return ExactTangent(s, units, tight, held, Z, L, rounding, rows, scale, factored, rank)


def exact_tangent_at(s: JudgedProgram, found: PointResiduals, units: ProgramUnits) -> ExactTangent | None:
    """Compute the tangent space at a solution.

    If a tight constraint has a multiplier of zero, the decision usually has no derivative. It has one if the row of
    this constraint is a linear combination of equalities and of rows with positive multipliers: other multipliers then
    prove the same solution optimal, and are positive on this constraint, too.

    Args:
        s: a dense program.
        found: the residuals of the solution.
        units: the units of the program.

    Returns:
        The tangent space, or None if the decision has no derivative, or if a slack, a pivot or the curvature is too
        close to zero to tell whether it has one.
    """
    n, m = s.n, len(s.h)
    pinned = np.concatenate([np.zeros(m, bool), np.tile(s.lb == s.ub, 2)])
    tight, loose = found.slack <= TIGHT, found.slack >= CLEAR
    if not (tight | loose).all():
        return None
    held = tight & (pinned | (found.multiplier >= CLEAR))
    space = exact_tangent(s, units, tight, held)
    weak, one = tight & ~held, np.eye(n, dtype=np.longdouble)
    others = [(wide(s.G) * units.row[len(s.b) :, None] * units.column)[weak[:m]]]
    others += [one[weak[m : m + n]], one[weak[m + n :]]]
    if space is not None and space.Z.shape[1] and np.max(np.abs(np.vstack(others) @ space.Z), initial=0.0) > RANK[0]:
        return None
    return space


def _factor_tangent_curvature(s: JudgedProgram, units: ProgramUnits, Z: Wide) -> tuple[Wide, float] | None:
    """Factor the curvature on the tangent space with basis Z (n, t).

    Returns:
        The Cholesky factor (t, t) and the condition number, or None if the curvature is not clearly positive.
    """
    if not Z.shape[1]:
        return np.zeros((0, 0), np.longdouble), 1.0
    H = units.column[:, None] * wide(s.H) * units.column
    reduced = Z.T @ H @ Z
    L = extended_cholesky(reduced)
    largest = np.abs(H).max()
    if L is None:
        return None
    least = float(np.linalg.eigvalsh((reduced / largest).astype(float))[0])
    return (L, 1.0 / least) if least * CONDITION > 1 else None
