"""The active-set method as a solver of the registry: compiled code on the CPU, a kernel on a GPU.

What depends on the constraints alone is prepared once for a problem: their compiled form, and a feasible start that all
samples share.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from pear.optimality.duals_and_active_sets import ActiveSet, Duals
from pear.optimality.status import Status
from pear.problem.matrix import tmatvec
from pear.problem.quadratic_program import MIN_VARIABLES, QuadraticProgram
from pear.solvers.active_set import kernel_calls
from pear.solvers.active_set.compiled_projector import CompiledProjector
from pear.solvers.active_set.dual_plan import KeptDualPlan
from pear.solvers.active_set.gpu import gpu_plan
from pear.solvers.active_set.kernel_arrays import GIVEN_UP, SOLVED, Programs, States, new_kernel_states
from pear.solvers.active_set.program_packing import pack_costs, pack_curvature, pack_programs
from pear.solvers.candidate import Candidate, empty_candidate

MOST_ROWS, MOST_VARIABLES = 300, 2_000
_MANY_ROWS = 150  # of a linear program


@dataclass(frozen=True)
class CompiledConstraints:
    """The constraints of a problem in compiled form, and what the compiled method prepares for them.

    Attributes:
        programs: programs with these constraints and without curvature.
        default: the feasible start for samples that have no warm start.
        dual: the plan of the dual method for the curvature of the last call.
    """

    programs: Programs
    default: States
    dual: KeptDualPlan = field(default_factory=KeptDualPlan)


def supports(qp: QuadraticProgram) -> bool:
    """Return True if the programs are dense and small enough for the active-set method.

    ``fits_active_set`` and ``supports_gpu_plan`` define "small enough" for the CPU and for a GPU. Large programs with
    few non-zeros are left to solvers for sparse matrices. A program with curvature is large if it has many variables. A
    linear program is large if it has many rows, because each step goes through all rows.
    """
    if qp.c.is_cuda:
        return gpu_plan.supports_gpu_plan(qp)
    rows = qp.p + qp.m
    large = rows >= _MANY_ROWS if qp.is_linear else qp.n >= MIN_VARIABLES
    return fits_active_set(qp.n, rows) and not (large and qp.sparse_form() is not None)


def fits_active_set(n: int, rows: int) -> bool:
    """Return True if the CPU method takes a program of n variables and ``rows`` rows.

    The limit is there because the CPU method stores a dense inverse of the basis.
    """
    return rows <= MOST_ROWS and n <= MOST_VARIABLES


def fits_gpu(n: int, rows: int) -> bool:
    """Return True if a GPU kernel takes programs with curvature, n variables and ``rows`` rows."""
    return gpu_plan.fits_gpu_plan(n, rows, linear=False)


def prepare(qp: QuadraticProgram) -> Any:
    """Return what depends on the constraints alone: ``CompiledConstraints`` on the CPU, a ``GPUPlan`` on a GPU."""
    if qp.c.is_cuda:
        return gpu_plan.make_gpu_plan(qp)
    programs = pack_programs({name: getattr(qp, name) for name in ("A", "b", "G", "h", "lb", "ub")}, qp.n)
    return CompiledConstraints(programs, kernel_calls.call_kernel_for_start(programs))


def solve(qp: QuadraticProgram, tol: float, plan: Any) -> Candidate:
    """Return solutions of a batch of LPs or QPs that are exact up to rounding, whatever ``tol`` is.

    A sample that the method cannot solve has the status INACCURATE. On the CPU, the point of such a sample is NaN,
    unless only a residual of the point is too large.
    """
    return solve_active_set_on_gpu(qp, plan) if qp.c.is_cuda else _solve_active_set_on_cpu(qp, plan)


def _solve_active_set_on_cpu(qp: QuadraticProgram, plan: CompiledConstraints) -> Candidate:
    """Solve all samples with the compiled kernel, which also verifies the solutions.

    The candidate has a status for each sample, and a projector of errors at the solutions.
    """
    diagonal = qp.H[0].diagonal()
    if qp.diagonal and len(qp.H) == 1 and bool((diagonal == diagonal[0]).all()):
        curvature: dict[str, Any] = {"smoothing": float(diagonal[0])}
    else:
        curvature = pack_curvature(np.ascontiguousarray(qp.H.numpy()))
    programs = plan.programs._replace(**curvature)
    programs = programs._replace(dual=plan.dual.for_programs(programs))
    rows, states = np.arange(qp.batch), new_kernel_states(qp.batch, qp.n, qp.p + qp.m)
    found = kernel_calls.call_kernel_to_solve(programs, pack_costs(qp.c), rows, states, rows, plan.default)
    solved, given_up = (torch.from_numpy(found.code == code) for code in (SOLVED, GIVEN_UP))
    return Candidate(
        x=torch.where(given_up[:, None], torch.nan, torch.from_numpy(found.x)),
        duals=kernel_calls.kernel_duals(found),
        status=torch.where(solved, int(Status.SOLVED), int(Status.INACCURATE)).to(torch.int8),
        working=kernel_calls.kernel_active_set(found),
        verified=True,
        exhausted=True,
        projector=CompiledProjector(programs, states, rows),
    )


def solve_active_set_on_gpu(qp: QuadraticProgram, plan: gpu_plan.GPUPlan | None) -> Candidate:
    """Return the candidate of a Triton kernel for all samples.

    If no kernel fits the programs, or the GPU has too little memory, the candidate is that of ``empty_candidate``.
    """
    if plan is None or not qp.batch or not plan.fits(qp.batch, qp.c.device):
        return empty_candidate(qp.batch, qp.n, qp.p, qp.m, qp.c)
    found = plan.solve(qp)
    while plan.adapt(found):
        found = plan.solve(qp)
    status = torch.where(found.optimal, int(Status.SOLVED), int(Status.INACCURATE)).to(torch.int8)
    working = ActiveSet(found.rows, found.lower, found.upper)
    rows = torch.where(found.rows, found.y[:, qp.p :], 0.0)
    slope = found.curvature + qp.c + tmatvec(qp.A, found.y[:, : qp.p]) + tmatvec(qp.G, rows)
    duals = Duals(found.y[:, : qp.p], rows, torch.where(working.fixed, -slope, 0.0))
    return Candidate(found.x, duals, status, working=working, exhausted=True, projector=found)
