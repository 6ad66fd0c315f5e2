"""The built-in solver: a batched primal-dual interior-point method in torch, on CPU and GPU.

Mehrotra's predictor-corrector on ``min ½xᵀHx + cᵀx, Ax = b, Gx + s = h, lb ≤ x ≤ ub``, in units in which decisions,
rows and costs have size one. The Newton systems carry a small proximal shift (ρ on x, δ on the equalities), so that
rank-deficient rows and singular H need no special case; the residuals are exact, so that the shift costs iterations and
never accuracy.

The result is a candidate like any other solver's: the pipeline verifies it and makes it exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pear.optimality.point import Duals, Status
from pear.problem.canonical import QuadraticProgram
from pear.solvers.base import Candidate, empty_candidate
from pear.solvers.interior_point import graphs
from pear.solvers.interior_point.newton import Newton, Scaled

_MAX_ITER = 60
_RESIZES = 3
_SMALL = 1e-2
_LEAST = 1e-6
_BEFORE, _BETWEEN, _AFTER = 8, 2, 2
"""Iterations that a GPU is given before it is first asked how far it is, between two such looks, and when all samples
are finished: there they take less time than the exchange of a constraint that was guessed wrong."""


@dataclass(frozen=True)
class _Scale:
    """Factors between the user's units and the solver's: x = size·x', objective = cost·objective'."""

    size: Tensor  # (B, 1)
    cost: Tensor  # (B, 1)
    rows_a: Tensor  # (B or 1, p)
    rows_g: Tensor  # (B or 1, m)


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
    data, scale = _scaled(qp, size, tol)
    best, least = _on_gpu(data) if qp.c.is_cuda else _on_cpu(data)
    return _unscaled(qp, scale, best, data.present, least <= tol)


def _on_gpu(data: Scaled) -> tuple[Tensor, Tensor]:
    """The best state of each sample and its residual; all go on until the last one is finished."""
    iterates = graphs.iterates(data)
    iterates.begin()
    done, ahead = 0, _BEFORE
    while done < _MAX_ITER:
        for _ in range(ahead):
            iterates.advance()
        done, ahead = done + ahead, _BETWEEN
        if bool(iterates.finished().all()):
            break
    for _ in range(_AFTER):
        iterates.advance()
    return iterates.best, iterates.least


def _on_cpu(data: Scaled) -> tuple[Tensor, Tensor]:
    """The same; a look costs nothing, and samples that are finished are left out as soon as they are the most."""
    iterates = Newton(data)
    iterates.begin()
    best, least, at = iterates.best.clone(), iterates.least.clone(), torch.arange(len(data.c))
    for _ in range(_MAX_ITER):
        left = iterates.measure()
        open_ = ~iterates.finished()
        if not bool(open_.any()):
            break
        if 2 * int(open_.sum()) <= len(at):
            best[at], least[at] = iterates.best, iterates.least
            at, iterates = at[open_], iterates.only(open_.nonzero()[:, 0])
            left = iterates.measure()
        iterates.move(left)
    best[at], least[at] = iterates.best, iterates.least
    return best, least


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


def _scaled(qp: QuadraticProgram, size: Tensor, tol: float) -> tuple[Scaled, _Scale]:
    """Bring decisions, rows and cost to size one."""
    rows_a, rows_g = _row_norm(qp.A), _row_norm(qp.G)
    H = qp.H.diagonal(dim1=1, dim2=2) if qp.diagonal else qp.H.flatten(1)
    cost = torch.maximum(_peak(qp.c) * size, _peak(H) * size**2)
    cost = torch.where(cost > 0, cost, torch.ones_like(cost))
    H = H * (size**2 / cost)
    limit = [qp.b / rows_a / size, qp.h / rows_g / size, -qp.lb / size, qp.ub / size]
    stacked = torch.cat([value.expand(qp.batch, -1) for value in limit], 1)
    there = stacked.isfinite()
    rows = [qp.A / rows_a[:, :, None], qp.G / rows_g[:, :, None]]
    most = max(len(value) for value in rows)
    present = there[:, qp.p :].to(qp.c.dtype)
    sign = present[:, qp.m :].clone()
    sign[:, : qp.n].neg_()
    data = Scaled(
        H=H if qp.diagonal else H.view(-1, qp.n, qp.n),
        c=qp.c * size / cost,
        R=torch.cat([value.expand(most, -1, -1) for value in rows], 1),
        limit=torch.where(there, stacked, torch.ones_like(stacked)),
        present=present,
        sign=sign,
        tol=torch.full_like(size[:1, 0], tol),
    )
    return data, _Scale(size, cost, rows_a, rows_g)


def _unscaled(qp: QuadraticProgram, scale: _Scale, state: Tensor, present: Tensor, done: Tensor) -> Candidate:
    x, y, lam, _ = state.split([qp.n, qp.p, qp.m + 2 * qp.n, qp.m + 2 * qp.n], 1)
    unit = scale.cost / scale.size
    rows, lower, upper = (lam * present * unit).split([qp.m, qp.n, qp.n], 1)
    duals = Duals(equality=y * unit / scale.rows_a, inequality=rows / scale.rows_g, bound=upper - lower)
    status = torch.where(done, int(Status.SOLVED), int(Status.INACCURATE)).to(torch.int8)
    return Candidate(x * scale.size, duals, status)
