"""``GPUPlan``: which active-set method solves a problem's batches on a GPU, and how large working sets may become.

Once the first batch has been solved, a solve reads no value from the device, so that launches queue up. Only ``adapt``
and the caller that reads the results wait for the device.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

import torch
from torch import Tensor

from pear.optimality.definiteness import has_flat_curvature
from pear.problem.quadratic_program import QuadraticProgram
from pear.solvers.active_set.gpu.dual_method import LAUNCH, DualCurvature, DualMethod
from pear.solvers.active_set.gpu.gpu_method import GPUMethod
from pear.solvers.active_set.gpu.gpu_solution import GPUSolution
from pear.solvers.active_set.gpu.primal_method import ElasticPrimalMethod, VertexPrimalMethod

_MAX_VARIABLES = 1024
_MAX_PRIMAL_ROWS = 32
_MAX_DUAL_SIZE = 512  # variables and rows of a program that only the dual method takes
_MOSTLY_HELD = 0.8  # the dual method is faster where solutions hold fewer constraints than this share of variables
_SHARE_OF_MEMORY = 0.25  # of the GPU, that a launch may use
_SPARE_TERMS = 8  # beside one for each constraint that is held


def supports_gpu_plan(qp: QuadraticProgram) -> bool:
    """Return True for programs on a GPU that a kernel can solve, if Triton is installed."""
    return qp.c.is_cuda and importlib.util.find_spec("triton") is not None and has_gpu_plan_method(qp)


def has_gpu_plan_method(qp: QuadraticProgram) -> bool:
    """Return True for programs that are small enough for a kernel, and that one of the methods can solve.

    The dual method needs an H that is positive definite. If the programs have too many rows for the primal method, the
    call waits for the device to say whether the H of at least one sample is positive definite.
    """
    rows = qp.p + qp.m
    small = fits_gpu_plan(qp.n, rows, qp.is_linear)
    return small and (rows <= _MAX_PRIMAL_ROWS or not bool(has_flat_curvature(qp).all()))


def fits_gpu_plan(n: int, rows: int, linear: bool) -> bool:
    """Return True if a kernel takes programs of n variables and ``rows`` rows; ``linear`` says that H is zero."""
    dual = not linear and n + rows <= _MAX_DUAL_SIZE
    return n < _MAX_VARIABLES and (rows <= _MAX_PRIMAL_ROWS or dual)


@dataclass
class GPUPlan:
    """The method that solves batches of one problem.

    The solutions of the first batch decide which method it is. The dual method replaces the primal one if its kernel
    fits the programs, and if the solutions hold few constraints or need larger working sets than the primal method has.

    Attributes:
        method: the method that solves the next batch.
        settled: True if the method has been chosen.
    """

    method: GPUMethod
    settled: bool = False
    _primal: GPUMethod | None = None

    @property
    def state(self) -> tuple[str, int]:
        """The name of the method, and the room for its working sets. A captured launch is valid for one such state."""
        return type(self.method).__name__, self.method.room

    @property
    def numbers(self) -> int:
        """About how many numbers a launch keeps in memory for each sample."""
        return self.method.numbers

    def fits(self, B: int, device: torch.device) -> bool:
        """Return True if a device has enough memory to solve B samples at once."""
        if device.type != "cuda":
            return True
        return 8 * B * self.numbers <= _SHARE_OF_MEMORY * torch.cuda.get_device_properties(device).total_memory

    @property
    def needs_inverse(self) -> bool:
        """True if the method computes solutions from H⁻¹."""
        return isinstance(self.method, DualMethod)

    def curvature(self, qp: QuadraticProgram, inverse: Tensor) -> DualCurvature:
        """Return what the dual method needs from H alone, for calls of ``solve`` with the same H.

        Args:
            qp: the programs.
            inverse: (B or 1, n, n) the inverses of H.
        """
        assert isinstance(self.method, DualMethod)
        return self.method.curvature(qp, inverse)

    def solve(self, qp: QuadraticProgram, curvature: DualCurvature | None = None) -> GPUSolution:
        """Return the solutions of a batch of programs; see ``solve_all``."""
        return self.solve_all(qp, qp.c[None], curvature)

    def solve_all(self, qp: QuadraticProgram, costs: Tensor, curvature: DualCurvature | None = None) -> GPUSolution:
        """Solve B programs with the constraints of the plan for K costs each.

        Args:
            qp: the programs, with the first of the costs.
            costs: (K, B, n) costs.
            curvature: what the method ``curvature`` returns for these programs, or None.

        Returns:
            K·B solutions, those for the first cost first.
        """
        solution = self.method.solve(qp, costs, curvature)
        if not self.settled:
            self._choose_method(solution)
        return solution

    def _choose_method(self, solution: GPUSolution) -> None:
        """Choose the method by the solutions of the first batch. The call waits for the device.

        If some working set had too little room, and the method can get more room, a later batch decides.
        """
        no_room = bool(solution.no_room.any())
        if no_room and self.method.wider() is not None:
            return
        self.settled = True
        qp, held = solution.qp, (solution.lower | solution.upper).sum(1) + solution.rows.sum(1)
        steps = held.double().mean().clamp(max=qp.n - qp.p)  # any more of them depend on others
        small = qp.n + qp.p + qp.m <= max(LAUNCH)
        if small and (no_room or float(steps) <= _MOSTLY_HELD * qp.n):
            self._primal, self.method = self.method, DualMethod.of(qp, min(int(held.max()), qp.n) + _SPARE_TERMS)

    def adapt(self, solution: GPUSolution) -> bool:
        """Change the plan if samples failed, and return True if a second solve may then succeed.

        The next solve gets more room for working sets, or the primal method in place of the dual one. The call waits
        for the device.
        """
        if solution.method is not self.method:  # the first batch has chosen another one, which has not been tried
            return True
        before = self.state
        no_room, singular = (bool(flags.any()) for flags in (solution.no_room, solution.singular))
        wider = self.method.wider() if no_room else None
        self.method = wider or self.method
        if self._primal is not None and (singular or (no_room and wider is None)):
            self.method, self._primal = self._primal, None
        return self.state != before


def make_gpu_plan(qp: QuadraticProgram) -> GPUPlan | None:
    """Make the plan for programs with these constraints.

    Programs with many rows are for the dual method alone. The others begin with the primal method.

    Returns:
        The plan; None if all samples share the constraints and no feasible start is found.
    """
    if qp.p + qp.m > _MAX_PRIMAL_ROWS:
        return GPUPlan(DualMethod.of(qp, qp.n // 2), settled=True)
    method = VertexPrimalMethod.of(qp) if qp.shares_constraints else ElasticPrimalMethod.of(qp)
    return None if method is None else GPUPlan(method)
