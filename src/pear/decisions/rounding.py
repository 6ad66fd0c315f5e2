"""Rounding of the integers of a relaxation's solution, where the rows leave room for it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pear.optimality.natural_sizes import finite_abs
from pear.optimality.rule import ROUNDOFF
from pear.problem.matrix import matvec
from pear.problem.quadratic_program import QuadraticProgram

_MOST_ENTRIES = 10_000_000  # entries of the columns that are looked at together


def round_within_rows(qp: QuadraticProgram, x: Tensor, fractional: Tensor) -> tuple[Tensor, Tensor]:
    """Round every fractional integer up or down, to where no row is violated while the other variables stay.

    A switch that costs nothing often ends between two whole numbers, and both or one of them are as good. Where both
    are possible, the cheaper one is taken, and the lower one among equals.

    Args:
        qp: B programs.
        x: (B, n) points that satisfy the rows.
        fractional: (B, n) bool, the integers to round.

    Returns:
        (B, n) rounded points, and (B,) bool, whether all integers of a point could be rounded together.
    """
    sample, at = fractional.nonzero(as_tuple=True)
    rounded = x.clone()
    if not len(at) or len(at) * max(qp.m + qp.p, 1) > _MOST_ENTRIES:
        return rounded, torch.zeros(len(x), dtype=torch.bool, device=x.device)
    slack, moves = _slacks(qp, x), (_columns(qp.A, sample, at) == 0).all(1)
    columns, value = _columns(qp.G, sample, at), x[sample, at]
    possible = [
        moves & (columns * (target - value)[:, None] <= slack[sample]).all(1)
        for target in (value.floor(), value.ceil())
    ]
    up = possible[1] & (~possible[0] | (qp.c[sample, at] < 0))
    rounded[sample, at] = torch.where(up, value.ceil(), value.floor())
    stuck = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    stuck[sample[~(possible[0] | possible[1])]] = True
    return rounded, ~stuck & (_slacks(qp, rounded) >= 0).all(1)


def _slacks(qp: QuadraticProgram, x: Tensor) -> Tensor:
    """The slacks of the inequality rows at x, with room for rounding, (B, m)."""
    terms = matvec(qp.G.abs(), x.abs()) + finite_abs(qp.h)
    return qp.h - matvec(qp.G, x) + ROUNDOFF * terms


def _columns(matrix: Any, sample: Tensor, at: Tensor) -> Tensor:
    """The columns ``at`` (K,) of the matrices of ``sample`` (K,), shape (K, r)."""
    if matrix.is_sparse:
        return torch.from_numpy(matrix.csr[:, at.numpy()].toarray().T)
    shared: Tensor = matrix[0][:, at].T if matrix.shape[0] == 1 else matrix[sample, :, at]
    return shared
