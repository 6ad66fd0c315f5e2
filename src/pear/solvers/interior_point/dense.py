"""The built-in solver: a batched primal-dual interior-point method in torch, on CPU and GPU.

Mehrotra's predictor-corrector on ``min ½xᵀHx + cᵀx, Ax = b, Gx + s = h, lb ≤ x ≤ ub``. The Newton systems carry a small
proximal shift (ρ on x, δ on the equalities), so that rank-deficient rows and singular H need no special case; the
residuals are exact, so that the shift costs iterations and never accuracy. With R = [A; G] and the weights W of its
rows (1/δ for equalities, multiplier over slack for inequalities) each step factors the smaller of

    H + ρI + D_bounds + RᵀWR   (n × n)        and, for diagonal H,        I + W^½ R D⁻¹ Rᵀ W^½   (rows × rows).

The result is a candidate like any other solver's: the pipeline verifies it and makes it exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pear.optimality.point import Duals, Status
from pear.problem.canonical import QuadraticProgram, matvec, tmatvec
from pear.solvers.base import Candidate, empty_candidate

_State = tuple[Tensor, Tensor, Tensor, Tensor]
"""x (B, n), multipliers of the equalities y (B, p), slacks s and multipliers λ of the inequalities (B, m + 2n)."""

_Solve = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]

_RHO = 1e-10
_DELTA = 1e-8
_DIVERGED = 1e4
_MARGIN = 1e-3
"""Complementarity is driven this much further than feasibility: it is what sets slacks apart from multipliers, while
feasibility is the repair's to restore."""
_MAX_ITER = 60
_RESIZES = 3
_SMALL = 1e-2
_LEAST = 1e-6
_TO_BOUNDARY = 0.995


@dataclass(frozen=True)
class _Scale:
    """Factors between the user's units and the solver's: x = size·x', objective = cost·objective'."""

    size: Tensor  # (B, 1)
    cost: Tensor  # (B, 1)
    rows_a: Tensor  # (B or 1, p)
    rows_g: Tensor  # (B or 1, m)


@dataclass(frozen=True)
class _Inequalities:
    """All inequalities of the scaled problem as one stack [G; -I; I], absent ones masked out."""

    G: Tensor
    limit: Tensor  # (B or 1, m + 2n), 0 where absent
    present: Tensor  # (B or 1, m + 2n)

    def times(self, x: Tensor) -> Tensor:
        return torch.cat([matvec(self.G, x), -x, x], 1)

    def transposed_times(self, y: Tensor) -> Tensor:
        m, n = self.G.shape[1:]
        return tmatvec(self.G, y[:, :m]) - y[:, m : m + n] + y[:, m + n :]


def solve(qp: QuadraticProgram, tol: float) -> Candidate:
    """Solve a batch of LPs or QPs to about ``tol`` (relative).

    Args:
        qp: the batch; costs must be finite.
        tol: bound on the scaled residuals and on the mean complementarity.

    Returns:
        A candidate with status SOLVED or INACCURATE; infeasibility is not this method's to tell.
    """
    if not qp.batch:
        return empty_candidate(0, qp.n, qp.p, qp.m, qp.c)
    size = _size(qp)
    candidate = _solve_at(qp, size, tol)
    for _ in range(_RESIZES):
        # a bound of 1e8 that nobody reaches made the unit of x; look again in the decision's own units
        reached = torch.maximum(candidate.x.abs().amax(1, keepdim=True), _LEAST * size)
        small = (reached < _SMALL * size)[:, 0].nonzero()[:, 0]
        if not len(small):
            break
        size = torch.minimum(size, reached)
        again = _solve_at(qp[small], size[small], tol)
        better = again.status == Status.SOLVED
        candidate.put(small[better], again[better])
    return candidate


def _solve_at(qp: QuadraticProgram, size: Tensor, tol: float) -> Candidate:
    """Solve with x measured in units of ``size`` (B, 1)."""
    scaled, scale = _scaled(qp, size)
    inequalities = _stack(scaled)
    state = best = _start(scaled, inequalities)
    least = torch.full_like(qp.c[:, 0], torch.inf)
    for _ in range(_MAX_ITER):
        residual, ahead = _newton(scaled, inequalities, state)
        better = residual < least
        best = _select(better, state, best)
        least = torch.where(better, residual, least)
        # once rounding has the upper hand the iterates run away, so that only the best one counts
        if bool(((least <= tol) | (residual > _DIVERGED * least)).all()):
            break
        state = _select((residual <= tol) | ~_all_finite(ahead), state, ahead)
    return _unscaled(qp, scale, best, least <= tol)


