"""The interior-point method for batches of dense programs, on CPU and GPU.

The method is Mehrotra's predictor-corrector for ``min ½xᵀHx + cᵀx, Ax = b, Gx + s = h, lb ≤ x ≤ ub``, in units in which
decisions, rows and costs have size one. The Newton systems contain small shifts, ρ for x and δ for the equalities, so
that dependent rows and a singular H need no special case. The residuals are those of the program without shifts, so
that the shifts cost iterations but no accuracy.

The pipeline verifies the result and makes it exact, as it does for all solvers.
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

The iterations after the end lead to fewer wrong guesses of active constraints, and take less time than one exchange of
a wrong constraint.
"""


def solve_dense_interior_point(qp: QuadraticProgram, tol: float) -> Candidate:
    """Solve a batch of LPs or QPs to the relative accuracy ``tol``.

    Args:
        qp: the programs, with finite costs.
        tol: the largest scaled residual of a SOLVED sample. Its mean complementarity must be smaller still.

    Returns:
        A candidate in which every status is SOLVED or INACCURATE. This method does not detect infeasibility.
    """
    if not qp.batch:
        return empty_candidate(0, qp.n, qp.p, qp.m, qp.c)
    size = scaled_rows(qp).size.expand(qp.batch, 1)
    candidate = _solve_dense_interior_point_in_units(qp, size, tol)
    for _ in range(_RESIZES):
        # if a huge bound that is not reached has set the unit of x, solve again in units of the decision
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
    """Solve the programs to the accuracy ``tol``, with x measured in units of ``size`` (B, 1)."""
    rows = scaled_rows(qp)
    data, cost = run_programs_as_graph("scaled", scale_programs, qp, rows, size, tol)
    data = replace(data, pairs=scaled_row_pairs(qp, rows.R))
    best, least = _run_dense_interior_point_on_gpu(data) if qp.c.is_cuda else _run_dense_interior_point_on_cpu(data)
    status = torch.where(least <= tol, int(Status.SOLVED), int(Status.INACCURATE)).to(torch.int8)
    return Candidate(*unscale_state(qp, rows, size, cost, best), status)


def _run_dense_interior_point_on_gpu(data: ScaledPrograms) -> tuple[Tensor, Tensor]:
    """Iterate on a GPU until all samples are finished, or until no iterations are left.

    Returns:
        The best state of each sample, and the residuals (B,) of these states.
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
    """Iterate on the CPU until all samples are finished, or until no iterations are left.

    Finished samples are dropped when at least half of the samples are finished.

    Returns:
        The best state of each sample, and the residuals (B,) of these states.
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
