"""Scaled constraints of the interior point. They are kept where all samples of a problem share them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pear.problem.quadratic_program import QuadraticProgram
from pear.solvers.interior_point.newton import RowPairs

_NAME, _PAIRS = "interior point", "interior point, pairs of rows"
_MOST_SHARED = 4  # most variables that two rows may have in common for pairs to be used
_FEW = 16  # how many times fewer products than the matrix product pairs must need


@dataclass(frozen=True)
class ScaledRows:
    """Constraints whose rows have a largest entry of one; K = m + 2n.

    Attributes:
        R: (B or 1, p + m, n) rows [A; G].
        norms: (B or 1, p + m) the numbers that the rows were divided by.
        limit: (B or 1, p + K) right-hand sides [b, h, −lb, ub], infinite where absent.
        there: (B or 1, p + K) bool, True where a right-hand side exists.
        present: (B or 1, K) 1.0 where an inequality or bound exists, else 0.0.
        sign: (B or 1, 2n) −1 for lower and 1 for upper bounds, 0 where absent.
        size: (B or 1, 1) first guess of the size of decisions: the largest right-hand side or nearer bound of a
            variable.
    """

    R: Tensor
    norms: Tensor
    limit: Tensor
    there: Tensor
    present: Tensor
    sign: Tensor
    size: Tensor


def rows_of(qp: QuadraticProgram) -> ScaledRows:
    """Return the scaled constraints of these programs; those of a plan are computed once."""
    return qp.prepare_once(_NAME, _scale_rows) if qp.shares_constraints else _scale_rows(qp)


def pairs_of(qp: QuadraticProgram, R: Tensor) -> RowPairs | None:
    """Return the pairs of rows that R D Rᵀ is computed from; None where samples do not share R, or R is not sparse."""
    if not qp.diagonal or len(R) > 1 or R.shape[1] >= qp.n:
        return None
    return qp.prepare_once(_PAIRS, lambda _: _find_pairs(R[0])) if qp.shares_constraints else None


def peak(*values: Tensor) -> Tensor:
    """Return (B or 1, 1) the largest finite magnitude of each sample."""
    total = values[0].new_zeros(1, 1)
    for value in values:
        if value[0].numel():
            largest = value.flatten(1).abs().nan_to_num(posinf=0.0).amax(1, keepdim=True)
            total = torch.maximum(total, largest)
    return total


def _scale_rows(qp: QuadraticProgram) -> ScaledRows:
    both = [qp.A, qp.G]
    most = max(len(matrix) for matrix in both)
    R = torch.cat([matrix.expand(most, -1, -1) for matrix in both], 1)
    norms = R.abs().amax(2)
    norms = torch.where(norms > 0, norms, torch.ones_like(norms))
    sides = [qp.b, qp.h]
    most = max(len(norms), *(len(value) for value in (*sides, qp.lb, qp.ub)))
    right = torch.cat([value.expand(most, -1) for value in sides], 1) / norms
    limit = torch.cat([right, -qp.lb.expand(most, -1), qp.ub.expand(most, -1)], 1)
    there = limit.isfinite()
    present = there[:, qp.p :].to(qp.c.dtype)
    sign = present[:, qp.m :].clone()
    sign[:, : qp.n].neg_()
    size = peak(right, torch.minimum(qp.lb.abs(), qp.ub.abs()))
    size = torch.where(size > 0, size, peak(qp.lb, qp.ub))
    size = torch.where(size > 0, size, torch.ones_like(size))
    return ScaledRows(R / norms[:, :, None], norms, limit, there, present, sign, size)


def _find_pairs(R: Tensor) -> RowPairs | None:
    """Find all pairs of rows of R (k, n) with common variables; None where the pairs are not worth it."""
    k, n = R.shape
    marked = (R != 0).to(R.dtype)
    shared = torch.tril(marked @ marked.mT, -1)
    at = shared.nonzero()
    width = int(shared.max()) if len(at) else 0
    if not len(at) or width > _MOST_SHARED or _FEW * len(at) * width > k * k * n:
        return None
    product = R[at[:, 0]] * R[at[:, 1]]
    column = (product != 0).to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, :width]
    return RowPairs(column, product.gather(1, column), at[:, 0] * k + at[:, 1], R * R)
