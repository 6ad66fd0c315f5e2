"""Natural sizes: what every slack and every multiplier is compared with, one by one.

A problem may hold a bound of 1e9 that nobody reaches or a cost of 1e6 that keeps one variable out. Tolerances relative
to the largest number of a sample would then be coarse for all others. Each constraint therefore has sizes of its own:
the terms that its slack and its multiplier are computed from, and a share of the sample's largest, whose rounding
spreads to all.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pear.optimality.point import Duals
from pear.optimality.rule import FLOOR, SHARE_OF_FORCE, SHARE_OF_SIZE
from pear.problem.canonical import QuadraticProgram, matvec, row_squares, tmatvec


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


def measure(qp: QuadraticProgram, x: Tensor, duals: Duals) -> Measured:
    """Measure points x (B, n) and their multipliers."""
    curvature_term = matvec(qp.H, x)
    equality_term, row_term = tmatvec(qp.A, duals.equality), tmatvec(qp.G, duals.inequality)
    diagonal = qp.H.diagonal(dim1=1, dim2=2)
    abs_a, abs_g, abs_x = qp.A.abs(), qp.G.abs(), x.abs()
    terms = curvature_term.abs() + qp.c.abs()
    terms = terms + tmatvec(abs_a, duals.equality.abs()) + tmatvec(abs_g, duals.inequality.abs())
    floor = FLOOR * largest_decision(qp, diagonal)
    largest = torch.maximum(terms.amax(1, keepdim=True), floor * diagonal.amax(1, keepdim=True))
    dual_scale = positive(torch.maximum(terms, SHARE_OF_FORCE * largest))
    row_scale = positive(matvec(abs_g, dual_scale)) / positive(row_squares(qp.G))
    abs_x = torch.maximum(abs_x, SHARE_OF_SIZE * torch.maximum(abs_x.amax(1, keepdim=True), floor))
    return Measured(
        slack_rows=(qp.h - matvec(qp.G, x)) / positive(matvec(abs_g, abs_x) + finite_abs(qp.h)),
        slack_lower=(x - qp.lb) / positive(abs_x + finite_abs(qp.lb)),
        slack_upper=(qp.ub - x) / positive(abs_x + finite_abs(qp.ub)),
        multiplier_rows=duals.inequality / row_scale,
        multiplier_lower=-duals.bound / dual_scale,
        multiplier_upper=duals.bound / dual_scale,
        equality=(matvec(qp.A, x) - qp.b) / positive(matvec(abs_a, abs_x) + qp.b.abs()),
        stationarity=(curvature_term + qp.c + equality_term + row_term + duals.bound) / dual_scale,
    )


def largest_decision(qp: QuadraticProgram, diagonal: Tensor) -> Tensor:
    """(B, 1) how large a decision might be, whatever it is: the cost against the curvature, and the data of the rows.

    It matters only where the decision itself is zero, and rounding would be measured by rounding.
    """
    size = qp.c.abs().amax(1, keepdim=True) / positive(diagonal.amax(1, keepdim=True))
    for value in (qp.b, qp.h, qp.lb, qp.ub):
        if value.shape[1]:
            size = torch.maximum(size, finite_abs(value).amax(1, keepdim=True))
    return positive(size)


def positive(value: Tensor) -> Tensor:
    """The value, and 1 where it is zero, so that it can be divided by."""
    return torch.where(value > 0, value, torch.ones_like(value))


def finite_abs(value: Tensor) -> Tensor:
    """|value|, and 0 where it is infinite: a limit that is absent has no size."""
    return torch.where(value.isfinite(), value.abs(), torch.zeros_like(value))
