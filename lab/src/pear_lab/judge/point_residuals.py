"""The residuals of the optimality conditions at a point, in extended precision and relative to their terms.

All numbers in these formulas are in the units of ``ProgramUnits``, and s is the constant ``SHARE``, a hundredth.

The entry xⱼ of the decision has the size |xⱼ| + s X, where X is the largest |xⱼ|. The slack or the violation of a row
with entries aⱼ and right-hand side b is divided by ``|b| + Σⱼ |aⱼ| (|xⱼ| + s X)``. A bound is a row with one entry, 1.

The component j of the gradient has a size to which the objective and every row contribute. The objective contributes
``|cⱼ| + Σₖ |Hⱼₖ| (|xₖ| + s X)``. Let C be the largest of these contributions over j. The row i with entries aᵢⱼ and
multiplier yᵢ contributes ``|aᵢⱼ| (min(|yᵢ|, C) + s Y)``, where Y is the largest min(|yᵢ|, C) over i. The limit C keeps
huge multipliers that cancel each other from hiding a residual. The residual of the component is divided by its size.

The relative multiplier of an inequality i is the largest quotient, over j, of ``|aᵢⱼ| yᵢ`` and the size of component j.
The complementarity of an inequality is the smaller of its relative slack and its relative multiplier.

Multipliers in float64 may be less accurate than the point that they prove optimal. They are corrected in extended
precision if the residuals are above ``TOLERANCE`` with the limit C, and not above it without this limit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pear_lab.judge.extended_precision import EPSILON, Wide, factor_extended, wide
from pear_lab.judge.judged_program import Array, JudgedProgram
from pear_lab.judge.program_units import ProgramUnits

TOLERANCE = 1e-8
"""The largest relative residual of a point that is right."""
SHARE = 1e-2
"""The least size of a decision's entry, relative to the largest entry in the program's own units."""
ROUNDING = 1e-4
"""The least size of a multiplier, relative to the objective's gradient and to ``SHARE``."""
UNSEEN = 1e-6
"""The largest rounding error of a gradient's component that is forgiven, relative to the size of the component."""
LEAST = 1e-4
"""The least size of a decision, relative to the smallest limit of the program. It matters for decisions of zero."""


@dataclass(frozen=True)
class PointMultipliers:
    """Multipliers of a program that is minimised: ``Hz + c + Aᵀ equality + Gᵀ inequality + bound = 0`` at a solution z.

    Attributes:
        equality: (p,) multipliers of A.
        inequality: (m,) multipliers of G.
        bound: (n,) multipliers of the bounds.
    """

    equality: Wide
    inequality: Wide
    bound: Wide


@dataclass(frozen=True)
class PointResiduals:
    """The relative residuals of the optimality conditions at a point.

    Attributes:
        primal: the largest violation of a row or bound.
        stationarity: the largest residual of a component of the gradient.
        sign: the largest multiplier of the wrong sign.
        complementarity: the largest of min(slack, multiplier) over the inequalities, without bounds that are equal.
        slack: (m + 2n,) relative slacks of rows, lower bounds and upper bounds; infinite for an absent limit.
        multiplier: (m + 2n,) relative multipliers of the same limits; zero for an absent limit.
        size: (n,) the sizes of the decision's entries, from which the divisors of violations are computed.
        gradient_size: (n,) the sizes of the gradient's components, by which their residuals are divided.
    """

    primal: float
    stationarity: float
    sign: float
    complementarity: float
    slack: Wide
    multiplier: Wide
    size: Wide
    gradient_size: Wide

    @property
    def worst(self) -> float:
        """The largest of the four residuals; infinite if one is NaN."""
        parts = (self.primal, self.stationarity, self.sign, self.complementarity)
        return max(parts) if all(np.isfinite(p) for p in parts) else float("inf")

    def __str__(self) -> str:
        return (
            f"primal {self.primal:.1e}, stationarity {self.stationarity:.1e}, sign {self.sign:.1e}, "
            f"complementarity {self.complementarity:.1e}"
        )


