"""How far a point is from optimal: one yardstick for every solver, free of units."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pear.problem.canonical import QuadraticProgram, matvec, tmatvec
from pear.solvers.solution import Duals


@dataclass(frozen=True)
class Units:
    """The natural sizes of a sample: what one unit of x and of the objective's gradient amount to.

    Attributes:
        size: (B, 1) magnitude of decisions and of right-hand sides per unit row.
        force: (B, 1) magnitude of the cost and of the curvature's pull.
        rows_a, rows_g: (B or 1, p) and (B or 1, m) norms of the rows, 1 for zero rows.
    """

    size: Tensor
    force: Tensor
    rows_a: Tensor
    rows_g: Tensor


def units(qp: QuadraticProgram, x: Tensor) -> Units:
    """Measure the sizes of each sample at ``x`` (B, n)."""
    rows_a, rows_g = _row_norms(qp.A), _row_norms(qp.G)
    size = _peak(x, qp.b / rows_a, qp.h / rows_g, qp.lb, qp.ub)
    force = _peak(qp.c, matvec(qp.H, x))
    return Units(_positive(size), _positive(force), rows_a, rows_g)


def gradient(qp: QuadraticProgram, x: Tensor, duals: Duals) -> Tensor:
    """(B, n) gradient of the Lagrangian without the bounds' part: Hx + c + Aᵀ equality + Gᵀ inequality."""
    return matvec(qp.H, x) + qp.c + tmatvec(qp.A, duals.equality) + tmatvec(qp.G, duals.inequality)


def kkt_residual(qp: QuadraticProgram, x: Tensor, duals: Duals) -> Tensor:
    """Largest scaled violation of the optimality conditions, (B,).

    Primal: |Az − b|, (Gz − h)₊ and bound violations, per unit row and unit of size. Dual: stationarity and the signs of
    multipliers, per unit of force. Complementarity: multiplier times slack, per unit of both.
    """
    u = units(qp, x)
    slack = torch.cat([(qp.h - matvec(qp.G, x)) / u.rows_g, x - qp.lb, qp.ub - x], 1) / u.size
    multiplier = torch.cat([duals.inequality * u.rows_g, -duals.bound.clamp(max=0), duals.bound.clamp(min=0)], 1)
    multiplier = multiplier / u.force
    stationarity = (gradient(qp, x, duals) + duals.bound) / u.force
    equality = (matvec(qp.A, x) - qp.b) / u.rows_a / u.size
    # an absent constraint has an infinite slack: it may carry no multiplier at all
    complementarity = torch.where(slack.isinf(), multiplier, multiplier * slack)
    parts = [equality, stationarity, (-slack).clamp(min=0), (-multiplier).clamp(min=0), complementarity]
    return torch.cat(parts, 1).abs().amax(1)


def _peak(*values: Tensor) -> Tensor:
    """(B or 1, 1) largest finite magnitude over all values of a sample."""
    peaks = [v.abs().nan_to_num(posinf=0.0).amax(1, keepdim=True) for v in values if v.shape[1]]
    total = peaks[0]
    for peak in peaks[1:]:
        total = torch.maximum(total, peak)
    return total


def _positive(value: Tensor) -> Tensor:
    return torch.where(value > 0, value, torch.ones_like(value))


def _row_norms(rows: Tensor) -> Tensor:
    return _positive(torch.linalg.vector_norm(rows, dim=2))
