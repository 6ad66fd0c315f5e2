"""The verdict on a point: every condition of optimality, against the constants of the rule."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from pear.optimality.point import ActiveSet, Duals
from pear.optimality.residual import Residuals, kkt_residual, residuals
from pear.optimality.rule import FEASIBLE, OPTIMAL, SIGN
from pear.optimality.scale import Measured, measure
from pear.problem.canonical import QuadraticProgram


@dataclass(frozen=True)
class Verdict:
    """What is wrong with the points of a batch, if anything.

    Attributes:
        qp, x, duals: the programs, the points (B, n) and their multipliers.
        left: what is left of the optimality conditions there.
        measured: slacks and multipliers by their natural sizes.
        wrong: constraints that are violated, or held with a multiplier of the wrong sign.
        unbalanced: (B,) how far stationarity, equalities and held constraints are from zero.
    """

    qp: QuadraticProgram
    x: Tensor
    duals: Duals
    left: Residuals
    measured: Measured
    wrong: ActiveSet
    unbalanced: Tensor

    @cached_property
    def none_wrong(self) -> Tensor:
        """(B,) bool: no constraint is on the wrong side."""
        return self.wrong.count() == 0

    @cached_property
    def kkt_residual(self) -> Tensor:
        """(B,) largest scaled violation of the optimality conditions."""
        return kkt_residual(self.qp, self.x, self.duals, self.left)

    @cached_property
    def balanced(self) -> Tensor:
        """(B,) bool: every condition holds, each by its natural size."""
        return self.none_wrong & (self.unbalanced <= FEASIBLE)

    @cached_property
    def solved(self) -> Tensor:
        """(B,) bool: the point is a solution.

        The residual is asked for as well, because huge multipliers that cancel each other make every tolerance that is
        relative to them meaningless.
        """
        return self.balanced & (self.kkt_residual <= OPTIMAL)


def verify(qp: QuadraticProgram, x: Tensor, duals: Duals, working: ActiveSet, left: Residuals | None = None) -> Verdict:
    """Judge points x (B, n) with multipliers, computed with the constraints ``working`` held.

    Args:
        qp: the programs.
        x: (B, n) points; duals: their multipliers; working: the constraints that were held.
        left: what is left of the optimality conditions there, where it is known more exactly than x shows.
    """
    left = residuals(qp, x, duals) if left is None else left
    s = measure(qp, x, duals, left)
    free = qp.lb != qp.ub
    wrong = ActiveSet(
        torch.where(working.rows, s.multiplier_rows + SIGN, s.slack_rows + FEASIBLE) < 0,
        (torch.where(working.lower, s.multiplier_lower + SIGN, s.slack_lower + FEASIBLE) < 0) & free,
        (torch.where(working.upper, s.multiplier_upper + SIGN, s.slack_upper + FEASIBLE) < 0) & free,
    )
    rows = torch.where(working.rows, s.slack_rows, 0.0)
    bounds = torch.where(working.lower | ~free, s.slack_lower, torch.where(working.upper, s.slack_upper, 0.0))
    unbalanced = (
        torch.cat([s.stationarity, s.equality, rows, bounds], 1).abs().amax(1) if qp.batch else qp.c.new_zeros(0)
    )
    return Verdict(qp, x, duals, left, s, wrong, unbalanced)
