"""How far a point is from optimal: one yardstick for every solver, free of units."""

from __future__ import annotations

import torch
from torch import Tensor

from pear.optimality.point import Duals
from pear.optimality.scale import FLOOR, positive, reach
from pear.problem.canonical import QuadraticProgram, matvec, row_squares, tmatvec


def gradient(qp: QuadraticProgram, x: Tensor, duals: Duals) -> Tensor:
    """(B, n) gradient of the Lagrangian without the bounds' part: Hx + c + Aᵀ equality + Gᵀ inequality."""
    return matvec(qp.H, x) + qp.c + tmatvec(qp.A, duals.equality) + tmatvec(qp.G, duals.inequality)


def kkt_residual(qp: QuadraticProgram, x: Tensor, duals: Duals) -> Tensor:
    """Largest scaled violation of the optimality conditions, (B,).

    Primal: |Az − b|, (Gz − h)₊ and bound violations, per unit row and unit of size. Dual: stationarity and the signs of
    multipliers, per unit of force. Complementarity: multiplier times slack, per unit of both. The unit of size is the
    largest entry of the decision, the unit of force the largest of the cost and of the curvature's pull; bounds that
    nobody reaches do not count.
    """
    rows_a, rows_g = _row_norms(qp.A), _row_norms(qp.G)
    top = qp.H.diagonal(dim1=1, dim2=2).amax(1, keepdim=True)
    least = FLOOR * reach(qp, qp.H.diagonal(dim1=1, dim2=2))
    size = torch.maximum(x.abs().amax(1, keepdim=True), least)
    pull = torch.maximum(qp.c.abs(), matvec(qp.H, x).abs()).amax(1, keepdim=True)
    force = positive(torch.maximum(pull, least * top))
    slack = torch.cat([(qp.h - matvec(qp.G, x)) / rows_g, x - qp.lb, qp.ub - x], 1) / size
    multiplier = torch.cat([duals.inequality * rows_g, -duals.bound.clamp(max=0), duals.bound.clamp(min=0)], 1) / force
    stationarity = (gradient(qp, x, duals) + duals.bound) / force
    equality = (matvec(qp.A, x) - qp.b) / rows_a / size
    # an absent constraint has an infinite slack: it may carry no multiplier at all
    complementarity = torch.where(slack.isinf(), multiplier, multiplier * slack)
    parts = [equality, stationarity, (-slack).clamp(min=0), (-multiplier).clamp(min=0), complementarity]
    return torch.cat(parts, 1).abs().amax(1)


def _row_norms(rows: Tensor) -> Tensor:
    return positive(row_squares(rows).sqrt())
