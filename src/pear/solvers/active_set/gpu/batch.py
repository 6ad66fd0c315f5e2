"""Batches for the GPU's active-set kernel: a plan for the constraints, the launch, and refined solutions."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pear.optimality.rule import PROJECTED
from pear.optimality.scale import is_noise
from pear.problem.canonical import QuadraticProgram, matvec, tmatvec
from pear.solvers.active_set import batch as compiled
from pear.solvers.active_set.layout import BASIC, UPPER
from pear.solvers.active_set.settings import KERNEL_REFINEMENTS

_MOST_VARIABLES = 1024
_MOST_ROWS = 16
_SLOTS = (32, 64)


def supports(qp: QuadraticProgram) -> bool:
    """True for programs on a GPU with few rows, shared like the bounds by all samples, where Triton is installed."""
    shared = all(getattr(qp, name).shape[0] == 1 for name in ("A", "b", "G", "h", "lb", "ub"))
    small = qp.n <= _MOST_VARIABLES and qp.p + qp.m <= _MOST_ROWS
    return qp.c.is_cuda and shared and small and importlib.util.find_spec("triton") is not None


@dataclass(frozen=True)
class Descent:
    """Solutions of a batch, with the inverses of their reduced systems.

    Attributes:
        qp: the programs.
        x: (B, n) points; y: (B, R) multipliers of all rows; lower, upper: (B, n) bool, variables held at a bound.
        rows: (B, m) bool, inequalities that are held; ended: (B,) bool, where the kernel reports an optimum.
    """

    qp: QuadraticProgram
    x: Tensor
    y: Tensor
    lower: Tensor
    upper: Tensor
    rows: Tensor
    ended: Tensor
    _slot: Tensor
    _M: Tensor

    def solve(self, along: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """K⁻¹ on the working sets: (B, n) and (B, R) right-hand sides give steps of variables and multipliers."""
        n, R = along.shape[1], rows.shape[1]
        right = torch.cat([along, rows], 1)
        index = self._slot.clamp(min=0).long()
        there = self._slot >= 0
        step = torch.where(there, torch.bmm(self._M, (right.gather(1, index) * there)[:, :, None])[:, :, 0], 0.0)
        full = torch.zeros(len(along), n + R, dtype=along.dtype, device=along.device).scatter_add(1, index, step)
        return full[:, :n], full[:, n:]

    def project(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """``g = P e`` with the working sets held, (B, n), refined to rounding, and (B,) bool where it converged."""
        J = torch.cat([self.qp.A, self.qp.G], 1)
        none = torch.zeros_like(self.y)
        g, v = self.solve(e, none)
        first = g.abs().amax(1)
        for _ in range(KERNEL_REFINEMENTS):
            change, dv = self.solve(e - matvec(self.qp.H, g) - tmatvec(J, v), -matvec(J, g))
            g, v = g + change, v + dv
        converged = (change.abs().amax(1) <= PROJECTED * first) | is_noise(self.qp, change, e)
        return torch.where(is_noise(self.qp, g, e)[:, None], 0.0, g), converged


@dataclass(frozen=True)
class GPUPlan:
    """What depends on the constraints alone: their form for the kernel, and a feasible vertex to start from.

    Attributes:
        J, limit: (R, n) and (R,) rows, equalities first; lower, upper: (n,) bounds.
        equalities: how many of the rows are equalities.
        x: (n,) the vertex; place: (n,) int32, 0 free, 1 and 2 at a bound.
        variables, rows: (k,) free variables and held rows there; inverse: (k, k) of these columns of these rows.
    """

    J: Tensor
    limit: Tensor
    lower: Tensor
    upper: Tensor
    equalities: int
    x: Tensor
    place: Tensor
    variables: Tensor
    rows: Tensor
    inverse: Tensor

    def solve(self, qp: QuadraticProgram) -> Descent:
        """Solve a batch with these constraints on its device, all samples from the common start."""
        found = self._run(qp, _SLOTS[0])
        return found if qp.n <= _SLOTS[0] or bool(found.ended.all()) else self._run(qp, _SLOTS[1])

    def _run(self, qp: QuadraticProgram, slots: int) -> Descent:
        from pear.solvers.active_set.gpu.kernel import descend

        B, n, R = qp.batch, qp.n, len(self.limit)
        H = qp.H.contiguous()
        x, place = self.x.expand(B, n).contiguous(), self.place.expand(B, n).contiguous()
        slope = matvec(H, x) + qp.c
        slot, M = self._start(H, B, slots)
        status = torch.zeros(B, dtype=torch.int32, device=x.device)
        width = 1 << (n - 1).bit_length()
        descend[(B,)](
            H, self.J, self.limit, self.lower, self.upper, x, slope, place, slot, M, status,
            n, R, self.equalities, 0 if H.shape[0] == 1 else n * n, 20 * n + 100,
            width=width, slots=slots, num_warps=4 if width <= 256 else 8,
        )  # fmt: skip
        y, held = x.new_zeros(B, R), _held(slot, n, R)
        found = Descent(qp, x, y, place == 1, place == 2, held[:, self.equalities :], status == 1, slot, M)
        return self._refined(found)

    def _start(self, H: Tensor, B: int, slots: int) -> tuple[Tensor, Tensor]:
        """(B, slots) working sets and (B, slots, slots) inverses at the common start."""
        k, n, device = len(self.rows), len(self.x), H.device
        slot = torch.full((B, slots), -1, dtype=torch.int32, device=device)
        M = torch.zeros(B, slots, slots, dtype=H.dtype, device=device)
        slot[:, :k], slot[:, k : 2 * k] = self.variables.int(), (self.rows + n).int()
        # K = [H_FF Bᵀ; B 0] with a square B, so that its inverse is [0 B⁻¹; B⁻ᵀ −B⁻ᵀ H_FF B⁻¹]
        H_free = H[:, self.variables][:, :, self.variables]
        M[:, :k, k : 2 * k] = self.inverse
        M[:, k : 2 * k, :k] = self.inverse.mT
        M[:, k : 2 * k, k : 2 * k] = -(self.inverse.mT @ H_free @ self.inverse)
        return slot, M

    def _refined(self, found: Descent) -> Descent:
        """The solution on the working set to rounding: M is a good inverse, and refinement does the rest."""
        qp, x, y, J = found.qp, found.x, found.y, self.J[None]
        x = torch.where(found.lower, self.lower, torch.where(found.upper, self.upper, x))
        for _ in range(KERNEL_REFINEMENTS):
            dx, dy = found.solve(-(matvec(qp.H, x) + qp.c + tmatvec(J, y)), self.limit - matvec(J, x))
            x, y = x + dx, y + dy
        return replace(found, x=x, y=y)


def prepare(qp: QuadraticProgram) -> GPUPlan | None:
    """Bring the constraints that all samples share into the kernel's form; None where there is no vertex to start from.

    The vertex is found on the CPU, once; it serves every batch with these constraints.
    """
    fields = {name: getattr(qp, name).cpu() for name in ("A", "b", "G", "h", "lb", "ub")}
    start = compiled.default_start(compiled.programs(fields, qp.n))
    if not int(start.has_start[0]):
        return None
    n, device, place = qp.n, qp.c.device, start.place[0]
    variables = [int(v) for v in start.basis[0] if v < n]
    rows = [int(v) - n for v in range(n, n + qp.p + qp.m) if place[v] != BASIC]
    idle = set(range(qp.p)) - set(rows)  # the kernel takes in inequalities alone
    if idle or len(variables) != len(rows) or (place[:n] > BASIC).any():
        return None  # an equality that is not held, rows that repeat each other, or variables without bounds
    where = [0 if v == BASIC else 2 if v == UPPER else 1 for v in place[:n].tolist()]
    J = torch.cat([qp.A, qp.G], 1)[0].contiguous()
    columns, held = (torch.tensor(index, dtype=torch.long, device=device) for index in (variables, rows))
    return GPUPlan(
        J=J,
        limit=torch.cat([qp.b, qp.h], 1)[0].contiguous(),
        lower=qp.lb[0].contiguous(),
        upper=qp.ub[0].contiguous(),
        equalities=qp.p,
        x=torch.from_numpy(start.x[0, :n].copy()).to(device),
        place=torch.tensor(where, dtype=torch.int32, device=device),
        variables=columns,
        rows=held,
        inverse=torch.linalg.inv(J[held][:, columns]),
    )


def _held(slot: Tensor, n: int, R: int) -> Tensor:
    """(B, R) bool: rows in the working sets."""
    count = torch.zeros(len(slot), n + R, dtype=torch.int8, device=slot.device)
    count.scatter_add_(1, slot.clamp(min=0).long(), (slot >= 0).to(torch.int8))
    return count[:, n:] > 0
