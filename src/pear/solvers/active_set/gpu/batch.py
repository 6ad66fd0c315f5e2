"""Batches for the GPU's active-set kernels: a plan for the constraints, the launch, and what comes back.

But for the first batch of a plan nothing here looks at a value on the device, so that launches queue up; whoever asks
for the verdict waits for it.
"""

from __future__ import annotations

import importlib.util
from copy import copy
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from pear.problem.canonical import QuadraticProgram
from pear.solvers.active_set import batch as compiled
from pear.solvers.active_set.gpu.start import (
    AT_LOWER,
    AT_UPPER,
    CROWDED,
    OPTIMAL,
    RUNNING,
    SINGULAR,
    ElasticStart,
    FreeStart,
    VertexStart,
    WorkingSet,
)

_MOST_VARIABLES = 1024
_MOST_ROWS = 32
_SLOTS = {32: (1, 128), 64: (2, 255), 128: (8, 255)}
"""Room for the working set, each with the warps of a block and the registers of a thread: M stays in registers."""
_MOSTLY_FREE = 0.4  # from this share of free variables on the minimum without constraints is nearer than a vertex

_SPARE = 4  # rows that must find room beside all variables
_FEW = 16  # rows of H that the dual method, which reads those of variables at bounds, looks at together
_WIDE = 256  # from more variables on a block has eight warps at least
_TILE = 4096  # numbers of H, or of the rows, that a block looks at together


def supports(qp: QuadraticProgram) -> bool:
    """True for programs on a GPU with curvature and few rows, where Triton is installed."""
    small = qp.n < _MOST_VARIABLES and qp.p + qp.m <= _MOST_ROWS
    return qp.c.is_cuda and small and importlib.util.find_spec("triton") is not None


