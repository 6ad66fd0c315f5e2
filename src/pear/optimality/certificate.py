"""The proof that a sample has no solution: a certificate is checked against the data, whoever found it."""

from __future__ import annotations

import torch
from torch import Tensor

from pear.optimality.point import Duals
from pear.optimality.rule import DESCENT, PROVEN, SHARP
from pear.optimality.scale import finite_abs
from pear.problem.canonical import QuadraticProgram
from pear.problem.matrix import matvec, tmatvec


def proves_infeasible(qp: QuadraticProgram, duals: Duals) -> Tensor:
    """(B,) bool: no point satisfies the constraints, by the lemma of Farkas.

    With y free in sign and u ≥ 0, every feasible x has rᵀx ≤ yᵀb + uᵀh for r = Aᵀy + Gᵀu. Where the least value of rᵀx
    within the bounds is larger than that, by more than PROVEN of the terms of both, there is none.

    Args:
        qp: the programs.
        duals: y as ``equality`` (B, p) and u as ``inequality`` (B, m), of any length; ``bound`` is not looked at.
    """
    y, u = duals.equality, torch.where(qp.h.isfinite(), duals.inequality.clamp(min=0), 0.0)
    r = tmatvec(qp.A, y) + tmatvec(qp.G, u)
    terms = tmatvec(qp.A.abs(), y.abs()) + tmatvec(qp.G.abs(), u)
    bound = torch.where(r > 0, qp.lb, qp.ub)
    endless = torch.where(r.abs() <= SHARP * terms, 0.0, -torch.inf)
    least = torch.where(bound.isfinite(), r * finite_abs(bound) * bound.sign(), endless)
    sides = y * qp.b, u * torch.where(qp.h.isfinite(), qp.h, 0.0)
    gap = least.sum(1) - sum(side.sum(1) for side in sides)
    size = least.abs().sum(1) + sum(side.abs().sum(1) for side in sides)
    proven: Tensor = (gap > PROVEN * size) & gap.isfinite()
    return proven


def proves_unbounded(qp: QuadraticProgram, direction: Tensor) -> Tensor:
    """(B,) bool: along d the objective of a feasible program falls without end.

    Hd = 0, Ad = 0 and Gd ≤ 0, each row to the rounding of its own terms on d, no finite bound is in the way, and cᵀd is
    clearly negative. A row's own terms are what tells a curvature of 1e-12 on one variable from none.

    Args:
        qp: the programs, which have a feasible point.
        direction: (B, n) d, of any length.
    """
    d, size = direction, direction.abs()
    good = ~((d < 0) & qp.lb.isfinite() | (d > 0) & qp.ub.isfinite()).any(1)
    for matrix in (qp.H, qp.A):
        good = good & (matvec(matrix, d).abs() <= SHARP * matvec(matrix.abs(), size)).all(1)
    rows = matvec(qp.G, d) <= SHARP * matvec(qp.G.abs(), size)
    good = good & (rows | ~qp.h.isfinite()).all(1)
    return good & ((qp.c * d).sum(1) < -DESCENT * (qp.c.abs() * size).sum(1))
