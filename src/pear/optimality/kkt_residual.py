"""The KKT residual: how far a point is from optimal, free of units. All solvers are judged by the same residual."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pear.optimality.duals_and_active_sets import Duals
from pear.optimality.natural_sizes import PointSizes, Sizes
from pear.optimality.rule import EPSILON
from pear.optimality.tensor_record import TensorRecord
from pear.problem.matrix import matvec, plus_matvec, plus_tmatvec
from pear.problem.quadratic_program import QuadraticProgram


@dataclass(frozen=True)
class OptimalityResiduals(TensorRecord):
    """The residuals of the optimality conditions at a point, in the units of the data.

    Attributes:
        curvature: (B, n) the product Hx.
        gradient: (B, n) ``Hx + c + Aᵀ equality + Gᵀ inequality`` with the multipliers, but without those of bounds.
        equality: (B, p) the residuals Ax − b.
        rows: (B, m) the slacks h − Gx: infinite for an absent row, negative for a violated row.
        lower: (B, n) the slacks x − lb: infinite for an absent bound, negative for a violated bound.
        upper: (B, n) the slacks ub − x: infinite for an absent bound, negative for a violated bound.
    """

    curvature: Tensor
    gradient: Tensor
    equality: Tensor
    rows: Tensor
    lower: Tensor
    upper: Tensor


def optimality_residuals(
    qp: QuadraticProgram, x: Tensor, duals: Duals, curvature: Tensor | None = None
) -> OptimalityResiduals:
    """Compute the residuals of the optimality conditions at points x.

    Args:
        qp: the programs.
        x: (B, n) the points.
        duals: the multipliers of the points.
        curvature: (B, n) the product Hx; None to compute it.
    """
    curvature = matvec(qp.H, x) if curvature is None else curvature
    gradient = kkt_gradient(qp, x, duals, curvature)
    equality = plus_matvec(qp.b, qp.A, x, -1.0) if qp.p else duals.equality
    rows = qp.h - matvec(qp.G, x) if qp.m else duals.inequality
    return OptimalityResiduals(curvature, gradient, equality, rows, x - qp.lb, qp.ub - x)


def kkt_gradient(qp: QuadraticProgram, x: Tensor, duals: Duals, curvature: Tensor | None = None) -> Tensor:
    """Compute ``Hx + c + Aᵀ equality + Gᵀ inequality``, the gradient of the Lagrangian without the bounds.

    Args:
        qp: the programs.
        x: (B, n) the points.
        duals: the multipliers of the points.
        curvature: (B, n) the product Hx; None to compute it.

    Returns:
        (B, n).
    """
    gradient = (matvec(qp.H, x) if curvature is None else curvature) + qp.c
    gradient = plus_tmatvec(gradient, qp.A, duals.equality) if qp.p else gradient
    return plus_tmatvec(gradient, qp.G, duals.inequality) if qp.m else gradient


def kkt_residual(qp: QuadraticProgram, x: Tensor, duals: Duals) -> Tensor:
    """Compute the largest scaled violation of the optimality conditions at points x.

    All rows count as scaled to length one, and multipliers as those of the scaled rows.

    * Primal violations are |Ax − b|, the positive part of Gx − h, and violations of the bounds. They are divided by the
      primal unit, the largest absolute entry of the decision.
    * Dual violations are the residual of stationarity and multipliers of the wrong sign. They are divided by the dual
      unit, which is the largest among the absolute entries of the cost and of Hx, and a fraction of the terms that Hx
      is summed from.
    * Violations of complementarity are products of a multiplier and its slack, divided by both units.

    Both units have a small minimum, which is computed from ``least_size`` and matters only for decisions near zero.

    Args:
        qp: the programs.
        x: (B, n) the points.
        duals: the multipliers of the points.

    Returns:
        (B,) the KKT residuals.
    """
    left, sizes = optimality_residuals(qp, x, duals), Sizes.cached(qp)
    return scaled_kkt_residual(qp, duals, left, sizes, PointSizes.at(qp, x, duals, left, sizes))


def scaled_kkt_residual(
    qp: QuadraticProgram, duals: Duals, left: OptimalityResiduals, sizes: Sizes, units: PointSizes
) -> Tensor:
    """Compute the KKT residuals (B,) of points, as ``kkt_residual`` does, from residuals and sizes that are known.

    Args:
        qp: the programs.
        duals: the multipliers of the points.
        left: the residuals of the optimality conditions at the points.
        sizes: the sizes of the data.
        units: the sizes at the points.
    """
    unit, size = units.dual_unit, units.size
    slack = torch.where(duals.bound < 0, left.lower, left.upper)  # of the bound that the multiplier belongs to
    parts = [
        units.gradient / unit,
        torch.minimum(left.lower, left.upper).clamp(max=0) / size,
        duals.bound / unit * _finite_kkt_slack(slack / size),
    ]
    if qp.p:
        parts.append(left.equality / sizes.norms_A / size)
    if qp.m:
        slack, multiplier = left.rows / sizes.norms_G / size, duals.inequality * sizes.norms_G / unit
        parts += [slack.clamp(max=0), multiplier.clamp(max=0), multiplier * _finite_kkt_slack(slack)]
    return torch.linalg.vector_norm(torch.cat(parts, -1), torch.inf, dim=-1)


def stationarity_rounding(duals: Duals, sizes: Sizes, units: PointSizes) -> Tensor:
    """Bound the rounding errors (B,) of the residual of stationarity, in the dual unit of the KKT residual.

    If multipliers of dependent rows cancel each other, their terms may be 1e16 times the cost. The rounding errors are
    then as large as the cost, and a residual of zero proves nothing. An error in the residual of a variable at a bound
    only changes the multiplier of the bound. It does no harm if it is too small to change the sign of this multiplier.
    The absolute multiplier is therefore subtracted from the error of the variable, and the result is negative if no
    error does harm. For a variable whose bounds coincide, the error counts as zero.

    Args:
        duals: the multipliers of the points.
        sizes: the sizes of the data.
        units: the sizes at the points.
    """
    error = EPSILON * units.terms - duals.bound.abs()
    error = error if sizes.pinned is None else error.masked_fill(sizes.pinned, 0.0)
    return error.amax(-1) / units.dual_unit[..., 0]


def _finite_kkt_slack(slack: Tensor) -> Tensor:
    """Replace infinite slacks by 1, so that the multiplier of an absent constraint counts as a violation."""
    return slack.masked_fill(slack == torch.inf, 1.0)