@dataclass(frozen=True)
class Descent:
    """Solutions of a batch, refined to rounding.

    Attributes:
        qp: the programs.
        x, curvature: (B, n) points and Hx; y: (B, R) multipliers of all rows, zero where one is not held.
        lower, upper: (B, n) bool, variables held at a bound; rows: (B, m) bool, inequalities that are held.
        ended: (B,) bool, where the kernel reports an optimum; crowded: (B,) bool, where its working set was too small;
            unsound: (B,) bool, where the way led through a working set without curvature.
    """

    qp: QuadraticProgram
    x: Tensor
    curvature: Tensor
    y: Tensor
    lower: Tensor
    upper: Tensor
    rows: Tensor
    ended: Tensor
    crowded: Tensor
    unsound: Tensor
    _launch: _Launch

    def project(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """``g = P e`` with the working sets held, (B, n), refined to rounding, and (B,) bool where it converged.

        Of the solutions of ``solve_all`` only the first B can be projected at.
        """
        return self._launch.project(e)

    def copied(self) -> Descent:
        """The same with a copy of what projections need."""
        launch = copy(self._launch)
        launch.kept = tuple(part.clone() for part in launch.kept)
        launch.H = launch.H.clone() if launch.start.elastic else launch.H  # which has a price of the call in it
        return replace(self, _launch=launch)


@dataclass
class GPUPlan:
    """What depends on the constraints alone: their form for the kernels, and where to start from.

    Attributes:
        start: a feasible point for all samples, one for each, or the minimum without constraints, which the plan goes
            over to where the first batch has most of its variables free.
        slots: room for the working set; ``learn`` widens it.
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
    def inverts(self) -> bool:
        """Whether solutions are found from H⁻¹."""
        return isinstance(self.start, FreeStart)

    def solve(self, qp: QuadraticProgram, inverse: Tensor | None = None) -> Descent:
        """Solve a batch with these constraints; ``inverse`` is H⁻¹, (B or 1, n, n), where it is known."""
        return self.solve_all(qp, qp.c[None], inverse)

    def solve_all(self, qp: QuadraticProgram, costs: Tensor, inverse: Tensor | None = None) -> Descent:
        """Solve the programs for (K, B, n) costs; the K·B solutions in this order.

        The first of the costs is that of ``qp``.
        """
        found = _Launch(self.start, qp, self.slots, self._working_set(), inverse).run(costs)
        if not self._settled:
            self._settle(found)
        return found

    def _working_set(self) -> WorkingSet | None:
        if isinstance(self.start, FreeStart):
            return None
        if self.slots not in self._begin:
            self._begin[self.slots] = self.start.working_set(self.slots)
        return self._begin[self.slots]

    def _settle(self, found: Descent) -> None:
        """Choose the start by where the first solutions are, once there is room for them. This waits for the device."""
        if bool(found.crowded.any()) and self.slots < max(_SLOTS):
            return
        self._settled = True
        free = float((~(found.lower | found.upper)).double().mean())
        room = found.qp.n + (_SPARE if found.y.shape[1] else 0)
        slots = next((k for k in _SLOTS if k >= room), None)
        if slots is not None and free >= _MOSTLY_FREE:
            self._feasible = replace(self)
            self.start, self.slots = FreeStart.of(found.qp), slots

    def learn(self, found: Descent) -> bool:
        """Make room where a working set did not find any, or go back to a feasible start where the other one fails.

        True where something is different now. This waits for the device.
        """
        before = self.state
        crowded, unsound = (bool(flags.any()) for flags in (found.crowded, found.unsound))
        if crowded:
            self.slots = next((k for k in _SLOTS if k > self.slots), self.slots)
        if self._feasible is not None and (unsound or (crowded and self.state == before)):
            self.start, self.slots, self._feasible = self._feasible.start, self._feasible.slots, None
        return self.state != before


def prepare(qp: QuadraticProgram) -> GPUPlan | None:
    """Bring constraints into the kernel's form; None where they have no feasible point.

    Of constraints that all samples share a vertex is found on the CPU, once; it serves every batch. Where samples have
    constraints of their own, each starts outside and finds its way in.
    """
    rows = qp.p + qp.m
    some, more, *_ = _SLOTS
    slots = some if qp.n + rows < some else more
    if not qp.shares_constraints:
        return GPUPlan(ElasticStart.of(qp), slots)
    fields = {name: getattr(qp, name).cpu() for name in ("A", "b", "G", "h", "lb", "ub")}
    start = compiled.default_start(compiled.programs(fields, qp.n))
    return GPUPlan(VertexStart.of(qp, start), slots) if int(start.has_start[0]) else None


@dataclass
class _Launch:
    """One batch on its way through the kernels."""

    start: VertexStart | ElasticStart | FreeStart
    qp: QuadraticProgram
    slots: int
    begin: WorkingSet | None
    inverse: Tensor | None = None
    H: Tensor = field(init=False)
    sizes: dict[str, int] = field(init=False)
    kept: tuple[Tensor, ...] = field(init=False, default=())

    def __post_init__(self) -> None:
        H = self.qp.H.diagonal(dim1=1, dim2=2) if self.qp.diagonal else self.qp.H
        self.H = self.start.curvature(H, self.qp).contiguous()
        width = max(16, 1 << (self.start.n - 1).bit_length())
        height = max(2, 1 << (self.start.J.shape[1] - 1).bit_length())
        warps, registers = _SLOTS[self.slots]
        warps = max(warps, 8) if width > _WIDE else warps
        chunk = min(self.slots, max(2, min(4 * warps, _TILE // width)))
        self.sizes = {"rows": self.start.J.shape[1] > 0, "width": width, "height": height, "slots": self.slots}
        self.sizes |= {"chunk": chunk, "num_warps": warps, "maxnreg": registers}

    @property
    def _strides(self) -> tuple[int, int]:
        return (_stride(self.H), _stride(self.start.J))

    def run(self, costs: Tensor) -> Descent:
        """Solve for (K, B, n) costs; the solutions are below each other."""
        start, qp = self.start, self.qp
        (K, B, _), n, R, slots = costs.shape, start.n, start.J.shape[1], self.slots
        costs = start.costs(costs, qp).contiguous()
        x, curvature, y = (costs.new_empty(K, B, k) for k in (n, n, R))
        integers = [torch.empty(shape, dtype=torch.int32, device=x.device) for shape in
                    ((K, B, n), (K, B, R), (B, n), (B, slots), (K, B))]  # fmt: skip
        place, row_position, position, slot, status = integers
        M = x.new_empty(B, slots, slots)
        self._search(costs, (x, y, curvature, place, row_position, position, slot, M, status))
        self.kept = (slot, position, row_position[0], M)
        ends, one = place[..., : qp.n].flatten(0, 1), status.flatten()
        return Descent(
            qp=qp,
            x=x[..., : qp.n].flatten(0, 1),
            curvature=curvature[..., : qp.n].flatten(0, 1),
            y=y.flatten(0, 1),
            lower=ends == AT_LOWER,
            upper=ends == AT_UPPER,
            rows=row_position[..., qp.p :].flatten(0, 1) >= 0,
            ended=start.arrived(x, place).flatten() & (one == OPTIMAL),
            crowded=one == CROWDED,
            unsound=one == SINGULAR,
            _launch=self,
        )

    def _search(self, costs: Tensor, written: tuple[Tensor, ...]) -> None:
        """Fill in what the kernels write."""
        from pear.solvers.active_set.gpu.ascend import ascend
        from pear.solvers.active_set.gpu.descend import descend

        start, begin, (K, B, n) = self.start, self.begin, costs.shape
        R = start.J.shape[1]
        constraints = (self.H, start.J, *start.rows, start.limit, start.lower, start.upper, costs)
        strides = (*self._strides, _stride(start.limit), _stride(start.J[:, :, 0]), _stride(start.lower))
        sizes, rounds = (B, n, R, start.equalities), 5 * (n + R) + 50
        if isinstance(start, FreeStart) or begin is None:
            ascend[(K * B,)](
                *self._inverse(), *constraints, *written, *sizes, *strides, rounds,
                few=min(_FEW, self.sizes["chunk"]), diagonal=self.qp.diagonal, **self.sizes,
            )  # fmt: skip
        else:
            order = torch.empty(B, self.slots, dtype=torch.int32, device=costs.device)
            descend[(B,)](
                *constraints, start.x, start.place, begin.slot, begin.position, begin.row_position, begin.M,
                *written, order, torch.empty_like(order, dtype=costs.dtype), *sizes, *strides, _stride(start.x),
                begin.free, rounds, K,
                elastic=start.elastic, diagonal=self.qp.diagonal, **self.sizes,
            )  # fmt: skip

    def _inverse(self) -> tuple[Tensor, Tensor]:
        """H⁻¹ and whether there is one, as ``ascend`` takes it."""
        from pear.solvers.active_set.gpu.invert import inverted

        if self.inverse is None and not self.qp.diagonal:
            return inverted(self.H)
        known = self.H if self.inverse is None else self.inverse.contiguous()
        return known, torch.full(known.shape[:1], RUNNING, dtype=torch.int32, device=known.device)

    def project(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """See ``Descent.project``."""
        from pear.solvers.active_set.gpu.project import project

        start, B, sizes = self.start, len(e), dict(self.sizes)
        if sizes["width"] <= _WIDE:  # two small blocks on an SM are faster than a large one
            sizes["num_warps"] = min(sizes["num_warps"], 4)
        e = start.errors(e).contiguous()
        g, converged = torch.empty_like(e), torch.empty(B, dtype=torch.int8, device=e.device)
        project[(B,)](
            self.H, start.J, start.rows[0], e, *self.kept, g, converged, start.n, start.J.shape[1], *self._strides,
            diagonal=self.qp.diagonal, **sizes,
        )  # fmt: skip
        return g[:, : self.qp.n], converged.bool()


def _stride(values: Tensor) -> int:
    """Numbers between the samples; 0 where there is one for all."""
    return 0 if values.shape[0] == 1 else values[0].numel()
