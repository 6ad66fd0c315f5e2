"""The optimality conditions in extended precision, each relative to the terms it is made of.

A program is first given units of its own: powers of two for variables and rows, such that the largest entry of every
row and column is near 1. In these units nothing depends on whether a variable counts grams or tonnes. Then

- a row's violation is relative to ``|b| + Σⱼ |aⱼ| (|xⱼ| + SHARE · X)``, X the largest decision in those units;
- a component of the gradient is relative to ``|cⱼ| + Σₖ |Hⱼₖ| (|xₖ| + SHARE · X) + Σᵢ |aᵢⱼ| min(|yᵢ|, C)``, where C is
  the size of the objective's gradient: huge multipliers that cancel each other excuse nothing;
- a multiplier is relative to the same sizes, at the variable where it matters most;
- for every inequality either the slack or the multiplier is zero: the smaller of the two counts, not their product.

Multipliers are a proof, and a proof in float64 may be coarser than the point: where the returned ones fall short, they
are corrected in extended precision before the point is judged. The returned ones must still hold relative to all their
terms, however large.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pear_lab.judge.extended_precision import EPSILON, Wide, factor_extended, wide
from pear_lab.judge.judged_program import Array, JudgedProgram

TOLERANCE = 1e-8
"""Largest relative residual of a point that is right."""
SHARE = 1e-2
"""Share of the largest entry, in a program's own units, below which no entry's size falls."""
ROUNDING = 1e-4
"""Share of the objective's gradient below which no multiplier's size falls, before SHARE is taken of it."""
UNSEEN = 1e-6
"""Share of a component of the gradient that extended precision may not see, where multipliers of 1e12 cancel."""
LEAST = 1e-4
"""Share of the smallest number of the data below which no decision matters: for decisions that are zero."""


@dataclass(frozen=True)
class Multipliers:
    """Multipliers of the minimised program, ``Hz + c + Aᵀ equality + Gᵀ inequality + bound = 0``.

    Attributes:
        equality: (p,) multipliers of A.
        inequality: (m,) multipliers of G.
        bound: (n,) multipliers of the bounds.
    """

    equality: Wide
    inequality: Wide
    bound: Wide


@dataclass(frozen=True)
class ProgramUnits:
    """Powers of two that a program is measured in.

    Attributes:
        column: (n,) unit of each variable.
        row: (p + m,) factor of each row of A and G.
    """

    column: Wide
    row: Wide

    @classmethod
    def of(cls, s: JudgedProgram) -> ProgramUnits:
        """Compute the units that equilibrate A and G. Variables that no row contains get theirs from the curvature."""
        M = np.abs(np.vstack([s.A, s.G]))
        column: Array = np.ones(s.n)
        row: Array = np.ones(len(M))
        curved = np.sqrt(np.abs(np.diagonal(s.H)))
        for _ in range(3 if len(M) else 0):
            row = _reciprocal((M * column).max(1, initial=0.0))
            column = _reciprocal((M * row[:, None]).max(0, initial=0.0))
            row = _reciprocal((M * column).max(1, initial=0.0))
        inside = M.any(0) if len(M) else np.zeros(s.n, bool)
        typical = np.median((curved * column)[inside & (curved > 0)]) if (inside & (curved > 0)).any() else 1.0
        column = np.where(~inside & (curved > 0), typical / _positive(curved), column)
        return cls(wide(2.0 ** np.round(np.log2(column))), wide(2.0 ** np.round(np.log2(row))))

    @classmethod
    def ones(cls, s: JudgedProgram) -> ProgramUnits:
        """Units of 1: the program as it is given."""
        return cls(np.ones(s.n, np.longdouble), np.ones(len(s.b) + len(s.h), np.longdouble))


@dataclass(frozen=True)
class PointResiduals:
    """How far a point is from optimal; all are relative.

    Attributes:
        primal: largest violation of a row or bound.
        stationarity: largest residual of the gradient.
        sign: largest multiplier of the wrong sign.
        complementarity: largest of min(slack, multiplier) over the inequalities.
        slack, multiplier: (m + 2n,) of rows, lower and upper bounds; infinite and zero where absent.
        size: (n,) natural sizes of the decision's entries.
        gradient_size: (n,) natural sizes of the gradient's entries.
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


def measure_point(s: JudgedProgram, x: Array, y: Multipliers, units: ProgramUnits | None = None) -> PointResiduals:
    """Measure the residuals of x with the given multipliers, or with corrected ones if the given ones fall short."""
    units = ProgramUnits.of(s) if units is None else units
    found = point_residuals(s, wide(x), y, units)
    if found.worst <= TOLERANCE or point_residuals(s, wide(x), y, units, capped=False).worst > TOLERANCE:
        return found
    corrected = point_residuals(s, wide(x), correct_point_multipliers(s, wide(x), y, units), units)
    return corrected if corrected.worst < found.worst else found


