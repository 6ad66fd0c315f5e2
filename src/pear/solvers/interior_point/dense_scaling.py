"""Scaled batches of the dense interior point: decisions, rows and costs have size one.

Inequalities and bounds form one stack [G; −I; I] of K = m + 2n rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from pear.optimality.duals_and_active_sets import Duals
from pear.problem.quadratic_program import QuadraticProgram

_NAME, _PAIRS = "interior point", "interior point, pairs of rows"
_MOST_SHARED = 4  # most variables that two rows may have in common for pairs to be used
_FEW = 16  # how many times fewer products than the matrix product pairs must need
_BY_SAMPLE = ("H", "c", "limit", "present", "sign")  # fields of scaled programs that differ by sample


class ScaledRowPairs(NamedTuple):
    """The pairs of rows of R (k, n) that have variables in common, from which R D Rᵀ is computed for a diagonal D.

    All samples share R, and R is mostly zero. There are E pairs. No pair has more than w variables in common.

    Attributes:
        column: (E, w) the common variables of each pair.
        product: (E, w) the products of the two rows' entries at these variables, 0 where a pair has fewer of them.
        place: (E,) the position of each pair in the lower triangle of R D Rᵀ, a (k, k) matrix flattened by rows.
        square: (k, n) the squares of the entries of R.
    """

    column: Tensor
    product: Tensor
    place: Tensor
    square: Tensor


@dataclass(frozen=True)
class ScaledRows:
    """Constraints whose rows have a largest entry of one.

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


@dataclass(frozen=True)
class ScaledPrograms:
    """A batch of programs in scaled units.

    Attributes:
        H: (B, n, n) curvature, or (B, n) where it is diagonal.
        c: (B, n) cost.
        R: (B or 1, p + m, n) rows [A; G].
        limit: (B, p + K) right-hand sides [b, h, −lb, ub]; 1 where absent, which is also the slack of an absent row.
        present: (B, K) 1.0, and 0.0 where an inequality is absent.
        sign: (B, 2n) −1 for lower and 1 for upper bounds, 0 where absent.
        tol: (1,) bound on the residuals.
        pairs: the pairs of rows that R D Rᵀ is computed from, where few rows have a variable in common, else None.
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
        """All tensors, in a fixed order."""
        return [self.H, self.c, self.R, self.limit, self.present, self.sign, self.tol, *(self.pairs or ())]

    def clone(self) -> ScaledPrograms:
        """Copy every tensor."""
        pairs = None if self.pairs is None else ScaledRowPairs(*(part.clone() for part in self.pairs))
        return replace(self, pairs=pairs, **{name: getattr(self, name).clone() for name in (*_BY_SAMPLE, "R", "tol")})

    def only(self, index: Tensor) -> ScaledPrograms:
        """Select the samples at ``index`` (k,)."""
        R = self.R if len(self.R) == 1 else self.R[index]
        return replace(self, R=R, **{name: getattr(self, name)[index] for name in _BY_SAMPLE})


def scaled_rows(qp: QuadraticProgram) -> ScaledRows:
    """Return the scaled constraints of a batch. They are computed once where all samples of a problem share them."""
    return qp.prepare_once(_NAME, _scale_rows) if qp.shares_constraints else _scale_rows(qp)


def _scale_rows(qp: QuadraticProgram) -> ScaledRows:
    """Divide every constraint row by its largest entry."""
    most = max(len(qp.A), len(qp.G))
    R = torch.cat([qp.A.expand(most, -1, -1), qp.G.expand(most, -1, -1)], 1)
    norms = R.abs().amax(2)
    norms = torch.where(norms > 0, norms, torch.ones_like(norms))
    most = max(map(len, (norms, qp.b, qp.h, qp.lb, qp.ub)))
    b, h, lb, ub = (value.expand(most, -1) for value in (qp.b, qp.h, qp.lb, qp.ub))
    right = torch.cat([b, h], 1) / norms
    limit = torch.cat([right, -lb, ub], 1)
    there = limit.isfinite()
    present = there[:, qp.p :].to(qp.c.dtype)
    sign = present[:, qp.m :].clone()
    sign[:, : qp.n].neg_()
    size = _largest_for_scaling(right, torch.minimum(qp.lb.abs(), qp.ub.abs()))
    size = torch.where(size > 0, size, _largest_for_scaling(qp.lb, qp.ub))
    size = torch.where(size > 0, size, torch.ones_like(size))
    return ScaledRows(R / norms[:, :, None], norms, limit, there, present, sign, size)


def scaled_row_pairs(qp: QuadraticProgram, R: Tensor) -> ScaledRowPairs | None:
    """Return the pairs of rows that R D Rᵀ is computed from; None where samples do not share R, or R is not sparse."""
    if not qp.diagonal or len(R) > 1 or R.shape[1] >= qp.n:
        return None
    return qp.prepare_once(_PAIRS, lambda _: _find_scaled_row_pairs(R[0])) if qp.shares_constraints else None


def _find_scaled_row_pairs(R: Tensor) -> ScaledRowPairs | None:
    """Find all pairs of rows of R (k, n) with common variables; None where pairs would save little time."""
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


def scale_programs(qp: QuadraticProgram, rows: ScaledRows, size: Tensor, tol: float) -> tuple[ScaledPrograms, Tensor]:
    """Scale decisions and costs to size one.

    Args:
        qp: the programs.
        rows: their scaled constraints.
        size: (B, 1) the unit of x.
        tol: bound on the residuals.

    Returns:
        The scaled programs, and (B, 1) the unit of the cost.
    """
    H = qp.H.diagonal(dim1=1, dim2=2) if qp.diagonal else qp.H.flatten(1)
    cost = torch.maximum(_largest_for_scaling(qp.c) * size, _largest_for_scaling(H) * size**2)
    cost = torch.where(cost > 0, cost, 1.0)
    H = H * (size**2 / cost)
    data = ScaledPrograms(
        H=H if qp.diagonal else H.view(-1, qp.n, qp.n),
        c=qp.c * size / cost,
        R=rows.R,
        limit=torch.where(rows.there, rows.limit / size, 1.0),
        present=rows.present.expand(qp.batch, -1),
        sign=rows.sign.expand(qp.batch, -1),
        tol=torch.full_like(size[:1, 0], tol),
    )
    return data, cost


def unscale_state(
    qp: QuadraticProgram, rows: ScaledRows, size: Tensor, cost: Tensor, state: Tensor
) -> tuple[Tensor, Duals]:
    """Convert a state of the iterates to points (B, n) and multipliers in the user's units.

    Args:
        qp, rows, size: as in ``scale_programs``.
        cost: (B, 1) the unit of the cost.
        state: (B, n + p + 2K) x, multipliers of the equalities, multipliers of the stack, slacks.
    """
    x, y, lam, _ = state.split([qp.n, qp.p, qp.m + 2 * qp.n, qp.m + 2 * qp.n], 1)
    unit = cost / size
    inequality, lower, upper = (lam * rows.present * unit).split([qp.m, qp.n, qp.n], 1)
    norms_a, norms_g = rows.norms.split([qp.p, qp.m], 1)
    return x * size, Duals(equality=y * unit / norms_a, inequality=inequality / norms_g, bound=upper - lower)


def _largest_for_scaling(*values: Tensor) -> Tensor:
    """Return (B or 1, 1) the largest finite magnitude of each sample."""
    total = values[0].new_zeros(1, 1)
    for value in values:
        if value[0].numel():
            largest = value.flatten(1).abs().nan_to_num(posinf=0.0).amax(1, keepdim=True)
            total = torch.maximum(total, largest)
    return total