def _size(qp: QuadraticProgram) -> Tensor:
    """(B, 1) a first guess of how large decisions are: the largest right-hand side, or nearer bound of a variable."""
    nearer = torch.minimum(qp.lb.abs(), qp.ub.abs())
    size = _peak(qp.b / _row_norm(qp.A), qp.h / _row_norm(qp.G), nearer)
    size = torch.where(size > 0, size, _peak(qp.lb, qp.ub))
    return torch.where(size > 0, size, torch.ones_like(size)).expand(qp.batch, 1)


def _peak(*values: Tensor) -> Tensor:
    """(B or 1, 1) largest finite magnitude of each sample."""
    total = values[0].new_zeros(1, 1)
    for value in values:
        if value[0].numel():
            peak = value.flatten(1).abs().nan_to_num(posinf=0.0).amax(1, keepdim=True)
            total = torch.maximum(total, peak)
    return total


def _row_norm(rows: Tensor) -> Tensor:
    norm = rows.abs().amax(2)
    return torch.where(norm > 0, norm, torch.ones_like(norm))


def _scaled(qp: QuadraticProgram, size: Tensor) -> tuple[QuadraticProgram, _Scale]:
    """Bring decisions, rows and cost to size one."""
    rows_a, rows_g = _row_norm(qp.A), _row_norm(qp.G)
    cost = torch.maximum(_peak(qp.c) * size, _peak(qp.H) * size**2)
    cost = torch.where(cost > 0, cost, torch.ones_like(cost))
    scaled = replace(
        qp,
        H=qp.H * (size**2 / cost)[:, :, None],
        c=qp.c * size / cost,
        A=qp.A / rows_a[:, :, None],
        b=qp.b / rows_a / size,
        G=qp.G / rows_g[:, :, None],
        h=qp.h / rows_g / size,
        lb=qp.lb / size,
        ub=qp.ub / size,
    )
    return scaled, _Scale(size, cost, rows_a, rows_g)


def _stack(qp: QuadraticProgram) -> _Inequalities:
    rows = max(qp.h.shape[0], qp.lb.shape[0], qp.ub.shape[0])
    limit = torch.cat([v.expand(rows, -1) for v in (qp.h, -qp.lb, qp.ub)], 1)
    present = limit.isfinite()
    return _Inequalities(qp.G, torch.where(present, limit, torch.zeros_like(limit)), present)


