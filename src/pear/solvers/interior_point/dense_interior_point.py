"""The interior point for dense programs: a batched primal-dual interior-point method in torch, on CPU and GPU.

The method is Mehrotra's predictor-corrector on ``min ½xᵀHx + cᵀx, Ax = b, Gx + s = h, lb ≤ x ≤ ub``, in units in which
decisions, rows and costs have size one. The Newton systems carry a small proximal shift (ρ on x, δ on the equalities),
so that rank-deficient rows and singular H need no special case. The residuals are exact, so that the shift costs
iterations and never accuracy.

The result is a candidate like any other solver's: the pipeline verifies it and makes it exact.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from pear.compile.cuda_graphs import replay_programs
from pear.optimality.duals_and_active_sets import Duals, Status
from pear.problem.quadratic_program import QuadraticProgram
from pear.solvers.candidate import Candidate, empty_candidate
from pear.solvers.interior_point import captured_newton
from pear.solvers.interior_point.newton import Newton, ScaledPrograms
from pear.solvers.interior_point.scaled_rows import ScaledRows, pairs_of, peak, rows_of

_MAX_ITER = 60
_RESIZES = 3
_SMALL = 1e-2
_LEAST = 1e-6
_BEFORE, _BETWEEN, _AFTER = 8, 2, 2
"""Iterations on a GPU: before the first check, between two checks, and after all samples are finished.

The last ones take less time than the exchange of a constraint that was guessed wrong.
"""


def solve(qp: QuadraticProgram, tol: float) -> Candidate:
    """Solve a batch of LPs or QPs to the relative accuracy ``tol``.

    Args:
        qp: the batch; costs must be finite.
        tol: bound on the scaled residuals and on the mean complementarity.

    Returns:
        A candidate with status SOLVED or INACCURATE. This method does not detect infeasibility.
    """
    if not qp.batch:
        return empty_candidate(0, qp.n, qp.p, qp.m, qp.c)
    size = rows_of(qp).size.expand(qp.batch, 1)
    candidate = _solve_at(qp, size, tol)
    for _ in range(_RESIZES):
        # a huge bound that is not reached has set the unit of x: solve again in units of the decision
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
    rows = rows_of(qp)
    data, cost = replay_programs("scaled", _scale_programs, qp, rows, size, tol)
    data = replace(data, pairs=pairs_of(qp, rows.R))
    best, least = _on_gpu(data) if qp.c.is_cuda else _on_cpu(data)
    status = torch.where(least <= tol, int(Status.SOLVED), int(Status.INACCURATE)).to(torch.int8)
    return Candidate(*_unscale_state(qp, rows, size, cost, best), status)


def _on_gpu(data: ScaledPrograms) -> tuple[Tensor, Tensor]:
    """Iterate on a GPU until the last sample is finished.

    Returns:
        The best state of each sample, and its residual.
    """
    iterates = captured_newton.iterates_for(data)
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


def _on_cpu(data: ScaledPrograms) -> tuple[Tensor, Tensor]:
    """Iterate on the CPU. Finished samples are dropped as soon as they are the majority.

    Returns:
        The best state of each sample, and its residual.
    """
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


def _scale_programs(qp: QuadraticProgram, rows: ScaledRows, size: Tensor, tol: float) -> tuple[ScaledPrograms, Tensor]:
    """Scale decisions and costs to size one; return the scaled programs and the unit of the cost (B, 1)."""
    H = qp.H.diagonal(dim1=1, dim2=2) if qp.diagonal else qp.H.flatten(1)
    cost = torch.maximum(peak(qp.c) * size, peak(H) * size**2)
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


def _unscale_state(
    qp: QuadraticProgram, rows: ScaledRows, size: Tensor, cost: Tensor, state: Tensor
) -> tuple[Tensor, Duals]:
    """Convert a state to points and multipliers in the user's units."""
    x, y, lam, _ = state.split([qp.n, qp.p, qp.m + 2 * qp.n, qp.m + 2 * qp.n], 1)
    unit = cost / size
    inequality, lower, upper = (lam * rows.present * unit).split([qp.m, qp.n, qp.n], 1)
    norms_a, norms_g = rows.norms.split([qp.p, qp.m], 1)
    return x * size, Duals(equality=y * unit / norms_a, inequality=inequality / norms_g, bound=upper - lower)
