"""How far a point is from optimal: one yardstick for every solver, free of units."""

from __future__ import annotations

import torch
from torch import Tensor

from pear.optimality.point import Duals
from pear.optimality.rule import FLOOR
from pear.optimality.scale import largest_decision, positive
from pear.problem.canonical import QuadraticProgram, matvec, row_squares, tmatvec


def lagrangian_gradient(qp: QuadraticProgram, x: Tensor, duals: Duals) -> Tensor:
    """Hx + c + Aᵀ equality + Gᵀ inequality, (B, n): the gradient without the multipliers of the bounds."""
    return matvec(qp.H, x) + qp.c + tmatvec(qp.A, duals.equality) + tmatvec(qp.G, duals.inequality)


def kkt_residual(qp: QuadraticProgram, x: Tensor, duals: Duals) -> Tensor:
    """Largest scaled violation of the optimality conditions, (B,).

    Primal: |Az − b|, (Gz − h)₊ and bound violations, per unit row and unit of size. Dual: stationarity and the signs of
    multipliers, per dual unit. Complementarity: multiplier times slack, per unit of both. The unit of size is the
    largest entry of the decision, the dual unit the largest of the cost and of the curvature term Hx; bounds that are
    never met do not count.
    """
    if not qp.batch:
        return qp.c.new_zeros(0)
    norms_a, norms_g = (positive(row_squares(rows).sqrt()) for rows in (qp.A, qp.G))
    diagonal = qp.H.diagonal(dim1=1, dim2=2)
    least = FLOOR * largest_decision(qp, diagonal)
    size = torch.maximum(x.abs().amax(1, keepdim=True), least)
    largest = torch.maximum(qp.c.abs(), matvec(qp.H, x).abs()).amax(1, keepdim=True)
    unit = positive(torch.maximum(largest, least * diagonal.amax(1, keepdim=True)))
    slack = torch.cat([(qp.h - matvec(qp.G, x)) / norms_g, x - qp.lb, qp.ub - x], 1) / size
    bounds = [-duals.bound.clamp(max=0), duals.bound.clamp(min=0)]
    multiplier = torch.cat([duals.inequality * norms_g, *bounds], 1) / unit
    stationarity = (lagrangian_gradient(qp, x, duals) + duals.bound) / unit
    equality = (matvec(qp.A, x) - qp.b) / norms_a / size
    # an absent constraint has an infinite slack: it may carry no multiplier at all
    complementarity = torch.where(slack.isinf(), multiplier, multiplier * slack)
    parts = [equality, stationarity, (-slack).clamp(min=0), (-multiplier).clamp(min=0), complementarity]
    return torch.cat(parts, 1).abs().amax(1)
