"""The built-in solver: a batched primal-dual interior-point method in torch, on CPU and GPU.

Mehrotra's predictor-corrector on ``min ½xᵀHx + cᵀx, Ax = b, Gx + s = h, …, s ≥ 0``. The Newton systems carry a small
proximal shift (ρ on x, δ on the equalities), so that rank-deficient rows and singular H need no special case; the
residuals are exact, so that the shift costs iterations and never accuracy. Slacks and multipliers are eliminated, and
what is factored is one n × n positive definite matrix per sample:

    M = H + ρI + GᵀD_gG + D_bounds + AᵀA/δ.

The result is a hint like any other solver's: the geometry verifies it and makes it exact.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pear.problem.canonical import QuadraticProgram, matvec, tmatvec
from pear.solvers.solution import Duals, Hint, Status, empty_hint

_RHO = 1e-10
_DELTA = 1e-9
_MAX_ITER = 60
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

    def add_curvature(self, M: Tensor, D: Tensor) -> Tensor:
        """M + Cᵀ diag(D) C for the stack C."""
        m, n = self.G.shape[1:]
        M = M + torch.diag_embed(D[:, m : m + n] + D[:, m + n :])
        return M + self.G.mT @ (D[:, :m, None] * self.G) if m else M


def solve(qp: QuadraticProgram, tol: float) -> Hint:
    """Solve a batch of LPs or QPs to about ``tol`` (relative).

    Args:
        qp: the batch; costs must be finite.
        tol: bound on the scaled residuals and on the mean complementarity.

    Returns:
        A hint with status SOLVED or INACCURATE; infeasibility is not this method's to tell.
    """
    if not qp.batch:
        return empty_hint(0, qp.n, qp.p, qp.m, qp.c)
    scaled, scale = _scaled(qp)
    inequalities = _stack(scaled)
    state = _start(scaled, inequalities)
    done = torch.zeros(qp.batch, dtype=torch.bool, device=qp.c.device)
    for _ in range(_MAX_ITER):
        residual, state = _newton(scaled, inequalities, state, done)
        done = done | (residual <= tol)
        if bool(done.all()):
            break
    return _unscaled(qp, scale, state, done)


def _scaled(qp: QuadraticProgram) -> tuple[QuadraticProgram, _Scale]:
    """Bring right-hand sides, rows and cost to size one."""

    def peak(*values: Tensor) -> Tensor:
        finite = [v.flatten(1).abs().nan_to_num(posinf=0.0).amax(1, keepdim=True) for v in values if v[0].numel()]
        size = torch.zeros(1, 1, dtype=qp.c.dtype, device=qp.c.device)
        for value in finite:
            size = torch.maximum(size, value)
        return size

    def row_norm(rows: Tensor) -> Tensor:
        norm = rows.abs().amax(2) if rows.shape[2] else rows.sum(2)
        return torch.where(norm > 0, norm, torch.ones_like(norm))

    rows_a, rows_g = row_norm(qp.A), row_norm(qp.G)
    size = peak(qp.b / rows_a, qp.h / rows_g, qp.lb, qp.ub)
    size = torch.where(size > 0, size, torch.ones_like(size)).expand(qp.batch, 1)
    cost = torch.maximum(peak(qp.c) * size, peak(qp.H) * size**2)
    cost = torch.where(cost > 0, cost, torch.ones_like(cost)).expand(qp.batch, 1)
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


def _factor(qp: QuadraticProgram, inequalities: _Inequalities, D: Tensor) -> Tensor:
    """Cholesky factor of M, (B, n, n); where M is not numerically positive definite its diagonal is lifted."""
    eye = torch.eye(qp.n, dtype=qp.c.dtype, device=qp.c.device)
    M = inequalities.add_curvature(qp.H + _RHO * eye, D)
    if qp.p:
        M = M + qp.A.mT @ qp.A / _DELTA
    L, info = torch.linalg.cholesky_ex(M)
    if bool(info.any()):
        lift = 1e-9 * M.diagonal(dim1=1, dim2=2).amax(1)[:, None, None] * eye
        L = torch.where((info > 0)[:, None, None], torch.linalg.cholesky_ex(M + lift)[0], L)
    return L


def _start(qp: QuadraticProgram, c: _Inequalities) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Minimise objective + ½‖violation‖² and shift slacks and multipliers inside; gives (x, y, s, λ)."""
    B = qp.batch
    D = c.present.to(qp.c.dtype).expand(B, -1)
    L = _factor(qp, c, D)
    rhs = -qp.c + c.transposed_times(D * c.limit) + tmatvec(qp.A, qp.b.expand(B, -1)) / _DELTA
    x = _cholesky_solve(L, rhs)
    y = (matvec(qp.A, x) - qp.b) / _DELTA
    gap = (c.limit - c.times(x)) * D  # slack if positive, multiplier if negative

    def inside(v: Tensor) -> Tensor:
        shift = -torch.where(D > 0, v, torch.full_like(v, torch.inf)).amin(1, keepdim=True)
        shifted = v + torch.where(shift > -1e-3, 1 + shift, torch.zeros_like(shift))
        return torch.where(D > 0, shifted, torch.ones_like(v))

    return x, y, inside(gap), inside(-gap) * D


