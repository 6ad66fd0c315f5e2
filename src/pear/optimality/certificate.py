"""Checks of certificates: proofs that a program is infeasible or unbounded."""

from __future__ import annotations

import torch
from torch import Tensor

from pear.optimality.duals_and_active_sets import Duals
from pear.optimality.natural_sizes import finite_size
from pear.optimality.rule import DESCENT, PROVEN, SHARP
from pear.problem.matrix import matvec, tmatvec
from pear.problem.quadratic_program import QuadraticProgram


def is_infeasibility_certificate(qp: QuadraticProgram, duals: Duals) -> Tensor:
    """Return whether multipliers prove, by the lemma of Farkas, that no point satisfies the constraints.

    Let y have any sign, u ≥ 0 and r = Aᵀy + Gᵀu. Every feasible x satisfies rᵀx ≤ yᵀb + uᵀh. If the least value of rᵀx
    within the bounds is clearly larger than yᵀb + uᵀh, no feasible x exists. "Clearly" means that the difference
    exceeds a small fraction (``rule.PROVEN``) of the sum of the absolute values of all terms on both sides.

    Args:
        qp: the programs.
        duals: the multipliers, of which ``equality`` (B, p) is y and ``inequality`` (B, m) is u. Negative entries of u
            count as zero, and ``bound`` is ignored. A positive factor of all multipliers does not change the result.

    Returns:
        (B,) bool.
    """
    y, u = duals.equality, torch.where(qp.h.isfinite(), duals.inequality.clamp(min=0), 0.0)
    r = tmatvec(qp.A, y) + tmatvec(qp.G, u)
    terms = tmatvec(qp.A.abs(), y.abs()) + tmatvec(qp.G.abs(), u)
    bound = torch.where(r > 0, qp.lb, qp.ub)
    endless = torch.where(r.abs() <= SHARP * terms, 0.0, -torch.inf)
    least = torch.where(bound.isfinite(), r * finite_size(bound) * bound.sign(), endless)
    sides = y * qp.b, u * torch.where(qp.h.isfinite(), qp.h, 0.0)
    gap = least.sum(1) - sum(side.sum(1) for side in sides)
    size = least.abs().sum(1) + sum(side.abs().sum(1) for side in sides)
    proven: Tensor = (gap > PROVEN * size) & gap.isfinite()
    return proven


def is_unboundedness_certificate(qp: QuadraticProgram, direction: Tensor) -> Tensor:
    """Return whether a direction d proves that the objective of a feasible program has no lower bound.

    The proof requires Hd = 0, Ad = 0, Gd ≤ 0 in the rows with a finite limit, no finite bound that limits d, and a
    clearly negative cᵀd. The tolerance of each row of H, A and G is the rounding error of its own terms, so that a
    curvature of 1e-12 on one variable is not mistaken for 0.

    Args:
        qp: the programs. The proof is valid only for programs that have a feasible point.
        direction: (B, n) the direction d, of any length.

    Returns:
        (B,) bool.
    """
    d, size = direction, direction.abs()
    good = ~((d < 0) & qp.lb.isfinite() | (d > 0) & qp.ub.isfinite()).any(1)
    for matrix in (qp.H, qp.A):
        good = good & (matvec(matrix, d).abs() <= SHARP * matvec(matrix.abs(), size)).all(1)
    rows = matvec(qp.G, d) <= SHARP * matvec(qp.G.abs(), size)
    good = good & (rows | ~qp.h.isfinite()).all(1)
    return good & ((qp.c * d).sum(1) < -DESCENT * (qp.c.abs() * size).sum(1))
