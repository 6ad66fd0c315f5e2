"""One iteration of the batched interior point: a predictor and a corrector on tensors that never leave their device.

All samples take every step; what is finished stays where it is by a mask. No number is looked at on the way, so that an
iteration can be queued on a GPU, or captured once and replayed (``solvers.interior_point.graphs``).

With R = [A; G], the weights W of its rows (1/δ for equalities, multiplier over slack for inequalities) and the diagonal
D of the bounds, a step factors the smaller of

    H + ρI + D + RᵀWR   (n × n)        and, for diagonal H,        R (H + ρI + D)⁻¹ Rᵀ + W⁻¹   (rows × rows).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pear.problem.matrix import matvec
from pear.solvers.linalg.cholesky import factor

_Solve = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]

_OWN = ("H", "c", "limit", "present", "sign")  # of every sample
_RHO = 1e-10
_DELTA = 1e-8
_LIFT = 1e-9  # of a diagonal whose matrix is not numerically positive definite
_NOTHING = 1e-200  # the multiplier of an absent constraint: one that can be divided by
_HUGE = 1e200  # an iterate beyond this has overflowed
_MARGIN = 1e-3
"""Complementarity is driven this much further than feasibility: it is what sets slacks apart from multipliers, while
feasibility is the repair's to restore."""
_TO_BOUNDARY = 0.995
_DIVERGED = 1e4
_FURTHER = 1e-4  # of the tolerance: where a sample stops in any case


class RowPairs(NamedTuple):
    """Rows that are shared and mostly zero: E pairs of them have a variable in common, none more than w.

    Attributes:
        column: (E, w) these variables; product: (E, w) the products of both rows' entries there, 0 where there are
            fewer.
        place: (E,) where a pair stands in the lower triangle of a (k, k) matrix, row after row.
        square: (k, n) the squares of all entries.
    """

    column: Tensor
    product: Tensor
    place: Tensor
    square: Tensor


@dataclass(frozen=True)
class ScaledPrograms:
    """A batch in units of its own, inequalities and bounds as one stack [G; −I; I]; K = m + 2n.

    Attributes:
        H: (B, n, n) curvature, or (B, n) where it is diagonal.
        c: (B, n) cost.
        R: (B or 1, p + m, n) rows [A; G].
        limit: (B, p + K) right-hand sides [b, h, −lb, ub]; 1 where absent, which is the slack kept there.
        present: (B, K) 1.0, and 0.0 where an inequality is absent.
        sign: (B, 2n) −1 for lower and 1 for upper bounds, 0 where absent.
        tol: (1,) bound on the residuals.
        pairs: what R D Rᵀ is made of, where few rows have a variable in common.
    """

    H: Tensor
    c: Tensor
    R: Tensor
    limit: Tensor
    present: Tensor
    sign: Tensor
    tol: Tensor
    pairs: RowPairs | None = None

    @property
    def tensors(self) -> list[Tensor]:
        """All of them, in a fixed order."""
        return [self.H, self.c, self.R, self.limit, self.present, self.sign, self.tol, *(self.pairs or ())]

    def clone(self) -> ScaledPrograms:
        """A copy of every tensor."""
        mine: dict[str, Any] = {name: getattr(self, name).clone() for name in (*_OWN, "R", "tol")}
        return replace(
            self, **mine, pairs=None if self.pairs is None else RowPairs(*(part.clone() for part in self.pairs))
        )

    def only(self, index: Tensor) -> ScaledPrograms:
        """The samples at ``index`` (k,)."""
        own: dict[str, Any] = {name: getattr(self, name)[index] for name in _OWN}
        return replace(self, **own, R=self.R if len(self.R) == 1 else self.R[index])


class _Residuals(NamedTuple):
    """What is left of the optimality conditions.

    Attributes:
        slope: (B, n) the gradient of the Lagrangian.
        equality: (B, p) what is left of the right-hand sides; rest: (B, K) of the other limits, their slacks taken
            off.
        product: (B, K) slack times multiplier; mu: (B, 1) its mean.
    """

    slope: Tensor
    equality: Tensor
    rest: Tensor
    product: Tensor
    mu: Tensor


