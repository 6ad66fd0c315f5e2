"""How far a point is from optimal: one yardstick for every solver, free of units."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pear.optimality.point import Batched, Duals
from pear.optimality.rule import FLOOR, SHARE_OF_FORCE, SHARE_OF_TERMS
from pear.optimality.scale import curvature_terms, least_size, positive
from pear.problem.canonical import QuadraticProgram, matvec, row_squares, tmatvec


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
    gradient = _lagrangian_gradient(qp, curvature, duals)
    return Residuals(curvature, gradient, matvec(qp.A, x) - qp.b, qp.h - matvec(qp.G, x), x - qp.lb, qp.ub - x)


def lagrangian_gradient(qp: QuadraticProgram, x: Tensor, duals: Duals) -> Tensor:
    """Hx + c + Aᵀ equality + Gᵀ inequality, (B, n): the gradient without the multipliers of the bounds."""
    return _lagrangian_gradient(qp, matvec(qp.H, x), duals)


def _lagrangian_gradient(qp: QuadraticProgram, curvature: Tensor, duals: Duals) -> Tensor:
    return curvature + qp.c + tmatvec(qp.A, duals.equality) + tmatvec(qp.G, duals.inequality)


def kkt_residual(qp: QuadraticProgram, x: Tensor, duals: Duals, left: Residuals | None = None) -> Tensor:
    """Largest scaled violation of the optimality conditions, (B,).

    Primal: |Az − b|, (Gz − h)₊ and bound violations, per unit row and unit of size. Dual: stationarity and the signs of
    multipliers, per dual unit. Complementarity: multiplier times slack, per unit of both. The unit of size is the
    largest entry of the decision, the dual unit the largest of the cost, of the curvature term Hx and of a share of
    what Hx is summed from; bounds that are never met do not count.

    Args:
        qp: the programs.
        x: (B, n) points; duals: their multipliers.
        left: what is left of the conditions there, if it is known already.
    """
    if not qp.batch:
        return qp.c.new_zeros(0)
    left = residuals(qp, x, duals) if left is None else left
    norms_a, norms_g = (positive(row_squares(rows).sqrt()) for rows in (qp.A, qp.G))
    diagonal = qp.H.diagonal(dim1=1, dim2=2)
    least = FLOOR * least_size(qp, diagonal)
    size = torch.maximum(x.abs().amax(1, keepdim=True), least)
    largest = torch.maximum(qp.c.abs(), left.curvature.abs()).amax(1, keepdim=True)
    cost = qp.c.abs().amax(1, keepdim=True)
    # where x runs away along a flat direction, rounding of Hx must not outweigh the cost
    limit = torch.where(cost > 0, cost / SHARE_OF_FORCE, torch.inf)
    largest = torch.maximum(largest, torch.minimum(SHARE_OF_TERMS * curvature_terms(diagonal, x), limit))
    unit = positive(torch.maximum(largest, least * diagonal.amax(1, keepdim=True)))
    slack = torch.cat([left.rows / norms_g, left.lower, left.upper], 1) / size
    bounds = [-duals.bound.clamp(max=0), duals.bound.clamp(min=0)]
    multiplier = torch.cat([duals.inequality * norms_g, *bounds], 1) / unit
    stationarity = (left.gradient + duals.bound) / unit
    equality = left.equality / norms_a / size
    # an absent constraint has an infinite slack: it may carry no multiplier at all
    complementarity = torch.where(slack.isinf(), multiplier, multiplier * slack)
    parts = [equality, stationarity, (-slack).clamp(min=0), (-multiplier).clamp(min=0), complementarity]
    return torch.cat(parts, 1).abs().amax(1)