def point_residuals(
    s: JudgedProgram, x: Wide, y: Multipliers, units: ProgramUnits, capped: bool = True
) -> PointResiduals:
    """The residuals of x (n,) and its multipliers.

    With ``capped``, a term of the gradient counts at most as much as the objective's gradient, so that huge multipliers
    do not make residuals look small. Without it, every term counts in full.
    """
    A, G, H = wide(s.A), wide(s.G), wide(s.H)
    X = point_size(s, x, units)
    size = np.abs(x) + SHARE * units.column * X
    gradient_size = _gradient_size(s, size, np.concatenate([y.equality, y.inequality]), units, capped)
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
        primal=_largest_or_inf(np.concatenate([np.abs(equality), -slack])),
        stationarity=_largest_or_inf(np.maximum(np.abs(gradient) - unseen, 0) / gradient_size),
        sign=_largest_or_inf(-multiplier),
        complementarity=_largest_or_inf(both),
        slack=slack,
        multiplier=multiplier,
        size=size,
        gradient_size=gradient_size,
    )


def point_slacks(s: JudgedProgram, x: Wide, size: Wide) -> tuple[Wide, Wide]:
    """Relative slacks (m + 2n,) of rows, lower and upper bounds, and relative residuals (p,) of the equalities."""
    A, b, G, h, lb, ub = (wide(v) for v in (s.A, s.b, s.G, s.h, s.lb, s.ub))
    rows = (h - G @ x) / _positive(np.abs(G) @ size + _finite_magnitudes(h))
    lower = (x - lb) / (size + _finite_magnitudes(lb))
    upper = (ub - x) / (size + _finite_magnitudes(ub))
    return np.concatenate([rows, lower, upper]), (A @ x - b) / _positive(np.abs(A) @ size + np.abs(b))


def point_size(s: JudgedProgram, x: Wide, units: ProgramUnits) -> Wide:
    """The largest entry of x in the program's own units, with a floor where all are zero."""
    rhs = np.concatenate([s.b, s.h])
    limits = [np.abs(wide(rhs)) * units.row, np.abs(wide(s.lb)) / units.column, np.abs(wide(s.ub)) / units.column]
    curvature = (units.column**2 * np.abs(np.diagonal(s.H))).max()
    if curvature > 0:
        limits.append(np.abs(wide(s.c)) * units.column / curvature)
    found = np.concatenate(limits)
    found = found[np.isfinite(found) & (found > 0)]
    least = LEAST * found.min() if len(found) else np.longdouble(1.0)
    return np.maximum((np.abs(x) / units.column).max(), least)


def correct_point_multipliers(s: JudgedProgram, x: Wide, y: Multipliers, units: ProgramUnits) -> Multipliers:
    """The multipliers on the same constraints that balance the gradient best, in extended precision."""
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
    return Multipliers(equality, inequality, np.where(free, 0, -rest))


def point_objective(s: JudgedProgram, x: Array) -> tuple[float, float]:
    """½ xᵀHx + cᵀx in extended precision, and the size of its terms."""
    z = wide(x)
    curved, linear = z * (wide(s.H) @ z) / 2, wide(s.c) * z
    units = ProgramUnits.of(s)
    size = np.maximum(np.abs(z), SHARE * units.column * point_size(s, z, units))
    terms = (size * (np.abs(wide(s.H)) @ size) / 2 + np.abs(wide(s.c)) * size).sum()
    return float((curved + linear).sum()), float(terms)


def _gradient_size(s: JudgedProgram, size: Wide, y: Wide, units: ProgramUnits, capped: bool) -> Wide:
    """(n,) size of the terms of the gradient; multipliers count up to the size of the objective's gradient."""
    own = np.abs(wide(s.c)) + np.abs(wide(s.H)) @ size
    largest = (own * units.column).max()
    counted = np.minimum(np.abs(y), units.row * largest) if capped else np.abs(y)
    # where every gradient is zero, multipliers are rounding of the terms that cancelled
    floor = SHARE * units.row * np.maximum((counted / units.row).max(initial=0), ROUNDING * largest)
    terms = own + np.abs(np.vstack([wide(s.A), wide(s.G)])).T @ (counted + floor)
    return np.where(terms > 0, terms, _positive(SHARE * ROUNDING * largest) / units.column)


def _positive(values: Wide) -> Wide:
    """The values, and 1 where they are zero, so that they can be divided by."""
    return np.where(values > 0, values, 1)


def _reciprocal(values: Array) -> Array:
    """1 / values, and 1 where they are zero."""
    return np.asarray(1.0 / np.where(values > 0, values, 1.0), dtype=np.float64)


def _finite_magnitudes(values: Wide) -> Wide:
    return np.where(np.isfinite(values), np.abs(values), 0)


def _largest_or_inf(values: Wide) -> float:
    """The largest, at least 0; infinite where one is NaN."""
    return float("inf") if np.isnan(values).any() else float(np.max(values, initial=0.0))
