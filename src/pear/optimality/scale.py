"""What counts as zero: the natural size of every slack and every multiplier, one by one.

A problem may hold a bound of 1e9 that nobody reaches or a cost of 1e6 that keeps one variable out. Tolerances relative
to the largest number of a sample would then be coarse for all others, so each constraint has sizes of its own: the
terms that its slack and its multiplier are computed from, and a share of the sample's largest, whose rounding reaches
everybody.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pear.optimality.point import Duals
from pear.problem.canonical import QuadraticProgram, matvec, row_squares, tmatvec

_SHARE_OF_SIZE = 0.1
_SHARE_OF_FORCE = 1e-3
FLOOR = 1e-9
"""Share of what a decision might be that is the least unit of size: it matters only where the decision is zero."""


@dataclass(frozen=True)
class Scaled:
    """Slacks and multipliers of a point, each divided by its natural size.

    Attributes:
        rows, lower, upper: (B, m), (B, n), (B, n) slacks; infinite where absent, negative where violated.
        push_rows, push_lower, push_upper: multipliers, positive where rightly signed.
        equality: (B, p) residuals of the equalities.
        stationarity: (B, n) residuals of the gradient, bounds' multipliers included.
    """

    rows: Tensor
    lower: Tensor
    upper: Tensor
    push_rows: Tensor
    push_lower: Tensor
    push_upper: Tensor
    equality: Tensor
    stationarity: Tensor


def scaled(qp: QuadraticProgram, x: Tensor, duals: Duals) -> Scaled:
    """Measure a point x (B, n) and its multipliers."""
    pull = matvec(qp.H, x)
    equality_pull, row_pull = tmatvec(qp.A, duals.equality), tmatvec(qp.G, duals.inequality)
    diagonal = qp.H.diagonal(dim1=1, dim2=2)
    abs_a, abs_g, abs_x = qp.A.abs(), qp.G.abs(), x.abs()
    forces = pull.abs() + qp.c.abs()
    forces = forces + tmatvec(abs_a, duals.equality.abs()) + tmatvec(abs_g, duals.inequality.abs())
    floor = FLOOR * reach(qp, diagonal)
    largest = torch.maximum(forces.amax(1, keepdim=True), floor * diagonal.amax(1, keepdim=True))
    force = positive(torch.maximum(forces, _SHARE_OF_FORCE * largest))
    row_force = positive(matvec(abs_g, force)) / positive(row_squares(qp.G))
    abs_x = torch.maximum(abs_x, _SHARE_OF_SIZE * torch.maximum(abs_x.amax(1, keepdim=True), floor))
    return Scaled(
        rows=(qp.h - matvec(qp.G, x)) / positive(matvec(abs_g, abs_x) + _finite_abs(qp.h)),
        lower=(x - qp.lb) / positive(abs_x + _finite_abs(qp.lb)),
        upper=(qp.ub - x) / positive(abs_x + _finite_abs(qp.ub)),
        push_rows=duals.inequality / row_force,
        push_lower=-duals.bound / force,
        push_upper=duals.bound / force,
        equality=(matvec(qp.A, x) - qp.b) / positive(matvec(abs_a, abs_x) + qp.b.abs()),
        stationarity=(pull + qp.c + equality_pull + row_pull + duals.bound) / force,
    )


def reach(qp: QuadraticProgram, diagonal: Tensor) -> Tensor:
    """(B, 1) how large a decision might be, whatever it is: the cost against the curvature, and the data of the rows.

    It matters only where the decision itself is zero, and rounding would be measured by rounding.
    """
    size = qp.c.abs().amax(1, keepdim=True) / positive(diagonal.amax(1, keepdim=True))
    for value in (qp.b, qp.h, qp.lb, qp.ub):
        if value.shape[1]:
            size = torch.maximum(size, _finite_abs(value).amax(1, keepdim=True))
    return positive(size)


def _finite_abs(value: Tensor) -> Tensor:
    return torch.where(value.isfinite(), value.abs(), torch.zeros_like(value))


def positive(value: Tensor) -> Tensor:
    """The value, and 1 where it is zero, so that it can be divided by."""
    return torch.where(value > 0, value, torch.ones_like(value))
