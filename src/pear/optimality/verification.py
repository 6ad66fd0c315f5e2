"""The verification of points: all optimality conditions are compared with the tolerances of ``optimality.rule``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from pear.optimality.duals_and_active_sets import ActiveSet, Duals
from pear.optimality.kkt_residual import (
    OptimalityResiduals,
    optimality_residuals,
    scaled_kkt_residual,
    stationarity_rounding,
)
from pear.optimality.natural_sizes import PointSizes, RelativeResiduals, Sizes, divide_by_natural_sizes
from pear.optimality.rule import FEASIBLE, LOST, OPTIMAL, SIGN
from pear.problem.quadratic_program import QuadraticProgram


@dataclass(frozen=True)
class Verification:
    """The result of checking the points of a batch against the optimality conditions.

    Attributes:
        qp: the programs.
        x: (B, n) the points.
        duals: the multipliers of the points.
        working: the held constraints, those that were held with equality to compute the points.
        left: the residuals of the optimality conditions at the points.
        sizes: the sizes of the data, by which residuals are divided.
        units: the sizes at the points, by which residuals are divided.
        relative: slacks, multipliers and residuals, each divided by its natural size.
        exact: whether ``left`` is accurate to the last digit. If False, it has the rounding errors of float64.
    """

    qp: QuadraticProgram
    x: Tensor
    duals: Duals
    working: ActiveSet
    left: OptimalityResiduals
    sizes: Sizes
    units: PointSizes
    relative: RelativeResiduals
    exact: bool = False

    @cached_property
    def _margins(self) -> tuple[Tensor, Tensor, Tensor]:
        """The margins of inequality rows (B, m), lower bounds (B, n) and upper bounds (B, n).

        The margin of a held constraint is its multiplier plus a tolerance, where a multiplier of the right sign counts
        as positive. The margin of any other constraint is its slack plus a tolerance. Wrong constraints have negative
        margins.
        """
        s, held = self.relative, self.working
        return (
            torch.where(held.rows, s.multiplier_rows + SIGN, s.slack_rows + FEASIBLE) if self.qp.m else s.slack_rows,
            torch.where(held.lower, SIGN - s.multiplier_bound, s.slack_lower + FEASIBLE),
            torch.where(held.upper, s.multiplier_bound + SIGN, s.slack_upper + FEASIBLE),
        )

    @cached_property
    def wrong(self) -> ActiveSet:
        """The constraints that are violated, or held with a multiplier of the wrong sign.

        Bounds of a variable that coincide are left out, because their multiplier may have any sign.
        """
        (rows, lower, upper), pinned = self._margins, self.sizes.pinned
        lower, upper = lower < 0, upper < 0
        return ActiveSet(rows < 0, *((lower, upper) if pinned is None else (lower & ~pinned, upper & ~pinned)))

    @cached_property
    def none_wrong(self) -> Tensor:
        """Whether no constraint is violated or held with a multiplier of the wrong sign. Shape (B,), bool."""
        rows, *bounds = self._margins
        least = torch.minimum(*bounds)
        least = least if self.sizes.pinned is None else least.masked_fill(self.sizes.pinned, 0.0)
        least = torch.cat([least, rows], -1) if self.qp.m else least
        return least.amin(-1) >= 0

    @cached_property
    def unbalanced(self) -> Tensor:
        """The largest relative residual of stationarity, equalities and held constraints. Shape (B,)."""
        s, held = self.relative, self.working
        upper = torch.where(held.upper, s.slack_upper, 0.0)
        lower = held.lower if self.sizes.pinned is None else held.lower | self.sizes.pinned
        parts = [s.stationarity, torch.where(lower, s.slack_lower, upper)]
        parts += [s.equality] if self.qp.p else []
        parts += [torch.where(held.rows, s.slack_rows, 0.0)] if self.qp.m else []
        return torch.linalg.vector_norm(torch.cat(parts, -1), torch.inf, dim=-1)

    @cached_property
    def kkt_residual(self) -> Tensor:
        """The KKT residual: the largest scaled violation of the optimality conditions. Shape (B,)."""
        return scaled_kkt_residual(self.qp, self.duals, self.left, self.sizes, self.units)

    @cached_property
    def balanced(self) -> Tensor:
        """Whether every condition holds within a tolerance relative to its natural size. Shape (B,), bool."""
        return self.none_wrong & (self.unbalanced <= FEASIBLE)

    @cached_property
    def solved(self) -> Tensor:
        """Whether the point is a solution. Shape (B,), bool.

        The point must be ``balanced``, and the KKT residual must be small as well, because a tolerance relative to huge
        multipliers that cancel each other is meaningless. Unless the residuals are exact, their rounding errors must be
        small, too.
        """
        small = self.balanced & (self.kkt_residual <= OPTIMAL)
        if self.exact:
            return small
        return small & (stationarity_rounding(self.duals, self.sizes, self.units) <= LOST)


def verify(
    qp: QuadraticProgram,
    x: Tensor,
    duals: Duals,
    working: ActiveSet,
    left: OptimalityResiduals | None = None,
    sizes: Sizes | None = None,
    exact: bool = False,
) -> Verification:
    """Return the result of checking points and their multipliers against the optimality conditions.

    No number is copied from a GPU to the host. If all samples share their constraints, x may have further leading
    dimensions.

    Args:
        qp: the programs.
        x: (B, n) the points.
        duals: the multipliers of the points.
        working: the constraints that were held with equality to compute the points.
        left: the residuals at the points, which may be more accurate than those computed from x; None to compute them.
        sizes: the sizes of the data; None to compute them.
        exact: whether ``left`` is accurate to the last digit.
    """
    left = optimality_residuals(qp, x, duals) if left is None else left
    sizes = Sizes.cached(qp) if sizes is None else sizes
    units = PointSizes.at(qp, x, duals, left, sizes)
    return Verification(
        qp, x, duals, working, left, sizes, units, divide_by_natural_sizes(qp, duals, left, sizes, units), exact
    )