def _factor(qp: QuadraticProgram, D: Tensor) -> _Solve:
    """Factor the Newton system for weights D (B, m + 2n) of the inequalities.

    Returns:
        A function of r (B, n) and t (B, p + m) that gives dx and v with (H + ρI + D_bounds) dx + Rᵀv = r and
        v = W R dx + t: the steps of x and of the rows' multipliers.
    """
    m, n = qp.m, qp.n
    bounds = D[:, m : m + n] + D[:, m + n :] + _RHO
    W = torch.cat([torch.full_like(D[:, :1], 1 / _DELTA).expand(-1, qp.p), D[:, :m]], 1)
    R = torch.cat([qp.A.expand(len(D), -1, -1), qp.G.expand(len(D), -1, -1)], 1)
    if qp.diagonal and R.shape[1] < n:
        return _factor_rows(R, W, qp.H.diagonal(dim1=1, dim2=2) + bounds)
    M = qp.H + torch.diag_embed(bounds)
    L = _cholesky(M + R.mT @ (W[:, :, None] * R) if R.shape[1] else M)

    def solve(r: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        dx = _cholesky_solve(L, r - tmatvec(R, t))
        v = W * matvec(R, dx) + t
        # W is as large as 1/δ and v a difference of large numbers; one refinement gives the lost digits back
        again = _cholesky_solve(L, r - matvec(M, dx) - tmatvec(R, v))
        return dx + again, v + W * matvec(R, again)

    return solve


def _factor_rows(R: Tensor, W: Tensor, diagonal: Tensor) -> _Solve:
    """The same from the side of the rows: with u = W^½ R dx everything stays of size one however large W is."""
    root = W.sqrt()
    scaled = root[:, :, None] * R
    S = (scaled / diagonal[:, None, :]) @ scaled.mT
    L = _cholesky(S + torch.eye(S.shape[1], dtype=S.dtype, device=S.device))
    # rows without weight carry no t either
    inverse = torch.where(root > 0, 1 / root.clamp(min=1e-150), torch.zeros_like(root))

    def solve(r: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        u = _cholesky_solve(L, matvec(scaled, r / diagonal) + inverse * t)
        return (r - tmatvec(scaled, u)) / diagonal, root * u

    return solve


def _cholesky(M: Tensor) -> Tensor:
    """(B, k, k) factors; where M is not numerically positive definite its diagonal is lifted."""
    L, info = torch.linalg.cholesky_ex(M)
    if bool(info.any()):
        lift = torch.diag_embed(1e-9 * M.diagonal(dim1=1, dim2=2).amax(1, keepdim=True).expand(-1, M.shape[1]))
        L = torch.where((info > 0)[:, None, None], torch.linalg.cholesky_ex(M + lift)[0], L)
    return L


def _start(qp: QuadraticProgram, c: _Inequalities) -> _State:
    """Minimise objective + ½‖violation‖² and shift slacks and multipliers inside; gives (x, y, s, λ)."""
    B = qp.batch
    D = c.present.to(qp.c.dtype).expand(B, -1)
    m, n = qp.m, qp.n
    limit = D * c.limit
    r = -qp.c - limit[:, m : m + n] + limit[:, m + n :]
    x, rows = _factor(qp, D)(r, -torch.cat([qp.b.expand(B, -1) / _DELTA, limit[:, :m]], 1))
    y = rows[:, : qp.p]
    gap = (c.limit - c.times(x)) * D  # slack if positive, multiplier if negative

    def inside(v: Tensor) -> Tensor:
        shift = -torch.where(D > 0, v, torch.full_like(v, torch.inf)).amin(1, keepdim=True)
        shifted = v + torch.where(shift > -1e-3, 1 + shift, torch.zeros_like(shift))
        return torch.where(D > 0, shifted, torch.ones_like(v))

    return x, y, inside(gap), inside(-gap) * D


def _newton(qp: QuadraticProgram, c: _Inequalities, state: _State) -> tuple[Tensor, _State]:
    """One predictor-corrector step: (B,) residuals of the state, and the state after it."""
    x, y, s, lam = state
    count = c.present.sum(1, keepdim=True).clamp(min=1)
    curvature_term = matvec(qp.H, x)
    r_dual = curvature_term + qp.c + tmatvec(qp.A, y) + c.transposed_times(lam)
    r_eq = matvec(qp.A, x) - qp.b
    r_in = (c.times(x) + s - c.limit) * c.present
    mu = (s * lam).sum(1, keepdim=True) / count
    # not relative to the multipliers: they grow without limit where there is no feasible point
    size, unit = 1 + x.abs().amax(1, keepdim=True), 1 + curvature_term.abs().amax(1, keepdim=True)
    residual = torch.cat([r_dual / unit, r_eq / size, r_in / size, mu / unit / _MARGIN], 1).abs().amax(1)

    m, n = qp.m, qp.n
    factor = _factor(qp, lam / s)

    def direction(r_comp: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        t = (lam * r_in - r_comp) / s
        dx, rows = factor(-r_dual + t[:, m : m + n] - t[:, m + n :], torch.cat([r_eq / _DELTA, t[:, :m]], 1))
        dy = rows[:, : qp.p]
        ds = (-r_in - c.times(dx)) * c.present
        return dx, dy, ds, (-r_comp - lam * ds) / s

    _, _, ds, dlam = direction(s * lam)
    step = torch.minimum(_longest(s, ds), _longest(lam, dlam))
    mu_ahead = ((s + step * ds) * (lam + step * dlam)).sum(1, keepdim=True) / count
    sigma = (mu_ahead / mu.clamp(min=1e-300)).clamp(max=1.0) ** 3
    correction = (s * lam + ds * dlam - sigma * mu) * c.present
    dx, dy, ds, dlam = direction(correction)
    step = torch.minimum(_longest(s, ds), _longest(lam, dlam))
    return residual, (x + step * dx, y + step * dy, s + step * ds, lam + step * dlam)


def _select(where: Tensor, yes: _State, no: _State) -> _State:
    x, y, s, lam = (torch.where(where[:, None], a, b) for a, b in zip(yes, no, strict=True))
    return x, y, s, lam


def _all_finite(state: _State) -> Tensor:
    """(B,) bool; a step that overflowed, for an unbounded sample say, is not taken."""
    return torch.cat(state, 1).isfinite().all(1)


def _longest(v: Tensor, dv: Tensor) -> Tensor:
    """(B, 1) the longest step, at most 1, that keeps v + step·dv positive, with a margin."""
    ratio = torch.where(dv < 0, -v / dv, torch.full_like(v, torch.inf))
    return (_TO_BOUNDARY * ratio.amin(1, keepdim=True)).clamp(max=1.0)


def _cholesky_solve(L: Tensor, rhs: Tensor) -> Tensor:
    return torch.cholesky_solve(rhs.unsqueeze(-1), L).squeeze(-1)


def _unscaled(qp: QuadraticProgram, scale: _Scale, state: _State, done: Tensor) -> Candidate:
    x, y, _, lam = state
    unit = scale.cost / scale.size
    m, n = qp.m, qp.n
    duals = Duals(
        equality=y * unit / scale.rows_a,
        inequality=lam[:, :m] * unit / scale.rows_g,
        bound=(lam[:, m + n :] - lam[:, m : m + n]) * unit,
    )
    status = torch.where(done, int(Status.SOLVED), int(Status.INACCURATE)).to(torch.int8)
    return Candidate(x * scale.size, duals, status)