def measure_point_residuals(
    s: JudgedProgram, x: Array, y: PointMultipliers, units: ProgramUnits | None = None
) -> PointResiduals:
    """Measure the residuals of a point with its multipliers, which are corrected if that makes the residuals smaller.

    The docstring of the module says when a correction is tried.

    Args:
        s: a dense program.
        x: (n,) the point.
        y: the multipliers of the point.
        units: the units of the program; computed if omitted.
    """
    units = ProgramUnits.of(s) if units is None else units
    found = point_residuals(s, wide(x), y, units)
    if found.worst <= TOLERANCE or point_residuals(s, wide(x), y, units, capped=False).worst > TOLERANCE:
        return found
    corrected = point_residuals(s, wide(x), correct_point_multipliers(s, wide(x), y, units), units)
    return corrected if corrected.worst < found.worst else found


def point_residuals(
    s: JudgedProgram, x: Wide, y: PointMultipliers, units: ProgramUnits, capped: bool = True
) -> PointResiduals:
    """Compute the residuals of a point with the given multipliers.

    Args:
        s: a dense program.
        x: (n,) the point.
        y: the multipliers of the point.
        units: the units of the program.
        capped: whether multipliers count at most as the limit C in the sizes of the gradient's components. C is that of
            the module's docstring.
    """
    A, G, H = wide(s.A), wide(s.G), wide(s.H)
    X = point_size(s, x, units)
    size = np.abs(x) + SHARE * units.column * X
    gradient_size = _point_gradient_size(s, size, np.concatenate([y.equality, y.inequality]), units, capped)
    slack, equality = point_slacks(s, x, size)
    own = np.concatenate([-np.minimum(y.bound, 0), np.maximum(y.bound, 0)]) / np.tile(gradient_size, 2)
    scaled = np.where(np.abs(G) > 0, np.abs(G) / gradient_size, 0)
    rows = y.inequality * scaled.max(1, initial=0)
    multiplier = np.concatenate([rows, own])
    gradient = H @ x + wide(s.c) + A.T @ y.equality + G.T @ y.inequality + y.bound
    terms = np.abs(A).T @ np.abs(y.equality) + np.abs(G).T @ np.abs(y.inequality)
    unseen = np.minimum(8 * EPSILON * terms, UNSEEN * gradient_size)  # rounding of this very sum
    pinned = np.concatenate([np.zeros(len(s.h), bool), np.tile(s.lb == s.ub, 2)])
    both = np.where(pinned, 0, np.minimum(np.maximum(slack, 0), np.maximum(multiplier, 0)))
    return PointResiduals(
        primal=_largest_point_residual(np.concatenate([np.abs(equality), -slack])),
        stationarity=_largest_point_residual(np.maximum(np.abs(gradient) - unseen, 0) / gradient_size),
        sign=_largest_point_residual(-multiplier),
        complementarity=_largest_point_residual(both),
        slack=slack,
        multiplier=multiplier,
        size=size,
        gradient_size=gradient_size,
    )


def point_slacks(s: JudgedProgram, x: Wide, size: Wide) -> tuple[Wide, Wide]:
    """Compute the relative slacks of all inequalities, and the relative residuals of the equalities.

    Args:
        s: a dense program.
        x: (n,) a point.
        size: (n,) the sizes of the entries of x.

    Returns:
        Slacks (m + 2n,) of rows, lower bounds and upper bounds, and residuals (p,).
    """
    A, b, G, h, lb, ub = (wide(v) for v in (s.A, s.b, s.G, s.h, s.lb, s.ub))
    rows = (h - G @ x) / _residual_divisors(np.abs(G) @ size + _residual_limit_sizes(h))
    lower = (x - lb) / (size + _residual_limit_sizes(lb))
    upper = (ub - x) / (size + _residual_limit_sizes(ub))
    return np.concatenate([rows, lower, upper]), (A @ x - b) / _residual_divisors(np.abs(A) @ size + np.abs(b))


