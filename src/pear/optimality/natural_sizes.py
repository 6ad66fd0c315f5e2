"""Natural sizes: the numbers by which slacks and multipliers are divided before they are compared with tolerances.

A problem may have a bound of 1e9 that no decision reaches, or a cost of 1e6 that keeps one variable at zero. Tolerances
relative to the largest number of a sample would then be coarse for all other numbers. Each slack and each multiplier
therefore has a natural size: the sum of the absolute values of the terms that the number is computed from. Because
rounding errors spread to all constraints, the natural size of a multiplier is at least a fraction of the largest one in
the sample. The natural size of a slack is computed from the sizes of the variables. The size of a variable is at least
a fraction of the largest one, or the distance between the bounds of the variable if that is smaller, because this
distance shows the unit in which the variable is measured.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pear.optimality.duals_and_active_sets import Duals
from pear.optimality.rule import FLOOR, NEGLIGIBLE, SHARE_OF_FORCE, SHARE_OF_SIZE, SHARE_OF_TERMS
from pear.problem.matrix import Matrix, matrix_row_squares, matvec, plus_matvec, plus_tmatvec
from pear.problem.quadratic_program import QuadraticProgram

if TYPE_CHECKING:
    from pear.optimality.kkt_residual import OptimalityResiduals  # imports this module

_TINY = torch.finfo(torch.float64).tiny


@dataclass(frozen=True)
class RelativeResiduals:
    """The slacks, multipliers and residuals of points, each divided by its natural size.

    Attributes:
        slack_rows: (B, m) slacks of the inequality rows: infinite for an absent row, negative for a violated row.
        slack_lower: (B, n) slacks of the lower bounds: infinite for an absent bound, negative for a violated bound.
        slack_upper: (B, n) slacks of the upper bounds: infinite for an absent bound, negative for a violated bound.
        multiplier_rows: (B, m) multipliers of the inequality rows. The right sign is positive.
        multiplier_bound: (B, n) multipliers of the bounds. The right sign is positive at an upper bound and negative at
            a lower bound.
        equality: (B, p) residuals of the equalities.
        stationarity: (B, n) residuals of the gradient of the Lagrangian, multipliers of the bounds included.
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
    """The parts of the natural sizes that depend on the data but neither on the costs nor on a point.

    Attributes:
        abs_A: (B or 1, p, n) absolute values of A.
        abs_G: (B or 1, m, n) absolute values of G.
        norms_A: (B or 1, p) lengths of the rows of A, 1 for an empty row.
        norms_G: (B or 1, m) lengths of the rows of G, 1 for an empty row.
        abs_b: (B or 1, p) absolute values of b, but at least the smallest normal float64.
        abs_h: (B or 1, m) absolute values of h, but at least the smallest normal float64, which also stands for an
            infinite h.
        abs_lb: (B or 1, n) absolute values of lb, 0 for infinity.
        abs_ub: (B or 1, n) absolute values of ub, 0 for infinity.
        width: (B or 1, n) distances between the bounds, but at least the smallest normal float64.
        pinned: (B or 1, n) bool, True for a variable whose bounds coincide; None means that no bounds coincide.
        limit: (B or 1, 1) the smallest non-zero distance of a bound or an inequality row from the origin; infinite if
            all are zero or absent.
        top: (B or 1, 1) the largest diagonal entry of H.
        root: (B or 1, n) square roots of the diagonal of H.
        root_top: (B or 1, 1) the largest entry of ``root``.
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
        """Compute the sizes of the data of programs."""
        norms_A, norms_G = (positive_size(matrix_row_squares(rows).sqrt()) for rows in (qp.A, qp.G))
        return cls(
            abs_A=qp.A.abs(),
            abs_G=qp.G.abs(),
            norms_A=norms_A,
            norms_G=norms_G,
            abs_b=_nonzero_size(qp.b.abs()),
            abs_h=_nonzero_size(finite_size(qp.h)),
            abs_lb=finite_size(qp.lb),
            abs_ub=finite_size(qp.ub),
            width=_nonzero_size(qp.ub - qp.lb),
            pinned=qp.lb == qp.ub,
            limit=smallest_limit([qp.lb, qp.ub] + ([qp.h / norms_G] if qp.m else [])),
            **_curvature_size(qp.H),
        )

    @classmethod
    def cached(cls, qp: QuadraticProgram) -> Sizes:
        """Return the sizes of the data of programs, which are computed once and then stored in ``qp``."""
        kept: dict[str, Any] = vars(qp)
        if "sizes" not in kept:
            kept["sizes"] = cls.of(qp)
        sizes: Sizes = kept["sizes"]
        return sizes

    def with_curvature(self, H: Matrix) -> Sizes:
        """Return a copy in which ``top``, ``root`` and ``root_top`` are those of another curvature H (B or 1, n, n)."""
        return replace(self, **_curvature_size(H))


def _curvature_size(H: Matrix) -> dict[str, Tensor]:
    """Return ``top``, ``root`` and ``root_top`` of ``Sizes``, by name, for a curvature H (B or 1, n, n)."""
    diagonal = H.diagonal(dim1=1, dim2=2)
    root = diagonal.clamp(min=0).sqrt()
    return {"top": diagonal.amax(1, keepdim=True), "root": root, "root_top": root.amax(1, keepdim=True)}


@dataclass(frozen=True)
class PointSizes:
    """The sizes at the points of a batch, from which the natural sizes and the KKT residual are computed.

    Attributes:
        abs_x: (B, n) absolute values of the decision x.
        abs_c: (B, n) absolute values of the cost c.
        abs_hx: (B, n) absolute values of Hx.
        gradient: (B, n) residual of the gradient of the Lagrangian, multipliers of the bounds included.
        terms: (B, n) sums of the sizes of the terms of this gradient: Hx, the cost, and the products of rows and their
            multipliers.
        cost: (B, 1) the largest entry of ``abs_c``.
        size: (B, 1) the largest entry of ``abs_x``, but at least ``rule.FLOOR`` times the result of ``least_size``.
        least: (B, 1) the smallest dual unit: the least possible ``size``, times the largest diagonal entry of H.
        curvature: (B, 1) an upper bound on the terms H_ij x_j that Hx is summed from, by ``|H_ij| ≤ √H_ii √H_jj``. If
            these terms cancel each other, Hx itself is only rounding, and does not show how large its error may be.
    """

    abs_x: Tensor
    abs_c: Tensor
    abs_hx: Tensor
    gradient: Tensor
    terms: Tensor
    cost: Tensor
    size: Tensor
    least: Tensor
    curvature: Tensor

    @classmethod
    def at(cls, qp: QuadraticProgram, x: Tensor, duals: Duals, left: OptimalityResiduals, sizes: Sizes) -> PointSizes:
        """Compute the sizes at the points of a batch.

        Args:
            qp: the programs.
            x: (B, n) the points.
            duals: the multipliers of the points.
            left: the residuals of the optimality conditions at the points.
            sizes: the sizes of the data.
        """
        abs_x, abs_c, abs_hx = x.abs(), qp.c.abs(), left.curvature.abs()
        terms = abs_hx + abs_c
        terms = plus_tmatvec(terms, sizes.abs_A, duals.equality.abs()) if qp.p else terms
        terms = plus_tmatvec(terms, sizes.abs_G, duals.inequality.abs()) if qp.m else terms
        cost = abs_c.amax(-1, keepdim=True)
        floor = FLOOR * least_size(cost, sizes)
        return cls(
            abs_x=abs_x,
            abs_c=abs_c,
            abs_hx=abs_hx,
            gradient=left.gradient + duals.bound,
            terms=terms,
            cost=cost,
            size=torch.maximum(abs_x.amax(-1, keepdim=True), floor),
            least=floor * sizes.top,
            curvature=sizes.root_top * (sizes.root * abs_x).amax(-1, keepdim=True),
        )

    @functools.cached_property
    def dual_unit(self) -> Tensor:
        """The dual unit (B, 1) of the KKT residual."""
        # if x is huge along a flat direction, the rounding error of Hx must not exceed the cost
        limit = torch.where(self.cost > 0, self.cost / SHARE_OF_FORCE, torch.inf)
        largest = torch.maximum(self.abs_c, self.abs_hx).amax(-1, keepdim=True)
        largest = torch.maximum(largest, torch.minimum(SHARE_OF_TERMS * self.curvature, limit))
        return positive_size(torch.maximum(largest, self.least))


def divide_by_natural_sizes(
    qp: QuadraticProgram, duals: Duals, left: OptimalityResiduals, sizes: Sizes, units: PointSizes
) -> RelativeResiduals:
    """Return the slacks, multipliers and residuals of points, each divided by its natural size.

    Args:
        qp: the programs.
        duals: the multipliers of the points.
        left: the residuals of the optimality conditions at the points, which include the slacks.
        sizes: the sizes of the data.
        units: the sizes at the points.
    """
    terms = units.terms
    largest = torch.maximum(torch.maximum(terms.amax(-1, keepdim=True), units.least), units.curvature)
    dual_scale = _nonzero_size(torch.maximum(terms, SHARE_OF_FORCE * largest))
    size = decision_sizes(units.abs_x, units.size, sizes.width)
    slack_rows, multiplier_rows, equality = left.rows, duals.inequality, left.equality
    if qp.m:
        slack_rows = left.rows / plus_matvec(sizes.abs_h, sizes.abs_G, size)
        multiplier_rows = duals.inequality / (positive_size(matvec(sizes.abs_G, dual_scale)) / sizes.norms_G.square())
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


def decision_sizes(abs_x: Tensor, largest: Tensor, width: Tensor) -> Tensor:
    """Compute the natural sizes of the entries of decisions. Shape (B, n).

    The size of an entry is its absolute value, but at least the smaller one of two numbers: a fraction of the largest
    entry (``rule.SHARE_OF_SIZE``), and the distance between the bounds of the variable. Without this minimum, an entry
    close to zero, which is only rounding, would be compared with a size that is only rounding.

    Args:
        abs_x: (B, n) absolute values of the decisions.
        largest: (B, 1) the largest entry of each decision, with the minimum that ``PointSizes.size`` has.
        width: (B or 1, n) distances between the bounds of the variables.
    """
    return torch.maximum(abs_x, torch.minimum(SHARE_OF_SIZE * largest, width))


def mixed_decision_sizes(qp: QuadraticProgram, x: Tensor) -> Tensor:
    """Compute the natural sizes of the entries of points x (B, n) of integer programs. Shape (B, n).

    The size of an integer is its absolute value, because an integer has no rounding error. The sizes of continuous
    variables are those of ``decision_sizes``, but the largest entry is that of the continuous variables alone.
    """
    assert qp.integer is not None
    abs_x, sizes = x.abs(), Sizes.cached(qp)
    floor = FLOOR * least_size(qp.c.abs().amax(-1, keepdim=True), sizes)
    largest = torch.maximum(torch.where(qp.integer, 0.0, abs_x).amax(-1, keepdim=True), floor)
    return torch.where(qp.integer, abs_x, decision_sizes(abs_x, largest, sizes.width))


def smallest_limit(limits: list[Tensor]) -> Tensor:
    """Return the smallest non-zero absolute value among limits (…, r) of each sample, (…, 1); infinite if all are zero.

    A row with coefficients g and the limit h has the limit ``h / ‖g‖`` here, its distance from the origin.
    """
    least = [torch.where(limit == 0, torch.inf, limit.abs()).amin(-1, keepdim=True) for limit in limits]
    return functools.reduce(torch.minimum, least)


def least_size(cost: Tensor, sizes: Sizes) -> Tensor:
    """Compute the smallest size that the data of each sample suggests for its decision. Shape (B, 1).

    Two kinds of numbers suggest a size: the largest cost divided by the largest diagonal entry of H, and the distances
    of the bounds and inequality rows from the origin. The result is the smallest of these numbers that is not zero; 1
    if all of them are zero or infinite. Because the smallest number counts, a bound of 1e15 that is never active does
    not set the unit of a decision of size 1. The size matters only for decisions near zero.

    Args:
        cost: (B, 1) the largest absolute cost of each sample.
        sizes: the sizes of the data.
    """
    by_curvature = cost / sizes.top  # infinite or NaN without curvature, negative for a negative diagonal
    least = torch.minimum(torch.where(by_curvature > 0, by_curvature, torch.inf), sizes.limit)
    return torch.where(least < torch.inf, least, 1.0)


def is_naturally_zero(qp: QuadraticProgram, g: Tensor, e: Tensor) -> Tensor:
    """Return whether the projections g (B, n) of vectors e (B, n) are only rounding errors. Shape (B,), bool.

    g is H⁻¹e projected onto the directions that active constraints allow. The size of H⁻¹e is estimated by the largest
    entry of e, divided by the largest diagonal entry of H. The result is True if no entry of g exceeds this estimate
    times ``rule.NEGLIGIBLE``.
    """
    rescaled = e.abs().amax(1) / positive_size(qp.H.diagonal(dim1=1, dim2=2).amax(1))
    return g.abs().amax(1) <= NEGLIGIBLE * rescaled


def positive_size(value: Tensor) -> Tensor:
    """Return the values with 1 in place of those that are not positive, so that the result can be a divisor."""
    return torch.where(value > 0, value, 1.0)


def finite_size(value: Tensor) -> Tensor:
    """Return absolute values, with 0 for infinite values, because an absent limit has no size."""
    return torch.where(value.isfinite(), value.abs(), torch.zeros_like(value))


def _nonzero_size(scale: Tensor) -> Tensor:
    """Return the scale, but at least the smallest normal float64, so that 0 divided by the result is 0."""
    return scale.clamp(min=_TINY)
