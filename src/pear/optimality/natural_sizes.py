"""Natural sizes: the number that each slack and each multiplier is compared with.

A problem may have a bound of 1e9 that no decision reaches, or a cost of 1e6 that keeps one variable at zero. Tolerances
relative to the largest number of a sample would then be coarse for everything else. Each constraint therefore has its
own size for its slack and its multiplier. The size is at least the terms that the slack or multiplier is computed from,
and at least a share of the largest size in the sample, because rounding spreads to all constraints. The share of a
variable is no larger than the distance between its bounds, which show in what unit it is measured.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pear.optimality.duals_and_active_sets import Duals
from pear.optimality.rule import FLOOR, NEGLIGIBLE, SHARE_OF_FORCE, SHARE_OF_SIZE
from pear.problem.matrix import Matrix, matvec, plus_matvec, plus_tmatvec, row_squares
from pear.problem.quadratic_program import QuadraticProgram

if TYPE_CHECKING:
    from pear.optimality.kkt_residual import Residuals  # which measures by these sizes

_TINY = torch.finfo(torch.float64).tiny


@dataclass(frozen=True)
class RelativeResiduals:
    """Slacks, multipliers and residuals of a point, each divided by its natural size.

    Attributes:
        slack_rows, slack_lower, slack_upper: (B, m), (B, n), (B, n); infinite where absent, negative where violated.
        multiplier_rows: positive where rightly signed; multiplier_bound: so at an upper bound, and negative at a lower.
        equality: (B, p) residuals of the equalities.
        stationarity: (B, n) residuals of the gradient, multipliers of the bounds included.
    """

    slack_rows: Tensor
    slack_lower: Tensor
    slack_upper: Tensor
    multiplier_rows: Tensor
    multiplier_bound: Tensor
    equality: Tensor
    stationarity: Tensor


@dataclass(frozen=True)
class Sizes:
    """The part of the natural sizes that depends on the data alone, computed once for data that comes with many costs.

    Attributes:
        abs_A, abs_G: (B or 1, p, n) and (B or 1, m, n) entries without their signs.
        norms_A, norms_G: (B or 1, p) and (B or 1, m) lengths of the rows, 1 where a row is empty.
        abs_b, abs_h: right-hand sides without their signs, 0 where infinite, but for the least that can be divided by;
            abs_lb, abs_ub: bounds without their signs, 0 where infinite.
        width: (B or 1, n) distances between the bounds, at least as much; pinned: (B or 1, n) bool, where the bounds
            coincide, or None where they are known not to.
        limit: (B or 1, 1) the least size that bounds and rows suggest for a decision, infinite where they suggest none.
        top: (B or 1, 1) the largest diagonal entry of H; root: (B or 1, n) roots of the diagonal, with the largest,
            ``root_top`` (B or 1, 1).
    """

    abs_A: Matrix
    abs_G: Matrix
    norms_A: Tensor
    norms_G: Tensor
    abs_b: Tensor
    abs_h: Tensor
    abs_lb: Tensor
    abs_ub: Tensor
    width: Tensor
    pinned: Tensor | None
    limit: Tensor
    top: Tensor
    root: Tensor
    root_top: Tensor

    @classmethod
    def of(cls, qp: QuadraticProgram) -> Sizes:
        """The sizes of these programs."""
        norms_A, norms_G = (positive(row_squares(rows).sqrt()) for rows in (qp.A, qp.G))
        limits = [qp.lb, qp.ub] + ([qp.h / norms_G] if qp.m else [])
        least = [torch.where(limit == 0, torch.inf, limit.abs()).amin(1, keepdim=True) for limit in limits]
        return cls(
            abs_A=qp.A.abs(),
            abs_G=qp.G.abs(),
            norms_A=norms_A,
            norms_G=norms_G,
            abs_b=_divisor(qp.b.abs()),
            abs_h=_divisor(finite_abs(qp.h)),
            abs_lb=finite_abs(qp.lb),
            abs_ub=finite_abs(qp.ub),
            width=_divisor(qp.ub - qp.lb),
            pinned=qp.lb == qp.ub,
            limit=functools.reduce(torch.minimum, least),
            **_curvature(qp.H),
        )

    @classmethod
    def cached(cls, qp: QuadraticProgram) -> Sizes:
        """The sizes of these programs, computed once and kept with the program object."""
        kept: dict[str, Any] = vars(qp)
        if "sizes" not in kept:
            kept["sizes"] = cls.of(qp)
        sizes: Sizes = kept["sizes"]
        return sizes

    def with_curvature(self, H: Matrix) -> Sizes:
        """The sizes for the same constraints and another curvature (B or 1, n, n)."""
        return replace(self, **_curvature(H))


def _curvature(H: Matrix) -> dict[str, Tensor]:
    diagonal = H.diagonal(dim1=1, dim2=2)
    root = diagonal.clamp(min=0).sqrt()
    return {"top": diagonal.amax(1, keepdim=True), "root": root, "root_top": root.amax(1, keepdim=True)}


@dataclass(frozen=True)
class PointUnits:
    """The units at the points of a batch, from which the natural sizes and the KKT residual are computed.

    Attributes:
        abs_x, abs_c, abs_hx: (B, n) decision, cost and curvature term without their signs.
        gradient: (B, n) what is left of the gradient, multipliers of the bounds included.
        cost: (B, 1) the largest cost.
        size: (B, 1) the largest decision, and no less than FLOOR of what the data suggests.
        least: (B, 1) what that much of a decision comes to by the curvature.
        curvature: (B, 1) the largest term that Hx is summed from, at most: ``|H_ij x_j| ≤ √H_ii √H_jj |x_j|``. Where
            these terms cancel, Hx is rounding, and would be measured by rounding.
    """

    abs_x: Tensor
    abs_c: Tensor
    abs_hx: Tensor
    gradient: Tensor
    cost: Tensor
    size: Tensor
    least: Tensor
    curvature: Tensor

    @classmethod
    def at(cls, qp: QuadraticProgram, x: Tensor, duals: Duals, left: Residuals, sizes: Sizes) -> PointUnits:
        """The units of points x (B, n) with multipliers."""
        abs_x, abs_c = x.abs(), qp.c.abs()
        cost = abs_c.amax(-1, keepdim=True)
        floor = FLOOR * least_size(cost, sizes)
        return cls(
            abs_x=abs_x,
            abs_c=abs_c,
            abs_hx=left.curvature.abs(),
            gradient=left.gradient + duals.bound,
            cost=cost,
            size=torch.maximum(abs_x.amax(-1, keepdim=True), floor),
            least=floor * sizes.top,
            curvature=sizes.root_top * (sizes.root * abs_x).amax(-1, keepdim=True),
        )


def relative_residuals(
    qp: QuadraticProgram, duals: Duals, left: Residuals, sizes: Sizes, units: PointUnits
) -> RelativeResiduals:
    """Divide multipliers and the residuals ``left`` by their natural sizes, at points with these units."""
    terms = units.abs_hx + units.abs_c
    terms = plus_tmatvec(terms, sizes.abs_A, duals.equality.abs()) if qp.p else terms
    terms = plus_tmatvec(terms, sizes.abs_G, duals.inequality.abs()) if qp.m else terms
    largest = torch.maximum(torch.maximum(terms.amax(-1, keepdim=True), units.least), units.curvature)
    dual_scale = _divisor(torch.maximum(terms, SHARE_OF_FORCE * largest))
    size = torch.maximum(units.abs_x, torch.minimum(SHARE_OF_SIZE * units.size, sizes.width))
    slack_rows, multiplier_rows, equality = left.rows, duals.inequality, left.equality
    if qp.m:
        slack_rows = left.rows / plus_matvec(sizes.abs_h, sizes.abs_G, size)
        multiplier_rows = duals.inequality / (positive(matvec(sizes.abs_G, dual_scale)) / sizes.norms_G.square())
    if qp.p:
        equality = left.equality / plus_matvec(sizes.abs_b, sizes.abs_A, size)
    return RelativeResiduals(
        slack_rows=slack_rows,
        slack_lower=left.lower / (size + sizes.abs_lb),
        slack_upper=left.upper / (size + sizes.abs_ub),
        multiplier_rows=multiplier_rows,
        multiplier_bound=duals.bound / dual_scale,
        equality=equality,
        stationarity=units.gradient / dual_scale,
    )


def least_size(cost: Tensor, sizes: Sizes) -> Tensor:
    """The smallest size that the data of a sample suggests for its decision; 1 where it suggests none. Shape (B, 1).

    It is the smallest non-zero number among the largest ``cost`` (B, 1) divided by the curvature, the bounds, and the
    distances of the rows from the origin. A bound of 1e15 that is never active then sets no unit for a decision of size
    1. The size matters only where the decision is zero: rounding would otherwise be compared with rounding.
    """
    by_curvature = cost / sizes.top  # infinite or not a number without curvature, and below zero where that is wrong
    least = torch.minimum(torch.where(by_curvature > 0, by_curvature, torch.inf), sizes.limit)
    return torch.where(least < torch.inf, least, 1.0)


def is_noise(qp: QuadraticProgram, g: Tensor, e: Tensor) -> Tensor:
    """Whether the projection g (B, n) of e is no larger than the rounding error of H⁻¹e. Shape (B,), bool."""
    rescaled = e.abs().amax(1) / positive(qp.H.diagonal(dim1=1, dim2=2).amax(1))
    return g.abs().amax(1) <= NEGLIGIBLE * rescaled


def positive(value: Tensor) -> Tensor:
    """The value, or 1 where it is zero, so that it can be a divisor."""
    return torch.where(value > 0, value, 1.0)


def finite_abs(value: Tensor) -> Tensor:
    """|value|, or 0 where it is infinite: an absent limit has no size."""
    return torch.where(value.isfinite(), value.abs(), torch.zeros_like(value))


def _divisor(scale: Tensor) -> Tensor:
    """The scale, raised to the smallest positive float64: where it is zero, so is the quantity divided by it."""
    return scale.clamp(min=_TINY)