class Newton:
    """The iterates of a batch.

    A state (B, n + p + 2K) holds the point x, the multipliers y of the equalities and λ of the inequalities, and the
    slacks s, beside each other: it is moved, compared and kept as a whole.

    Args:
        data: the programs; read in place, so that others of the same shapes may be copied into them.
    """

    def __init__(self, data: ScaledPrograms) -> None:
        self.data = data
        B, self.n = data.c.shape
        self.k, self.K = data.R.shape[1], data.present.shape[1]
        self.m = self.K - 2 * self.n
        self.p = self.k - self.m
        self.state = data.c.new_zeros(B, self.n + self.p + 2 * self.K)
        self.best = torch.zeros_like(self.state)
        self.residual = data.c.new_zeros(B)
        self.least = data.c.new_zeros(B)
        self.lift = data.c.new_ones(B, 1)
        self.count = data.c.new_zeros(B, 1)
        self._factored = torch.ones_like(self.residual, dtype=torch.bool)
        self._shift = data.c.new_full((B, self.p), _DELTA)

    def begin(self) -> None:
        """Minimise objective + ½‖violation‖², and shift slacks and multipliers inside."""
        d, p, m, n = self.data, self.p, self.m, self.n
        self.lift.fill_(1 + _LIFT)  # where to begin need not be exact, but there has to be a factor
        self.count.copy_(d.present.sum(1, keepdim=True).clamp(min=1))
        weight, limit = d.present, d.limit[:, p:]
        pulled = limit * weight
        right = pulled[:, m + n :] - pulled[:, m : m + n] - d.c
        solve = self._factor(weight, 1 / weight[:, :m].clamp(min=_NOTHING), d.limit[:, :p])
        x, v = solve(right, -pulled[:, :m])
        gap = self._minus_limits(limit, x) * weight  # slack if positive, multiplier if negative

        def inside(value: Tensor) -> Tensor:
            shift = -torch.where(weight > 0, value, torch.inf).amin(1, keepdim=True)
            return value + torch.where(shift > -1e-3, 1 + shift, 0.0)

        s = torch.where(weight > 0, inside(gap), 1.0)
        self.state.copy_(torch.cat([x, v[:, :p], torch.where(weight > 0, inside(-gap), _NOTHING), s], 1))
        self.best.copy_(self.state)
        self.least.fill_(torch.inf)
        self.lift.fill_(1.0)

    def advance(self) -> None:
        """One step of every sample that is not finished; keeps the best state of each."""
        self.move(self.measure())

    def finished(self) -> Tensor:
        """(B,) bool: as accurate as was asked for, or on the way out.

        Once rounding has the upper hand the iterates run away, so that only the best one counts.
        """
        return (self.least <= self.data.tol) | (self.residual > _DIVERGED * self.least)

    def only(self, index: Tensor) -> Newton:
        """The samples at ``index`` (k,), where they are."""
        some = Newton(self.data.only(index))
        some.state, some.best, some.lift = self.state[index], self.best[index], self.lift[index]
        some.residual, some.least, some.count = self.residual[index], self.least[index], self.count[index]
        return some

    def measure(self) -> _Residuals:
        """What is left of the optimality conditions at every state; notes its size, and the best state so far."""
        d, state, n, p, m = self.data, self.state, self.n, self.p, self.m
        x, lam, s = self._split_state()
        curvature_term = d.H * x if d.H.dim() == 2 else matvec(d.H, x)
        slope = curvature_term + d.c + lam[:, m + n :] - lam[:, m : m + n]
        slope = _plus_tmatvec(slope, d.R, state[:, n : n + self.k]) if self.k else slope
        equality = _plus_matvec(d.limit[:, :p], d.R[:, :p], x, -1) if p else d.limit[:, :p]
        rest = self._minus_limits(d.limit[:, p:], x) - s
        product = s * lam
        mu = product.sum(1, keepdim=True) / self.count
        # not relative to the multipliers: they grow without limit where there is no feasible point
        unit, dual, size, primal = (_largest(value) for value in (curvature_term, slope, x, rest))
        primal = torch.maximum(primal, _largest(equality)) if p else primal
        dual = torch.maximum(dual, mu[:, 0] / _MARGIN) / (1 + unit)
        torch.maximum(dual, primal / (1 + size), out=self.residual)
        better = self.residual < self.least
        torch.where(better[:, None], state, self.best, out=self.best)
        torch.where(better, self.residual, self.least, out=self.least)
        return _Residuals(slope, equality, rest, product, mu)

    def move(self, left: _Residuals) -> None:
        """Mehrotra's predictor and corrector."""
        d, n, p, m = self.data, self.n, self.p, self.m
        slope, equality, rest, product, mu = left
        _, lam, s = self._split_state()
        both = self.state[:, n + p :]
        W = lam / s
        solve = self._factor(W, s[:, :m] / lam[:, :m], equality)

        def direction(pull: Tensor) -> Tensor:
            """The step in which multipliers change by ``pull`` (B, K) where slacks do not."""
            t = torch.addcmul(pull, W, rest, value=-1)
            dx, v = solve(t[:, m : m + n] - t[:, m + n :] - slope, t[:, :m])
            ds = self._minus_limits(rest, dx)
            return torch.cat([dx, v[:, :p], torch.addcmul(pull, W, ds, value=-1), ds], 1)

        step = direction(-lam)[:, n + p :]
        ahead = torch.addcmul(both, _longest(both, step), step)
        mu_ahead = (ahead[:, : self.K] * ahead[:, self.K :]).sum(1, keepdim=True) / self.count
        target = (mu_ahead / mu.clamp(min=1e-300)).clamp(max=1.0) ** 3 * mu
        product = torch.addcmul(product, step[:, : self.K], step[:, self.K :])
        step = direction((target - product) / s * d.present)
        moved = torch.addcmul(self.state, _longest(both, step[:, n + p :]), step)
        # a step that overflowed, for an unbounded sample say, is not taken; what is finished goes on beside the others,
        # because the further it gets, the fewer constraints are guessed wrong
        moves = (_largest(moved) < _HUGE) & self._factored & (self.residual > _FURTHER * d.tol)
        torch.where(moves[:, None], moved, self.state, out=self.state)

    def _split_state(self) -> tuple[Tensor, Tensor, Tensor]:
        """x (B, n), λ and s (B, K) of the state."""
        x, _, lam, s = self.state.split([self.n, self.p, self.K, self.K], 1)
        return x, lam, s

    def _minus_limits(self, start: Tensor, x: Tensor) -> Tensor:
        """(B, K) ``start`` less the inequalities and signed bounds at x (B, n), where they are present."""
        d, m, shape = self.data, self.m, (len(x), 2, self.n)
        bounds = torch.addcmul(start[:, m:].view(shape), d.sign.view(shape), x[:, None], value=-1).view(len(x), -1)
        if not m:
            return bounds
        rows = matvec(d.R[:, self.p :], x)
        return torch.cat([torch.addcmul(start[:, :m], d.present[:, :m], rows, value=-1), bounds], 1)

    def _factor(self, W: Tensor, inverse_W: Tensor, equality: Tensor) -> _Solve:
        """Factor the Newton system for weights W (B, K) of the inequalities, ``inverse_W`` (B, m) for the rows.

        Returns:
            A function of r (B, n) and t (B, m) that gives dx and v with (H + ρI + D) dx + Rᵀv = r and v = W R dx + t,
            where t is −equality/δ for the equalities: the steps of x and of the rows' multipliers.
        """
        d, m, n, k = self.data, self.m, self.n, self.k
        bounds = W[:, m : m + n] + W[:, m + n :] + _RHO
        if d.H.dim() == 2 and k < n:
            return self._factor_rows(d.H + bounds, _side_by_side(self._shift, inverse_W), -equality)
        M = torch.diag_embed(d.H) if d.H.dim() == 2 else d.H
        weight = _side_by_side(1 / self._shift, W[:, :m])
        return self._factor_variables(M, bounds, weight, equality / -_DELTA)

    def _factor_variables(self, H: Tensor, bounds: Tensor, W: Tensor, t_equality: Tensor) -> _Solve:
        R = self.data.R
        M = torch.baddbmm(H, R.mT.expand(len(W), -1, -1), W[:, :, None] * R) if self.k else H.clone()
        M.diagonal(dim1=1, dim2=2).add_(bounds)
        inverse = self._inverse(M)

        def solve(r: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
            t = _side_by_side(t_equality, t)
            if not self.k:
                return inverse(r), t
            dx = inverse(_plus_tmatvec(r, R, t, -1))
            v = torch.addcmul(t, W, matvec(R, dx))
            # W is as large as 1/δ and v a difference of large numbers; one refinement gives the lost digits back
            rest = torch.addcmul(r - matvec(H, dx), bounds, dx, value=-1)
            again = inverse(_plus_tmatvec(rest, R, v, -1))
            return dx + again, torch.addcmul(v, W, matvec(R, again))

        return solve

    def _factor_rows(self, diagonal: Tensor, inverse_W: Tensor, q_equality: Tensor) -> _Solve:
        """The same from the side of the rows, whose weights may be as large as they like."""
        R, by, pairs = self.data.R, 1 / diagonal, self.data.pairs
        S = _normal_matrix(R, by, inverse_W) if pairs is None else _normal_matrix_from_pairs(pairs, by, inverse_W)
        inverse = self._inverse(S)

        def solve(r: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
            q = _side_by_side(q_equality, inverse_W[:, self.p :] * t)
            v = inverse(_plus_matvec(q, R, by * r))
            return by * _plus_tmatvec(r, R, v, -1), v

        return solve

    def _inverse(self, M: Tensor) -> Callable[[Tensor], Tensor]:
        """Solve with M (B, k, k), which is overwritten.

        Where a matrix is not numerically positive definite, the sample rests for one iteration, and its diagonal is
        lifted from then on.
        """
        M.diagonal(dim1=1, dim2=2).mul_(self.lift)
        factored = factor(M)
        self._factored = factored.good
        self.lift.masked_fill_(~factored.good[:, None], 1 + _LIFT)
        return factored.solve


def _normal_matrix(R: Tensor, by: Tensor, shift: Tensor) -> Tensor:
    """(B, k, k) R D Rᵀ plus a diagonal, for R (B or 1, k, n), the diagonal of D (B, n) and ``shift`` (B, k)."""
    scaled = by[:, None, :] * R
    S = scaled @ R[0].mT if len(R) == 1 else torch.bmm(scaled, R.mT)
    S.diagonal(dim1=1, dim2=2).add_(shift)
    return S


def _normal_matrix_from_pairs(pairs: RowPairs, by: Tensor, shift: Tensor) -> Tensor:
    """The lower triangle of the same, above which there are zeros."""
    B, k = len(by), len(pairs.square)
    S = by.new_zeros(B, k * k)
    S[:, pairs.place] = (by[:, pairs.column] * pairs.product).sum(2)
    S = S.view(B, k, k)
    S.diagonal(dim1=1, dim2=2).copy_(torch.addmm(shift, by, pairs.square.mT))
    return S


def _side_by_side(first: Tensor, second: Tensor) -> Tensor:
    """Columns beside each other; without a copy where one side has none."""
    if not second.shape[1]:
        return first
    return torch.cat([first, second], 1) if first.shape[1] else second


def _largest(values: Tensor) -> Tensor:
    """(B,) the largest magnitude of each row; 0 of nothing."""
    return torch.linalg.vector_norm(values, torch.inf, 1) if values.shape[1] else values.sum(1)


def _longest(values: Tensor, change: Tensor) -> Tensor:
    """(B, 1) the longest step, at most 1, that keeps positive values (B, 2K) positive, with a margin."""
    return ((change / values).amin(1, keepdim=True) / -_TO_BOUNDARY).clamp(min=1.0).reciprocal()


def _plus_matvec(start: Tensor, matrix: Tensor, x: Tensor, times: float = 1.0) -> Tensor:
    """``start + times · M x``, (B, r), for M (B or 1, r, n) and x (B, n)."""
    if len(matrix) == 1:
        return torch.addmm(start, x, matrix[0].mT, alpha=times)
    return torch.baddbmm(start[:, :, None], matrix, x[:, :, None], alpha=times)[:, :, 0]


def _plus_tmatvec(start: Tensor, matrix: Tensor, y: Tensor, times: float = 1.0) -> Tensor:
    """``start + times · Mᵀ y``, (B, n), for M (B or 1, r, n) and y (B, r)."""
    if len(matrix) == 1:
        return torch.addmm(start, y, matrix[0], alpha=times)
    return torch.baddbmm(start[:, None], y[:, None], matrix, alpha=times)[:, 0]
