"""The active-set method as a solver of the registry: compiled on the CPU, one kernel on a GPU.

The constraints are prepared once for a problem: their compiled form, and a feasible start that all samples share.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pear.optimality.duals_and_active_sets import ActiveSet, Duals
from pear.optimality.status import Status
from pear.problem.matrix import tmatvec
from pear.problem.quadratic_program import MIN_VARIABLES, QuadraticProgram
from pear.solvers.active_set import kernel_calls as batch
from pear.solvers.active_set.dual_plan import KeptDualPlan
from pear.solvers.active_set.gpu import gpu_plan as gpu
from pear.solvers.active_set.kernel_arrays import BASIS_START, GIVEN_UP, SOLVED, Programs, States, new_states
from pear.solvers.active_set.row_multipliers import row_multipliers
from pear.solvers.candidate import Candidate, empty_candidate
from pear.solvers.fused_pass import FusedRowResponse

_MANY_ROWS = 150  # of a linear program


@dataclass(frozen=True)
class CompiledConstraints:
    """The constraints of a problem in compiled form, without curvature, and the start that depends on them alone.

    Attributes:
        programs: the constraints.
        default: the feasible start for samples that have no warm start.
        dual: what the dual method prepares, for the curvature of the last call.
    """

    programs: Programs
    default: States
    dual: KeptDualPlan = field(default_factory=KeptDualPlan)


def supports(qp: QuadraticProgram) -> bool:
    """True for dense programs that are small enough; see ``kernel_calls.fits_dense_inverse`` and ``gpu_plan.supports``.

    Large programs with few non-zeros are left to solvers for sparse matrices. With curvature, the number of variables
    decides; for linear programs, the number of rows, because each exchange goes through all rows.
    """
    if qp.c.is_cuda:
        return gpu.supports(qp)
    rows = qp.p + qp.m
    large = rows >= _MANY_ROWS if qp.is_linear else qp.n >= MIN_VARIABLES
    return batch.fits_dense_inverse(qp.n, rows) and not (large and qp.sparse_form() is not None)


def fits_gpu(n: int, rows: int) -> bool:
    """True where one kernel on a GPU solves curved programs of n variables and this number of rows."""
    return gpu.fits_kernel(n, rows, linear=False)


def prepare(qp: QuadraticProgram) -> Any:
    """Compute what depends on the constraints alone: a ``CompiledConstraints`` on the CPU, a ``GPUPlan`` on a GPU."""
    if qp.c.is_cuda:
        return gpu.prepare(qp)
    programs = batch.pack_programs({name: getattr(qp, name) for name in ("A", "b", "G", "h", "lb", "ub")}, qp.n)
    return CompiledConstraints(programs, batch.default_start(programs))


def solve(qp: QuadraticProgram, tol: float, plan: Any) -> Candidate:
    """Solve a batch of LPs or QPs to rounding, whatever ``tol`` is.

    A sample that the method cannot solve has status INACCURATE. On the CPU its point is NaN, unless the point fails
    only because its KKT residual is too large.
    """
    return _on_gpu(qp, plan) if qp.c.is_cuda else _on_cpu(qp, plan)


def _on_cpu(qp: QuadraticProgram, plan: CompiledConstraints) -> Candidate:
    """Solve all samples with the compiled kernel; its verdict and its projector come with the candidate."""
    diagonal = qp.H[0].diagonal()
    if qp.diagonal and len(qp.H) == 1 and bool((diagonal == diagonal[0]).all()):
        curvature: dict[str, Any] = {"smoothing": float(diagonal[0])}
    else:
        curvature = {"Q": np.ascontiguousarray(qp.H.numpy())}
    programs = plan.programs._replace(**curvature)
    programs = programs._replace(dual=plan.dual.for_programs(programs))
    rows, states = np.arange(qp.batch), new_states(qp.batch, qp.n, qp.p + qp.m)
    found = batch.solve_batch(programs, np.ascontiguousarray(qp.c.numpy()), rows, states, rows, plan.default)
    solved, given_up = (torch.from_numpy(found.code == code) for code in (SOLVED, GIVEN_UP))
    return Candidate(
        x=torch.where(given_up[:, None], torch.nan, torch.from_numpy(found.x)),
        duals=Duals(*(torch.from_numpy(v) for v in (found.equality, found.inequality, found.bound))),
        status=torch.where(solved, int(Status.SOLVED), int(Status.INACCURATE)).to(torch.int8),
        working=ActiveSet(*(torch.from_numpy(v) for v in (found.rows, found.lower, found.upper))),
        verified=True,
        exhausted=True,
        projector=CompiledProjector(programs, states, rows),
    )


@dataclass(frozen=True)
class CompiledProjector:
    """Projects errors at solutions of the compiled method, with the working sets of these solutions.

    Attributes:
        programs: the programs.
        states: the working sets and points, one row per sample.
        at: (B,) each sample's row in fields that are not shared.
    """

    programs: Programs
    states: States
    at: batch.Index

    def project(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """Project errors (B, n); return P e (B, n), and (B,) bool, True where the refinement converged."""
        error = np.ascontiguousarray(e.detach().double().numpy())
        g, good = batch.project_batch(self.programs, error, self.at, self.states, np.arange(len(error)))
        return torch.from_numpy(g), torch.from_numpy(good)

    def respond(self, w: Tensor, active: ActiveSet) -> FusedRowResponse | None:
        """Solve the reduced systems of the backward pass, for the samples that have a basis; None where none has.

        Args:
            w: (B, n) upstream gradients.
            active: the tight constraints.
        """
        based = np.flatnonzero(self.states.has_start == BASIS_START)
        some = torch.from_numpy(based)
        p, good = self.project(w)
        states = States._make(part[based] for part in self.states)
        found = row_multipliers(self.programs, states, self.at[based], active[some], w[some], p[some])
        if found is None or not len(based):
            return None
        if len(based) == len(w):
            return FusedRowResponse(p, found[0], found[1], good & found[2])
        equality, inequality = (w.new_zeros(len(w), part.shape[1]) for part in found[:2])
        accurate = torch.zeros_like(good)
        equality[some], inequality[some], accurate[some] = found
        return FusedRowResponse(p, equality, inequality, good & accurate)


def _on_gpu(qp: QuadraticProgram, plan: gpu.GPUPlan | None) -> Candidate:
    """Solve all samples with the Triton kernel; the candidate is empty where no kernel fits the program."""
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