def _newton(
    qp: QuadraticProgram,
    c: _Inequalities,
    state: tuple[Tensor, Tensor, Tensor, Tensor],
    done: Tensor,
) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor, Tensor]]:
    """One predictor-corrector step for every sample that is not done; returns the residuals before it."""
    x, y, s, lam = state
    count = c.present.sum(1, keepdim=True).clamp(min=1)
    pull = matvec(qp.H, x)
    r_dual = pull + qp.c + tmatvec(qp.A, y) + c.transposed_times(lam)
    r_eq = matvec(qp.A, x) - qp.b
    r_in = (c.times(x) + s - c.limit) * c.present
    mu = (s * lam).sum(1, keepdim=True) / count
    # not relative to the multipliers: they grow without limit where there is no feasible point
    reach, force = 1 + x.abs().amax(1, keepdim=True), 1 + pull.abs().amax(1, keepdim=True)
    residual = torch.cat([r_dual / force, r_eq / reach, r_in / reach, mu / force], 1).abs().amax(1)

    D = lam / s
    L = _factor(qp, c, D)

    def direction(r_comp: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        rhs = -r_dual - tmatvec(qp.A, r_eq) / _DELTA - c.transposed_times((lam * r_in - r_comp) / s)
        dx = _cholesky_solve(L, rhs)
        dy = (matvec(qp.A, dx) + r_eq) / _DELTA
        ds = (-r_in - c.times(dx)) * c.present
        return dx, dy, ds, (-r_comp - lam * ds) / s

    _, _, ds, dlam = direction(s * lam)
    step = torch.minimum(_longest(s, ds), _longest(lam, dlam))
    mu_ahead = ((s + step * ds) * (lam + step * dlam)).sum(1, keepdim=True) / count
    sigma = (mu_ahead / mu.clamp(min=1e-300)).clamp(max=1.0) ** 3
    correction = (s * lam + ds * dlam - sigma * mu) * c.present
    dx, dy, ds, dlam = direction(correction)
    step = torch.minimum(_longest(s, ds), _longest(lam, dlam))
    step = torch.where(done[:, None], torch.zeros_like(step), step)
    new = (x + step * dx, y + step * dy, s + step * ds, lam + step * dlam)
    # a direction that overflowed (an unbounded sample, say) leaves its sample where it is
    kept = tuple(torch.where(torch.isfinite(b).all(1, keepdim=True), b, a) for a, b in zip(state, new, strict=True))
    return residual, kept  # type: ignore[return-value]


def _longest(v: Tensor, dv: Tensor) -> Tensor:
    """(B, 1) the longest step, at most 1, that keeps v + step·dv positive, with a margin."""
    ratio = torch.where(dv < 0, -v / dv, torch.full_like(v, torch.inf))
    return (_TO_BOUNDARY * ratio.amin(1, keepdim=True)).clamp(max=1.0)


def _cholesky_solve(L: Tensor, rhs: Tensor) -> Tensor:
    return torch.cholesky_solve(rhs.unsqueeze(-1), L).squeeze(-1)


def _unscaled(qp: QuadraticProgram, scale: _Scale, state: tuple[Tensor, ...], done: Tensor) -> Hint:
    x, y, _, lam = state
    force = scale.cost / scale.size
    m, n = qp.m, qp.n
    duals = Duals(
        equality=y * force / scale.rows_a,
        inequality=lam[:, :m] * force / scale.rows_g,
        bound=(lam[:, m + n :] - lam[:, m : m + n]) * force,
    )
    status = torch.where(done, int(Status.SOLVED), int(Status.INACCURATE)).to(torch.int8)
    return Hint(x * scale.size, duals, status)
