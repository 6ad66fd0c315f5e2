"""The scaling of dense programs for the interior-point method: decisions, rows and costs get size one.

The inequalities and bounds of the scaled programs form one stack [G; −I; I] of K = m + 2n rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from pear.optimality.duals_and_active_sets import Duals
from pear.problem.quadratic_program import QuadraticProgram

_NAME, _PAIRS = "interior point", "interior point, pairs of rows"
_MOST_SHARED = 4  # pairs of rows are not used if two rows have more variables in common
_FEW = 16  # pairs of rows are not used unless they need this many times fewer products than a matrix product
_BY_SAMPLE = ("H", "c", "limit", "present", "sign")  # the fields of scaled programs that differ by sample


class ScaledRowPairs(NamedTuple):
    """The E pairs of rows of R (k, n) with common variables, from which R D Rᵀ is computed for a diagonal D.

    A variable is common to two rows if its entries in both are not zero. All samples share R, which is mostly zero. No
    pair has more than w common variables.

    Attributes:
        column: (E, w) the common variables of each pair.
        product: (E, w) the products of the entries of both rows at these variables, 0 for padding.
        place: (E,) the position of each pair in the lower triangle of R D Rᵀ, a (k, k) matrix flattened by rows.
        square: (k, n) the squares of the entries of R.
    """

    column: Tensor
    product: Tensor
    place: Tensor
    square: Tensor

    def normal_matrix(self, by: Tensor, shift: Tensor) -> Tensor:
        """Compute the lower triangle of R D Rᵀ plus a diagonal. The upper triangle of the result is zero.

        Args:
            by: (B, n) the diagonals of D.
            shift: (B, k) the diagonals to add.

        Returns:
            (B, k, k).
        """
        B, k = len(by), len(self.square)
        S = by.new_zeros(B, k * k)
        S[:, self.place] = (by[:, self.column] * self.product).sum(2)
        S = S.view(B, k, k)
        S.diagonal(dim1=1, dim2=2).copy_(torch.addmm(shift, by, self.square.mT))
        return S


@dataclass(frozen=True)
class ScaledRows:
    """The constraints of programs, with a largest entry of one in every row.

    K = m + 2n is the number of inequalities and bounds.

    Attributes:
        R: (B or 1, p + m, n) the rows [A; G].
        norms: (B or 1, p + m) the numbers by which the rows were divided.
        limit: (B or 1, p + K) the right-hand sides [b, h, −lb, ub], infinite for absent limits.
        finite: (B or 1, p + K) bool, True for finite right-hand sides.
        present: (B or 1, K) 1.0 for an inequality or bound that is present, else 0.0.
        sign: (B or 1, 2n) −1 for lower bounds, 1 for upper bounds, 0 for absent bounds.
        size: (B or 1, 1) a first guess of the size of decisions: the largest magnitude among the right-hand sides of
            rows and, for each variable, the bound nearer to zero. If all of them are zero, it is the largest magnitude
            of a bound; if all bounds are zero too, it is 1. Infinite numbers do not count.
    """

    R: Tensor
    norms: Tensor
    limit: Tensor
    finite: Tensor
    present: Tensor
    sign: Tensor
    size: Tensor


@dataclass(frozen=True)
class ScaledPrograms:
    """A batch of programs in scaled units, with K = m + 2n inequalities and bounds.

    Attributes:
        H: (B, n, n) the curvature, or (B, n) the diagonal of a diagonal curvature.
        c: (B, n) the costs.
        R: (B or 1, p + m, n) the rows [A; G].
        limit: (B, p + K) the right-hand sides [b, h, −lb, ub]; 1 for an absent limit, whose slack is always 1.
        present: (B, K) 1.0 for an inequality or bound that is present, else 0.0.
        sign: (B, 2n) −1 for lower bounds, 1 for upper bounds, 0 for absent bounds.
        tol: (1,) the largest residual of a solved sample.
        pairs: the pairs of rows from which R D Rᵀ is computed for diagonal D; None to compute it by a matrix product.
    """

    H: Tensor
    c: Tensor
    R: Tensor
    limit: Tensor
    present: Tensor
    sign: Tensor
    tol: Tensor
    pairs: ScaledRowPairs | None = None

    @property
    def tensors(self) -> list[Tensor]:
        """All tensors in a fixed order, so that a captured CUDA graph can copy those of another batch."""
        return [self.H, self.c, self.R, self.limit, self.present, self.sign, self.tol, *(self.pairs or ())]

    def clone(self) -> ScaledPrograms:
        """Return a copy of every tensor."""
        pairs = None if self.pairs is None else ScaledRowPairs(*(part.clone() for part in self.pairs))
        return replace(self, pairs=pairs, **{name: getattr(self, name).clone() for name in (*_BY_SAMPLE, "R", "tol")})

    def only(self, index: Tensor) -> ScaledPrograms:
        """Return the programs of the samples at ``index`` (k,)."""
        R = self.R if len(self.R) == 1 else self.R[index]
        return replace(self, R=R, **{name: getattr(self, name)[index] for name in _BY_SAMPLE})


def scaled_rows(qp: QuadraticProgram) -> ScaledRows:
    """Return the scaled constraints of a batch. Constraints that all samples share are scaled once for a problem."""
    return qp.prepare_once(_NAME, _scale_rows) if qp.shares_constraints else _scale_rows(qp)


def _scale_rows(qp: QuadraticProgram) -> ScaledRows:
    """Return the rows, divided by their largest entries, and their limits."""
    most = max(len(qp.A), len(qp.G))
    R = torch.cat([qp.A.expand(most, -1, -1), qp.G.expand(most, -1, -1)], 1)
    norms = R.abs().amax(2)
    norms = torch.where(norms > 0, norms, torch.ones_like(norms))
    most = max(map(len, (norms, qp.b, qp.h, qp.lb, qp.ub)))
    b, h, lb, ub = (value.expand(most, -1) for value in (qp.b, qp.h, qp.lb, qp.ub))
    right = torch.cat([b, h], 1) / norms
    limit = torch.cat([right, -lb, ub], 1)
    finite = limit.isfinite()
    present = finite[:, qp.p :].to(qp.c.dtype)
    sign = present[:, qp.m :].clone()
    sign[:, : qp.n].neg_()
    size = _largest_for_scaling(right, torch.minimum(qp.lb.abs(), qp.ub.abs()))
    size = torch.where(size > 0, size, _largest_for_scaling(qp.lb, qp.ub))
    size = torch.where(size > 0, size, torch.ones_like(size))
    return ScaledRows(R / norms[:, :, None], norms, limit, finite, present, sign, size)


def scaled_row_pairs(qp: QuadraticProgram, R: Tensor) -> ScaledRowPairs | None:
    """Return the pairs of rows from which R D Rᵀ is computed for diagonal D, made once for a problem.

    The result is None if the programs do not need R D Rᵀ, if the samples do not share their constraints, or if pairs
    would save little time.
    """
    if not qp.diagonal or len(R) > 1 or R.shape[1] >= qp.n:
        return None
    return qp.prepare_once(_PAIRS, lambda _: _find_scaled_row_pairs(R[0])) if qp.shares_constraints else None


def _find_scaled_row_pairs(R: Tensor) -> ScaledRowPairs | None:
    """Find all pairs of rows of R (k, n) with common variables; return None if pairs would save little time."""
    k, n = R.shape
    marked = (R != 0).to(R.dtype)
    shared = torch.tril(marked @ marked.mT, -1)
    at = shared.nonzero()
    width = int(shared.max()) if len(at) else 0
    if not len(at) or width > _MOST_SHARED or _FEW * len(at) * width > k * k * n:
        return None
    product = R[at[:, 0]] * R[at[:, 1]]
    column = (product != 0).to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, :width]
    return ScaledRowPairs(column, product.gather(1, column), at[:, 0] * k + at[:, 1], R * R)


def scaled_normal_matrix(R: Tensor, by: Tensor, shift: Tensor) -> Tensor:
    """Compute R D Rᵀ plus a diagonal, where D is diagonal. Shape (B, k, k).

    Args:
        R: (B or 1, k, n) the k scaled rows.
        by: (B, n) the diagonals of D.
        shift: (B, k) the diagonals to add.
    """
    scaled = by[:, None, :] * R
    S = scaled @ R[0].mT if len(R) == 1 else torch.bmm(scaled, R.mT)
    S.diagonal(dim1=1, dim2=2).add_(shift)
    return S


def scale_programs(qp: QuadraticProgram, rows: ScaledRows, size: Tensor, tol: float) -> tuple[ScaledPrograms, Tensor]:
    """Scale decisions and costs to size one.

    Args:
        qp: the programs.
        rows: the scaled constraints of the programs.
        size: (B, 1) the unit of x.
        tol: the largest residual of a solved sample.

    Returns:
        The scaled programs, in which ``pairs`` is None, and the unit of the cost (B, 1).
    """
    H = qp.H.diagonal(dim1=1, dim2=2) if qp.diagonal else qp.H.flatten(1)
    cost = torch.maximum(_largest_for_scaling(qp.c) * size, _largest_for_scaling(H) * size**2)
    cost = torch.where(cost > 0, cost, 1.0)
    H = H * (size**2 / cost)
    data = ScaledPrograms(
        H=H if qp.diagonal else H.view(-1, qp.n, qp.n),
        c=qp.c * size / cost,
        R=rows.R,
        limit=torch.where(rows.finite, rows.limit / size, 1.0),
        present=rows.present.expand(qp.batch, -1),
        sign=rows.sign.expand(qp.batch, -1),
        tol=torch.full_like(size[:1, 0], tol),
    )
    return data, cost


def unscale_state(
    qp: QuadraticProgram, rows: ScaledRows, size: Tensor, cost: Tensor, state: Tensor
) -> tuple[Tensor, Duals]:
    """Convert a state of the iterates to points and multipliers in the units of the programs.

    Args:
        qp: the programs.
        rows: the scaled constraints of the programs.
        size: (B, 1) the unit of x.
        cost: (B, 1) the unit of the cost.
        state: (B, n + p + 2K) x, the multipliers of the equalities, those of the K = m + 2n inequalities and bounds,
            and the slacks of the latter.

    Returns:
        The points (B, n), and the multipliers.
    """
    x, y, lam, _ = state.split([qp.n, qp.p, qp.m + 2 * qp.n, qp.m + 2 * qp.n], 1)
    unit = cost / size
    inequality, lower, upper = (lam * rows.present * unit).split([qp.m, qp.n, qp.n], 1)
    norms_a, norms_g = rows.norms.split([qp.p, qp.m], 1)
    return x * size, Duals(equality=y * unit / norms_a, inequality=inequality / norms_g, bound=upper - lower)


def _largest_for_scaling(*values: Tensor) -> Tensor:
    """Return the largest finite absolute value of each sample, at least 0. Shape (B or 1, 1)."""
    total = values[0].new_zeros(1, 1)
    for value in values:
        if value[0].numel():
            largest = value.flatten(1).abs().nan_to_num(posinf=0.0).amax(1, keepdim=True)
            total = torch.maximum(total, largest)
    return total
