"""A plan for the GPU's active-set kernels: which one searches, from where, and with how much room.

But for the first batch of a plan nothing here looks at a value on the device, so that launches queue up; whoever asks
for the verdict waits for it.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from pear.problem.canonical import QuadraticProgram
from pear.solvers.active_set import batch as compiled
from pear.solvers.active_set.gpu.dual import LAUNCH, Ascent, FreeStart, Known
from pear.solvers.active_set.gpu.found import Found
from pear.solvers.active_set.gpu.primal import SLOTS, Descent
from pear.solvers.active_set.gpu.start import ElasticStart, VertexStart, WorkingSet

_MOST_VARIABLES = 1024
_MOST_ROWS = 32  # of the primal method
_MOST_TOGETHER = 512  # variables and rows of a program that only the dual method takes
_TERMS = (64, 128, 256, 512, 1024)  # room for those of the dual method
_MOSTLY_HELD = 0.8  # of all variables: where the dual method adds fewer constraints than that it is the faster one
_SHARE_OF_MEMORY = 0.25  # of the GPU, that a launch may use
_SPARE = 8  # terms beside one for each constraint that is held


def supports(qp: QuadraticProgram) -> bool:
    """True for programs on a GPU that are small enough for a kernel, where Triton is installed."""
    rows = qp.p + qp.m
    small = qp.n < _MOST_VARIABLES and (rows <= _MOST_ROWS or (not qp.is_linear and qp.n + rows <= _MOST_TOGETHER))
    return qp.c.is_cuda and small and importlib.util.find_spec("triton") is not None


@dataclass
class GPUPlan:
    """What depends on the constraints alone: their form for the kernels, and where to start from.

    Attributes:
        start: a feasible point for all samples, one for each, or the minimum without bounds and inequalities, which the
            plan goes over to where the first batch has few constraints held.
        slots: room for the working set, or for the terms of the dual method; ``learn`` widens it.
    """

    start: VertexStart | ElasticStart | FreeStart
    slots: int
    _begin: dict[int, WorkingSet] = field(default_factory=dict)
    _feasible: GPUPlan | None = None
    _settled: bool = False

    @property
    def state(self) -> tuple[str, int]:
        """What a launch depends on beside its programs."""
        return type(self.start).__name__, self.slots

    @property
    def numbers(self) -> int:
        """About how many a launch works on, for each sample."""
        return self.slots * (2 * self.start.size if isinstance(self.start, FreeStart) else self.slots)

    def fits(self, B: int, device: torch.device) -> bool:
        """Whether the memory of a GPU has room for B samples at once."""
        if device.type != "cuda":
            return True
        return 8 * B * self.numbers <= _SHARE_OF_MEMORY * torch.cuda.get_device_properties(device).total_memory

    @property
    def inverts(self) -> bool:
        """Whether solutions are found from H⁻¹."""
        return isinstance(self.start, FreeStart)

    def known(self, qp: QuadraticProgram, inverse: Tensor) -> Known:
        """What ``solve`` may be given of programs that come again and again, with H⁻¹ (B or 1, n, n)."""
        assert isinstance(self.start, FreeStart)
        return self.start.known(qp, inverse)

    def solve(self, qp: QuadraticProgram, known: Known | None = None) -> Found:
        """Solve a batch with these constraints."""
        return self.solve_all(qp, qp.c[None], known)

    def solve_all(self, qp: QuadraticProgram, costs: Tensor, known: Known | None = None) -> Found:
        """Solve the programs for (K, B, n) costs; the K·B solutions in this order.

        The first of the costs is that of ``qp``.
        """
        found = self._launch(qp, known).run(costs)
        if not self._settled:
            self._settle(found)
        return found

    def _launch(self, qp: QuadraticProgram, known: Known | None) -> Ascent | Descent:
        start = self.start
        if isinstance(start, FreeStart):
            return Ascent(start, qp, self.slots, start.known(qp) if known is None else known)
        if self.slots not in self._begin:
            self._begin[self.slots] = start.working_set(self.slots)
        return Descent(start, qp, self.slots, self._begin[self.slots])

    def _settle(self, found: Found) -> None:
        """Choose the start by where the first solutions are, once there is room for them. This waits for the device."""
        crowded = bool(found.crowded.any())
        if crowded and self.slots < max(SLOTS):
            return
        self._settled = True
        qp, held = found.qp, (found.lower | found.upper).sum(1) + found.rows.sum(1)
        steps = held.double().mean().clamp(max=qp.n - qp.p)  # held beyond that are those that depend on others
        small = qp.n + qp.p + qp.m <= max(LAUNCH)
        if small and (crowded or float(steps) <= _MOSTLY_HELD * qp.n):
            self._feasible = replace(self)
            self.start = FreeStart.of(qp)
            self.slots = next((k for k in _TERMS if k >= min(int(held.max()), qp.n) + _SPARE), max(_TERMS))

    def learn(self, found: Found) -> bool:
        """Make room where a working set did not find any, or go back to a feasible start where the other one fails.

        True where something is different now. This waits for the device.
        """
        before = self.state
        crowded, unsound = (bool(flags.any()) for flags in (found.crowded, found.unsound))
        if crowded:
            sizes = _TERMS if isinstance(self.start, FreeStart) else SLOTS
            self.slots = next((k for k in sizes if k > self.slots), self.slots)
        if self._feasible is not None and (unsound or (crowded and self.state == before)):
            self.start, self.slots, self._feasible = self._feasible.start, self._feasible.slots, None
        return self.state != before


def prepare(qp: QuadraticProgram) -> GPUPlan | None:
    """Bring constraints into the kernel's form; None where they have no feasible point.

    Of constraints that all samples share a vertex is found on the CPU, once; it serves every batch. Where samples have
    constraints of their own, each starts outside and finds its way in. Many rows are for the dual method alone.
    """
    rows = qp.p + qp.m
    if rows > _MOST_ROWS:
        return GPUPlan(FreeStart.of(qp), next(k for k in _TERMS if k >= qp.n // 2), _settled=True)
    some, more, *_ = SLOTS
    slots = some if qp.n + rows < some else more
    if not qp.shares_constraints:
        return GPUPlan(ElasticStart.of(qp), slots)
    fields = {name: getattr(qp, name).cpu() for name in ("A", "b", "G", "h", "lb", "ub")}
    start = compiled.default_start(compiled.programs(fields, qp.n))
    return GPUPlan(VertexStart.of(qp, start), slots) if int(start.has_start[0]) else None
