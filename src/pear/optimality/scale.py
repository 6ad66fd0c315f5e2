"""Natural sizes: what every slack and every multiplier is compared with, one by one.

A problem may hold a bound of 1e9 that nobody reaches or a cost of 1e6 that keeps one variable out. Tolerances relative
to the largest number of a sample would then be coarse for all others. Each constraint therefore has sizes of its own:
the terms that its slack and its multiplier are computed from, and a share of the sample's largest, whose rounding
spreads to all. A variable's share is no larger than the distance between its bounds, which tell its units.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pear.optimality.point import Duals
from pear.optimality.rule import FLOOR, NEGLIGIBLE, SHARE_OF_FORCE, SHARE_OF_SIZE
from pear.problem.canonical import QuadraticProgram, matvec, row_squares, tmatvec

if TYPE_CHECKING:
    from pear.optimality.residual import Residuals  # which measures by these sizes


@dataclass(frozen=True)
class Measured:
    """Slacks, multipliers and residuals of a point, each divided by its natural size.

    Attributes:
        slack_rows, slack_lower, slack_upper: (B, m), (B, n), (B, n); infinite where absent, negative where violated.
        multiplier_rows, multiplier_lower, multiplier_upper: positive where rightly signed.
        equality: (B, p) residuals of the equalities.
        stationarity: (B, n) residuals of the gradient, multipliers of the bounds included.
    """

    slack_rows: Tensor
    slack_lower: Tensor
    slack_upper: Tensor
    multiplier_rows: Tensor
    multiplier_lower: Tensor
    multiplier_upper: Tensor
    equality: Tensor
    stationarity: Tensor


def measure(qp: QuadraticProgram, x: Tensor, duals: Duals, left: Residuals) -> Measured:
    """Measure points x (B, n), their multipliers, and what is left of the optimality conditions there."""
    diagonal = qp.H.diagonal(dim1=1, dim2=2)
    abs_a, abs_g, abs_x = qp.A.abs(), qp.G.abs(), x.abs()
    terms = left.curvature.abs() + qp.c.abs()
    terms = terms + tmatvec(abs_a, duals.equality.abs()) + tmatvec(abs_g, duals.inequality.abs())
    floor = FLOOR * least_size(qp, diagonal)
    largest = torch.maximum(terms.amax(1, keepdim=True), floor * diagonal.amax(1, keepdim=True))
    largest = torch.maximum(largest, curvature_terms(diagonal, x))
    dual_scale = positive(torch.maximum(terms, SHARE_OF_FORCE * largest))
    row_scale = positive(matvec(abs_g, dual_scale)) / positive(row_squares(qp.G))
    spread = SHARE_OF_SIZE * torch.maximum(abs_x.amax(1, keepdim=True), floor)
    abs_x = torch.maximum(abs_x, torch.minimum(spread, qp.ub - qp.lb))
    return Measured(
        slack_rows=left.rows / positive(matvec(abs_g, abs_x) + finite_abs(qp.h)),
        slack_lower=left.lower / positive(abs_x + finite_abs(qp.lb)),
        slack_upper=left.upper / positive(abs_x + finite_abs(qp.ub)),
        multiplier_rows=duals.inequality / row_scale,
        multiplier_lower=-duals.bound / dual_scale,
        multiplier_upper=duals.bound / dual_scale,
        equality=left.equality / positive(matvec(abs_a, abs_x) + qp.b.abs()),
        stationarity=(left.gradient + duals.bound) / dual_scale,
    )


def least_size(qp: QuadraticProgram, diagonal: Tensor) -> Tensor:
    """(B, 1) the least size that the data of a sample suggests for its decision; 1 where it suggests none.

    It is the smallest of the cost against the curvature, the bounds and the distances of the rows from the origin,
    zeros left out: a bound of 1e15 that nobody meets is no unit for a decision of size 1. It matters only where the
    decision itself is zero, and rounding would be measured by rounding.
    """
    curvature = diagonal.amax(1, keepdim=True)
    sizes = [torch.where(curvature > 0, qp.c.abs().amax(1, keepdim=True) / positive(curvature), 0.0)]
    limits = [qp.lb, qp.ub] + ([qp.h / positive(row_squares(qp.G).sqrt())] if qp.m else [])
    sizes += [torch.where(limit == 0, torch.inf, limit.abs()).amin(1, keepdim=True) for limit in limits]
    least = functools.reduce(torch.minimum, [torch.where(size > 0, size, torch.inf) for size in sizes])
    return torch.where(least.isfinite(), least, 1.0)


def curvature_terms(diagonal: Tensor, x: Tensor) -> Tensor:
    """(B, 1) the largest term that Hx (B, n) is summed from, at most: ``|H_ij x_j| ≤ √H_ii √H_jj |x_j|``.

    Where these terms cancel, Hx is rounding, and would be measured by rounding.
    """
    root = diagonal.clamp(min=0).sqrt()
    return root.amax(1, keepdim=True) * (root * x.abs()).amax(1, keepdim=True)


def is_noise(qp: QuadraticProgram, g: Tensor, e: Tensor) -> Tensor:
    """(B,) bool: the projection g (B, n) of e is no more than the rounding of H⁻¹e."""
    rescaled = e.abs().amax(1) / positive(qp.H.diagonal(dim1=1, dim2=2).amax(1))
    return g.abs().amax(1) <= NEGLIGIBLE * rescaled


def positive(value: Tensor) -> Tensor:
    """The value, and 1 where it is zero, so that it can be divided by."""
    return torch.where(value > 0, value, torch.ones_like(value))


def finite_abs(value: Tensor) -> Tensor:
    """|value|, and 0 where it is infinite: a limit that is absent has no size."""
    return torch.where(value.isfinite(), value.abs(), torch.zeros_like(value))