def point_size(s: JudgedProgram, x: Wide, units: ProgramUnits) -> Wide:
    """Return the largest magnitude in x (n,) in the given units, or a small positive number if that is larger."""
    rhs = np.concatenate([s.b, s.h])
    limits = [np.abs(wide(rhs)) * units.row, np.abs(wide(s.lb)) / units.column, np.abs(wide(s.ub)) / units.column]
    curvature = (units.column**2 * np.abs(np.diagonal(s.H))).max()
    if curvature > 0:
        limits.append(np.abs(wide(s.c)) * units.column / curvature)
    found = np.concatenate(limits)
    found = found[np.isfinite(found) & (found > 0)]
    least = LEAST * found.min() if len(found) else np.longdouble(1.0)
    return np.maximum((np.abs(x) / units.column).max(), least)


def correct_point_multipliers(s: JudgedProgram, x: Wide, y: PointMultipliers, units: ProgramUnits) -> PointMultipliers:
    """Return multipliers that balance the gradient best, computed in extended precision.

    Multipliers of inequalities and bounds that are zero in ``y`` stay zero.
    """
    free, held = y.bound == 0, y.inequality != 0
    rows = np.vstack([wide(s.A), wide(s.G)[held]])
    scale = np.concatenate([units.row[: len(s.b)], units.row[len(s.b) :][held]])
    J = (rows * scale[:, None] * units.column)[:, free].T
    equality, inequality = y.equality.copy(), y.inequality.copy()
    gradient = wide(s.H) @ x + wide(s.c)
    if free.any() and J.shape[1]:
        factored = factor_extended(J)
        rank = factored.rank(EPSILON * 64)
        for _ in range(2):
            missing = gradient + wide(s.A).T @ equality + wide(s.G).T @ inequality
            v = factored.least_squares(-(missing * units.column)[free], rank) * scale
            equality = equality + v[: len(equality)]
            inequality[held] += v[len(equality) :]
    rest = gradient + wide(s.A).T @ equality + wide(s.G).T @ inequality
    return PointMultipliers(equality, inequality, np.where(free, 0, -rest))


def point_objective(s: JudgedProgram, x: Array) -> tuple[float, float]:
    """Return ½ xᵀHx + cᵀx for x (n,), computed in extended precision, and the sum of the magnitudes of its terms."""
    z = wide(x)
    curved, linear = z * (wide(s.H) @ z) / 2, wide(s.c) * z
    units = ProgramUnits.of(s)
    size = np.maximum(np.abs(z), SHARE * units.column * point_size(s, z, units))
    terms = (size * (np.abs(wide(s.H)) @ size) / 2 + np.abs(wide(s.c)) * size).sum()
    return float((curved + linear).sum()), float(terms)


def _point_gradient_size(s: JudgedProgram, size: Wide, y: Wide, units: ProgramUnits, capped: bool) -> Wide:
    """Compute the sizes (n,) of the gradient's components.

    Args:
        s: a dense program.
        size: (n,) the sizes of the decision's entries.
        y: (p + m,) the multipliers of A and G.
        units: the units of the program.
        capped: as for ``point_residuals``.
    """
    own = np.abs(wide(s.c)) + np.abs(wide(s.H)) @ size
    largest = (own * units.column).max()
    counted = np.minimum(np.abs(y), units.row * largest) if capped else np.abs(y)
    # if the gradient of the objective is zero, multipliers are rounding errors of terms that cancelled
    floor = SHARE * units.row * np.maximum((counted / units.row).max(initial=0), ROUNDING * largest)
    terms = own + np.abs(np.vstack([wide(s.A), wide(s.G)])).T @ (counted + floor)
    return np.where(terms > 0, terms, _residual_divisors(SHARE * ROUNDING * largest) / units.column)


def _residual_divisors(values: Wide) -> Wide:
    """Return the values, with 1 in place of zeros, so that they can be divided by."""
    return np.where(values > 0, values, 1)


def _residual_limit_sizes(values: Wide) -> Wide:
    """Return |values|, and 0 for a value that is not finite."""
    return np.where(np.isfinite(values), np.abs(values), 0)


def _largest_point_residual(values: Wide) -> float:
    """Return the largest value, at least 0; infinite if a value is NaN."""
    return float("inf") if np.isnan(values).any() else float(np.max(values, initial=0.0))
