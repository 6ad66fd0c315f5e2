"""The interior point for dense programs: units and the loop of iterations of a batch, on CPU and GPU.

The method is Mehrotra's predictor-corrector on ``min ½xᵀHx + cᵀx, Ax = b, Gx + s = h, lb ≤ x ≤ ub``, in units in which
decisions, rows and costs have size one. The Newton systems carry a small proximal shift (ρ on x, δ on the equalities),
so that rank-deficient rows and a singular H need no special case. The residuals are those of the program without the
shift, so that the shift costs iterations but no accuracy.

The result is a candidate like that of any other solver: the pipeline verifies it and makes it exact.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from pear.compile.cuda_graphs import run_programs_as_graph
from pear.optimality.status import Status
from pear.problem.quadratic_program import QuadraticProgram
from pear.solvers.candidate import Candidate, empty_candidate
from pear.solvers.interior_point.dense_iterates import DenseIterates, dense_iterates_on_gpu
from pear.solvers.interior_point.dense_scaling import (
    ScaledPrograms,
    scale_programs,
    scaled_row_pairs,
    scaled_rows,
    unscale_state,
)

_MAX_ITER = 60
_RESIZES = 3
_SMALL = 1e-2
_LEAST = 1e-6
_BEFORE, _BETWEEN, _AFTER = 8, 2, 2
"""Iterations on a GPU: before the first check, between two checks, and after all samples are finished.

The last ones take less time than the exchange of a constraint that was guessed wrong.
"""


def solve_dense_interior_point(qp: QuadraticProgram, tol: float) -> Candidate:
    """Solve a batch of LPs or QPs to the relative accuracy ``tol``.

    Args:
        qp: the batch; costs must be finite.
        tol: bound on the scaled residuals and on the mean complementarity.

    Returns:
        A candidate with status SOLVED or INACCURATE. This method does not detect infeasibility.
    """
    if not qp.batch:
        return empty_candidate(0, qp.n, qp.p, qp.m, qp.c)
    size = scaled_rows(qp).size.expand(qp.batch, 1)
    candidate = _solve_dense_interior_point_in_units(qp, size, tol)
    for _ in range(_RESIZES):
        # a huge bound that is not reached has set the unit of x: solve again in units of the decision
        reached = torch.maximum(candidate.x.abs().amax(1, keepdim=True), _LEAST * size)
        small = (reached < _SMALL * size)[:, 0].nonzero()[:, 0]
        if not len(small):
            break
        size = torch.minimum(size, reached)
        again = _solve_dense_interior_point_in_units(qp[small], size[small], tol)
        better = again.status == Status.SOLVED
        candidate.put(small[better], again[better])
    return candidate


def _solve_dense_interior_point_in_units(qp: QuadraticProgram, size: Tensor, tol: float) -> Candidate:
    """Solve with x measured in units of ``size`` (B, 1)."""
    rows = scaled_rows(qp)
    data, cost = run_programs_as_graph("scaled", scale_programs, qp, rows, size, tol)
    data = replace(data, pairs=scaled_row_pairs(qp, rows.R))
    best, least = _run_dense_interior_point_on_gpu(data) if qp.c.is_cuda else _run_dense_interior_point_on_cpu(data)
    status = torch.where(least <= tol, int(Status.SOLVED), int(Status.INACCURATE)).to(torch.int8)
    return Candidate(*unscale_state(qp, rows, size, cost, best), status)


def _run_dense_interior_point_on_gpu(data: ScaledPrograms) -> tuple[Tensor, Tensor]:
    """Iterate on a GPU until the last sample is finished.

    Returns:
        The best state of each sample, and its residual.
    """
    iterates = dense_iterates_on_gpu(data)
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


def _run_dense_interior_point_on_cpu(data: ScaledPrograms) -> tuple[Tensor, Tensor]:
    """Iterate on the CPU. Finished samples are dropped as soon as they are the majority.

    Returns:
        The best state of each sample, and its residual.
    """
    iterates = DenseIterates(data)
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
