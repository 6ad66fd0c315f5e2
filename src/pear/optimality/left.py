"""What is left of the optimality conditions at a point, before anything is scaled."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from pear.optimality.point import Batched, Duals
from pear.problem.canonical import QuadraticProgram, matvec, tmatvec


@dataclass(frozen=True)
class Residuals(Batched):
    """What is left of the optimality conditions at a point, in the units of the data.

    Attributes:
        curvature: (B, n) Hx.
        gradient: (B, n) Hx + c + Aᵀ equality + Gᵀ inequality, without the multipliers of the bounds.
        equality: (B, p) Ax − b.
        rows, lower, upper: (B, m), (B, n), (B, n) slacks; infinite where absent, negative where violated.
    """

    curvature: Tensor
    gradient: Tensor
    equality: Tensor
    rows: Tensor
    lower: Tensor
    upper: Tensor


def residuals(qp: QuadraticProgram, x: Tensor, duals: Duals) -> Residuals:
    """The residuals of points x (B, n) with multipliers."""
    curvature = matvec(qp.H, x)
    gradient = curvature + qp.c + tmatvec(qp.A, duals.equality) + tmatvec(qp.G, duals.inequality)
    return Residuals(curvature, gradient, matvec(qp.A, x) - qp.b, qp.h - matvec(qp.G, x), x - qp.lb, qp.ub - x)
