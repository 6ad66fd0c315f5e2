"""Batches for the GPU's active-set kernel: a common start, the launch, and exact solutions from what it leaves."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pear.optimality.rule import NEGLIGIBLE, PROJECTED
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
    """Where the kernel left a batch.

    Attributes:
        qp: the programs.
        x: (B, n) points; y: (B, R) multipliers of all rows; lower, upper: (B, n) bool, variables held at a bound.
        rows: (B, m) bool, inequalities that are held; ended: (B,) bool, where an optimum was found.
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
        """G = P e with the working sets held, (B, n), refined to rounding, and (B,) bool where that has converged."""
        J = _rows(self.qp)
        none = torch.zeros_like(self.y)
        g, v = self.solve(e, none)
        first = g.abs().amax(1)
        for _ in range(KERNEL_REFINEMENTS):
            change, dv = self.solve(e - matvec(self.qp.H, g) - tmatvec(J, v), -matvec(J, g))
            g, v = g + change, v + dv
        noise = NEGLIGIBLE * e.abs().amax(1) / self.qp.H.diagonal(dim1=1, dim2=2).amax(1)
        return g, change.abs().amax(1) <= torch.maximum(PROJECTED * first, noise)


def descend(qp: QuadraticProgram) -> Descent | None:
    """Solve a batch on its GPU; None where the constraints leave nothing to start from.

    The start is one feasible working set for all samples: it depends on the constraints alone.
    """
    fields = {name: getattr(qp, name).cpu() for name in ("A", "b", "G", "h", "lb", "ub")}
    home = compiled.home_of(compiled.programs(fields, qp.n))
    if not int(home.known[0]):
        return None
    start = _Start.of(qp, home)
    if start is None:
        return None
    found = _run(qp, start, _SLOTS[0])
    return found if bool(found.ended.all()) or qp.n <= _SLOTS[0] else _run(qp, start, _SLOTS[1])


@dataclass(frozen=True)
class _Start:
    """A feasible vertex: (n,) x and place (0 free, 1 and 2 at a bound), and the working set as a list of indices."""

    x: Tensor
    place: Tensor
    working: list[int]

    @classmethod
    def of(cls, qp: QuadraticProgram, home: compiled.States) -> _Start | None:
        n, device = qp.n, qp.c.device
        place, basis = home.place[0], home.basis[0]
        variables = [int(v) for v in basis if v < n]
        rows = [int(v) for v in range(n, n + qp.p + qp.m) if place[v] != BASIC]
        if len(variables) != len(rows) or (place[:n] > BASIC).any():
            return None  # rows that repeat each other, or variables without bounds
        x = torch.from_numpy(home.x[0, :n].copy())
        where = [0 if v == BASIC else 2 if v == UPPER else 1 for v in place[:n].tolist()]
        return cls(x.to(device), torch.tensor(where, dtype=torch.int32, device=device), variables + rows)


def _run(qp: QuadraticProgram, start: _Start, slots: int) -> Descent:
    import triton

    from pear.solvers.active_set.gpu.kernel import descend as kernel

    B, n, R = qp.batch, qp.n, qp.p + qp.m
    J = _rows(qp)[0].contiguous()
    limit = torch.cat([qp.b, qp.h], 1)[0].contiguous()
    H = qp.H.contiguous()
    x = start.x.expand(B, n).contiguous()
    slope = matvec(H, x) + qp.c
    place = start.place.expand(B, n).contiguous()
    slot, M = _first_inverse(H, J, start.working, B, slots)
    fate = torch.zeros(B, dtype=torch.int32, device=x.device)
    block = triton.next_power_of_2(n)
    kernel[(B,)](
        H, J, limit, qp.lb[0].contiguous(), qp.ub[0].contiguous(), x, slope, place, slot, M, fate,
        n, R, qp.p, 0 if H.shape[0] == 1 else n * n, 20 * n + 100,
        width=block, slots=slots, num_warps=4 if block <= 256 else 8,
    )  # fmt: skip
    y = torch.zeros_like(torch.cat([qp.b, qp.h], 1).expand(B, R))
    held = _held(slot, n, R)
    found = Descent(qp, x, y, place == 1, place == 2, held[:, qp.p :], fate == 1, slot, M)
    return _refined(found, J[None], limit)


def _refined(found: Descent, J: Tensor, limit: Tensor) -> Descent:
    """The solution on the working set to rounding: M is a good inverse, and refinement makes it as good as exact."""
    qp, x, y = found.qp, found.x, found.y
    x = torch.where(found.lower, qp.lb, torch.where(found.upper, qp.ub, x))
    for _ in range(KERNEL_REFINEMENTS):
        dx, dy = found.solve(-(matvec(qp.H, x) + qp.c + tmatvec(J, y)), limit - matvec(J, x))
        x, y = x + dx, y + dy
    return replace(found, x=x, y=y)


def _first_inverse(H: Tensor, J: Tensor, working: list[int], B: int, slots: int) -> tuple[Tensor, Tensor]:
    """(B, slots) working sets and (B, slots, slots) inverses at the common start."""
    n, device = H.shape[1], H.device
    slot = torch.full((B, slots), -1, dtype=torch.int32, device=device)
    M = torch.zeros(B, slots, slots, dtype=H.dtype, device=device)
    k = len(working) // 2
    if k:
        slot[:, : 2 * k] = torch.tensor(working, dtype=torch.int32, device=device)
        variables = torch.tensor(working[:k], device=device)
        rows = torch.tensor(working[k:], device=device) - n
        B_inverse = torch.linalg.inv(J[rows][:, variables])
        # K = [H_FF Bᵀ; B 0] with a square B, so that its inverse is [0 B⁻¹; B⁻ᵀ −B⁻ᵀ H_FF B⁻¹]
        H_free = H[:, variables][:, :, variables]
        M[:, :k, k : 2 * k] = B_inverse
        M[:, k : 2 * k, :k] = B_inverse.mT
        M[:, k : 2 * k, k : 2 * k] = -(B_inverse.mT @ H_free @ B_inverse)
    return slot, M


def _held(slot: Tensor, n: int, R: int) -> Tensor:
    """(B, R) bool: rows in the working sets."""
    count = torch.zeros(len(slot), n + R, dtype=torch.int8, device=slot.device)
    count.scatter_add_(1, slot.clamp(min=0).long(), (slot >= 0).to(torch.int8))
    return count[:, n:] > 0


def _rows(qp: QuadraticProgram) -> Tensor:
    return torch.cat([qp.A, qp.G], 1)
