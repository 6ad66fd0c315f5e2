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

from pear.problem.canonical import matvec, tmatvec
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


class Pairs(NamedTuple):
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
class Scaled:
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
    pairs: Pairs | None = None

    @property
    def tensors(self) -> list[Tensor]:
        """All of them, in a fixed order."""
        return [self.H, self.c, self.R, self.limit, self.present, self.sign, self.tol, *(self.pairs or ())]

    def clone(self) -> Scaled:
        """A copy of every tensor."""
        mine: dict[str, Any] = {name: getattr(self, name).clone() for name in (*_OWN, "R", "tol")}
        return replace(
            self, **mine, pairs=None if self.pairs is None else Pairs(*(part.clone() for part in self.pairs))
        )

    def only(self, index: Tensor) -> Scaled:
        """The samples at ``index`` (k,)."""
        own: dict[str, Any] = {name: getattr(self, name)[index] for name in _OWN}
        return replace(self, **own, R=self.R if len(self.R) == 1 else self.R[index])


class _Left(NamedTuple):
    """What is left of the optimality conditions.

    Attributes:
        slope: (B, n) the gradient of the Lagrangian.
        rest: (B, p + K) what is left of each limit, its slack taken off.
        product: (B, K) slack times multiplier; mu: (B, 1) its mean.
    """

    slope: Tensor
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

    def __init__(self, data: Scaled) -> None:
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

    def begin(self) -> None:
        """Minimise objective + ½‖violation‖², and shift slacks and multipliers inside."""
        d, p, m, n = self.data, self.p, self.m, self.n
        B = len(d.c)
        self.lift.fill_(1.0)
        self.count.copy_(d.present.sum(1, keepdim=True).clamp(min=1))
        weight = d.present.expand(B, -1)
        pulled = d.limit[:, p:] * weight
        t = torch.cat([d.limit[:, :p].expand(B, -1) / -_DELTA, -pulled[:, :m]], 1)
        right = -d.c - pulled[:, m : m + n] + pulled[:, m + n :]
        x, v = self._factor(weight, 1 / weight.clamp(min=_NOTHING))(right, t)
        gap = (d.limit[:, p:] - self._times(x)[:, p:]) * weight  # slack if positive, multiplier if negative

        def inside(value: Tensor) -> Tensor:
            shift = -torch.where(weight > 0, value, torch.inf).amin(1, keepdim=True)
            return value + torch.where(shift > -1e-3, 1 + shift, 0.0)

        s = torch.where(weight > 0, inside(gap), 1.0)
        self.state.copy_(torch.cat([x, v[:, :p], torch.where(weight > 0, inside(-gap), _NOTHING), s], 1))
        self.best.copy_(self.state)
        self.least.fill_(torch.inf)

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

    def measure(self) -> _Left:
        """What is left of the optimality conditions at every state; notes its size, and the best state so far."""
        d, state, n, p, m = self.data, self.state, self.n, self.p, self.m
        x, lam, s = self._parts()
        curvature_term = d.H * x if d.H.dim() == 2 else matvec(d.H, x)
        slope = curvature_term + d.c + lam[:, m + n :] - lam[:, m : m + n]
        slope = slope + tmatvec(d.R, state[:, n : n + self.k]) if self.k else slope
        rest = d.limit - self._times(x)
        rest[:, p:] -= s
        product = s * lam
        mu = product.sum(1, keepdim=True) / self.count
        # not relative to the multipliers: they grow without limit where there is no feasible point
        unit, dual, size, primal = (_largest(value) for value in (curvature_term, slope, x, rest))
        dual = torch.maximum(dual, mu[:, 0] / _MARGIN) / (1 + unit)
        torch.maximum(dual, primal / (1 + size), out=self.residual)
        better = self.residual < self.least
        torch.where(better[:, None], state, self.best, out=self.best)
        torch.where(better, self.residual, self.least, out=self.least)
        return _Left(slope, rest, product, mu)

    def move(self, left: _Left) -> None:
        """Mehrotra's predictor and corrector."""
        d, n, p, m = self.data, self.n, self.p, self.m
        slope, rest, product, mu = left
        _, lam, s = self._parts()
        both = self.state[:, n + p :]
        W = lam / s
        solve = self._factor(W, s / lam)

        def direction(pull: Tensor) -> Tensor:
            """The step in which multipliers change by ``pull`` (B, K) where slacks do not."""
            t = torch.addcmul(pull, W, rest[:, p:], value=-1)
            dx, v = solve(t[:, m : m + n] - t[:, m + n :] - slope, torch.cat([rest[:, :p] / -_DELTA, t[:, :m]], 1))
            ds = rest[:, p:] - self._times(dx)[:, p:]
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

    def _parts(self) -> tuple[Tensor, Tensor, Tensor]:
        """x (B, n), λ and s (B, K) of the state."""
        x, _, lam, s = self.state.split([self.n, self.p, self.K, self.K], 1)
        return x, lam, s

    def _times(self, x: Tensor) -> Tensor:
        """(B, p + K) the rows and signed bounds at x (B, n); zero where absent."""
        d, B = self.data, len(x)
        bounds = (d.sign.view(-1, 2, self.n) * x[:, None]).view(B, 2 * self.n)
        if not self.k:
            return bounds
        rows = matvec(d.R, x)
        if self.m:
            rows[:, self.p :] *= d.present[:, : self.m]
        return torch.cat([rows, bounds], 1)

    def _factor(self, W: Tensor, inverse_W: Tensor) -> _Solve:
        """Factor the Newton system for weights W (B, K) of the inequalities.

        Returns:
            A function of r (B, n) and t (B, p + m) that gives dx and v with (H + ρI + D) dx + Rᵀv = r and
            v = W R dx + t: the steps of x and of the rows' multipliers.
        """
        d, p, m, n, k = self.data, self.p, self.m, self.n, self.k
        bounds = W[:, m : m + n] + W[:, m + n :] + _RHO
        if d.H.dim() == 2 and k < n:
            shift = torch.full_like(W[:, :1], _DELTA).expand(-1, p)
            return self._factor_rows(d.H + bounds, torch.cat([shift, inverse_W[:, :m]], 1) if m else shift)
        M = torch.diag_embed(d.H + bounds) if d.H.dim() == 2 else d.H + torch.diag_embed(bounds)
        if not k:
            solve_bare = self._inverse(M)
            return lambda r, t: (solve_bare(r), t)
        W = torch.cat([torch.full_like(W[:, :1], 1 / _DELTA).expand(-1, p), W[:, :m]], 1)
        return self._factor_variables(M, W)

    def _factor_variables(self, M: Tensor, W: Tensor) -> _Solve:
        R = self.data.R
        inverse = self._inverse(torch.baddbmm(M, R.mT.expand(len(W), -1, -1), W[:, :, None] * R))

        def solve(r: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
            dx = inverse(r - tmatvec(R, t))
            v = torch.addcmul(t, W, matvec(R, dx))
            # W is as large as 1/δ and v a difference of large numbers; one refinement gives the lost digits back
            again = inverse(r - matvec(M, dx) - tmatvec(R, v))
            return dx + again, torch.addcmul(v, W, matvec(R, again))

        return solve

    def _factor_rows(self, diagonal: Tensor, inverse_W: Tensor) -> _Solve:
        """The same from the side of the rows, whose weights may be as large as they like."""
        R, by = self.data.R, 1 / diagonal
        S = _normal_matrix(R, by) if self.data.pairs is None else _from_pairs(self.data.pairs, by)
        S.diagonal(dim1=1, dim2=2).add_(inverse_W)
        inverse = self._inverse(S)

        def solve(r: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
            v = inverse(torch.addcmul(matvec(R, by * r), inverse_W, t))
            return by * (r - tmatvec(R, v)), v

        return solve

    def _inverse(self, M: Tensor) -> Callable[[Tensor], Tensor]:
        """Solve with M (B, k, k), which is overwritten.

        Where a matrix is not numerically positive definite, the sample rests for one iteration, and its diagonal is
        lifted from then on.
        """
        M.diagonal(dim1=1, dim2=2).mul_(self.lift)
        factored = factor(M)
        self._factored = factored.good
        self.lift.copy_(torch.where(factored.good[:, None], self.lift, 1 + _LIFT))
        return factored.solve


def _normal_matrix(R: Tensor, by: Tensor) -> Tensor:
    """(B, k, k) R D Rᵀ for R (B or 1, k, n) and the diagonal of D (B, n)."""
    scaled = by[:, None, :] * R
    return scaled @ R[0].mT if len(R) == 1 else torch.bmm(scaled, R.mT)


def _from_pairs(pairs: Pairs, by: Tensor) -> Tensor:
    """The lower triangle of the same, above which there are zeros."""
    B, k = len(by), len(pairs.square)
    S = by.new_zeros(B, k * k)
    S[:, pairs.place] = (by[:, pairs.column] * pairs.product).sum(2)
    S = S.view(B, k, k)
    S.diagonal(dim1=1, dim2=2).copy_(by @ pairs.square.mT)
    return S


def _largest(values: Tensor) -> Tensor:
    """(B,) the largest magnitude of each row; 0 of nothing."""
    return torch.linalg.vector_norm(values, torch.inf, 1) if values.shape[1] else values.sum(1)


def _longest(values: Tensor, change: Tensor) -> Tensor:
    """(B, 1) the longest step, at most 1, that keeps positive values (B, 2K) positive, with a margin."""
    fall = (change / values).amin(1, keepdim=True).neg()
    return _TO_BOUNDARY / fall.clamp(min=_TO_BOUNDARY)
