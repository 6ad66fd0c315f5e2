"""The primal active-set method on a GPU: feasible starts, the launch of its kernel, and the projection after it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from pear.problem.matrix import matrix_row_squares, matvec
from pear.problem.quadratic_program import QuadraticProgram
from pear.solvers.active_set import kernel_arrays
from pear.solvers.active_set.gpu.gpu_method import GPUMethod
from pear.solvers.active_set.gpu.gpu_solution import AT_LOWER, AT_UPPER, FREE, UNBOUNDED, GPUSolution
from pear.solvers.active_set.kernel_calls import call_kernel_for_start
from pear.solvers.active_set.program_packing import pack_programs

_CONSTRAINTS = ("A", "b", "G", "h", "lb", "ub")
_WIDE = 256  # from more variables on a block has eight warps at least
_FEW_BLOCKS = 256  # several costs of a sample are searched for at once if that makes no more blocks
_TILE = 4096  # numbers of H, or of the rows, that a block reads together
_PRICE = 10.0  # cost of a violation at the start, relative to an estimate of what it costs to end it


@dataclass(frozen=True)
class PrimalStart:
    """The working set that all samples start with, in the kernel's form, for n variables and R rows.

    Attributes:
        slot: (room,) int32, the index in each slot: j < n is a free variable, n + i a held row, −1 an empty slot.
        position, row_position: (n,) and (R,) int32, the slot of each variable and of each row, −1 if it has none.
        M: (room, room) the part of the inverse of the KKT matrix that depends on the rows alone.
        free: the number k of held rows. The first k slots are free variables, the next k the held rows. An elastic
            start has k = 0, and its first slot is the last variable.
    """

    slot: Tensor
    position: Tensor
    row_position: Tensor
    M: Tensor
    free: int


@dataclass(frozen=True, eq=False)
class PrimalMethod(GPUMethod):
    """The primal method: rows, bounds and a feasible point to start from.

    Attributes:
        J: (B or 1, R, n) rows, equalities first.
        limit: (B or 1, R) the right-hand sides of the rows.
        equalities: the number of rows that are equalities.
        x: (B or 1, n) the point to start from.
        place: (B or 1, n) int32 codes that say for each variable whether it starts free or at which bound.
        free, held: int64 the free variables and the held rows of the working set at the start, k each. An elastic start
            has one free variable and no held row.
        rooms: the possible sizes of a working set, each with the numbers of warps per block and of registers per thread
            with which M stays in registers.
        elastic: True if the last variable measures violation: it is 1 at the start and 0 at a feasible point.
    """

    rooms: ClassVar[dict[int, tuple[int, int]]] = {32: (1, 128), 64: (2, 255), 128: (8, 255)}
    elastic: ClassVar[bool] = False
    limit: Tensor
    equalities: int
    x: Tensor
    place: Tensor
    free: Tensor
    held: Tensor

    @classmethod
    def first_room(cls, qp: QuadraticProgram) -> int:
        """Return the number of slots that the working sets of the first batch get."""
        some, more, *_ = cls.rooms
        return some if qp.n + qp.p + qp.m < some else more

    @property
    def numbers(self) -> int:
        """About how many numbers a launch keeps in memory for each sample."""
        return self.room**2

    @cached_property
    def working_set(self) -> PrimalStart:
        """The working set at the start, with its free variables first."""
        free, held = self.free, self.held
        indices, M = torch.cat([free, self.n + held]), self.x.new_zeros(self.room, self.room)
        slot, where = (
            torch.full((size,), -1, dtype=torch.int32, device=M.device) for size in (len(M), self.n + self.R)
        )
        slot[: len(indices)] = indices.int()
        where[indices] = torch.arange(len(indices), dtype=torch.int32, device=M.device)
        k = len(held)
        M[:k, k : 2 * k] = torch.linalg.inv(self.J[0][held][:, free[:k]])
        M[k : 2 * k, :k] = M[:k, k : 2 * k].mT
        return PrimalStart(slot, where[: self.n], where[self.n :], M, k)

    @cached_property
    def row_size(self) -> Tensor:
        """The largest absolute entry of each row, (B or 1, R)."""
        return self.J.abs().amax(2) if self.R else self.J[:, :, 0]

    def extend_curvature(self, H: Tensor, qp: QuadraticProgram) -> Tensor:
        """Return H of the kernel's programs: (B or 1, n, n), or (B or 1, n) if H is diagonal."""
        return H

    def extend_costs(self, costs: Tensor, qp: QuadraticProgram) -> Tensor:
        """Return the costs (K, B, n) of the kernel's programs."""
        return costs

    def solve(self, qp: QuadraticProgram, costs: Tensor, curvature: Any = None) -> GPUSolution:
        """Return the solutions of B programs for K costs each, found by one launch; see ``GPUMethod.solve``."""
        (K, B, _), n, R, room = costs.shape, self.n, self.R, self.room
        costs = self.extend_costs(costs, qp).contiguous()
        H = self.extend_curvature(qp.H.diagonal(dim1=1, dim2=2) if qp.diagonal else qp.H, qp).contiguous()
        x, Hx, y, M = (costs.new_empty(shape) for shape in ((K, B, n), (K, B, n), (K, B, R), (B, room, room)))
        place, row_position, position, slot, status = (
            torch.empty(shape, dtype=torch.int32, device=x.device)
            for shape in ((K, B, n), (K, B, R), (B, n), (B, room), (K, B))
        )
        self._launch_search(H, costs, (x, y, Hx, place, row_position, position, slot, M, status), qp.diagonal)
        kept, projection = (H, slot, position, row_position[0], M), partial(self._project, qp.diagonal)
        held = row_position[..., qp.p :]
        point = x, Hx, y, place
        solution = GPUSolution.of(qp, point, held, status, method=self, kept=kept, projection=projection)
        if not self.elastic:
            return solution
        feasible = (place[..., -1] == AT_LOWER) & (x[..., -1] == 0)  # nothing of the violation is left
        return replace(solution, optimal=solution.optimal & feasible.flatten())

    def _launch_search(self, H: Tensor, costs: Tensor, written: tuple[Tensor, ...], diagonal: bool) -> None:
        """Launch the kernel that searches for the solutions and fills the tensors of ``written``."""
        from pear.solvers.active_set.gpu.primal_kernels import search_primal_kernel

        start, (K, B, n) = self.working_set, costs.shape
        at_once = K * B <= _FEW_BLOCKS and not self.elastic  # later costs start from where the first became feasible
        blocks, each = (K * B, 1) if at_once else (B, K)
        order = torch.empty(blocks, self.room, dtype=torch.int32, device=costs.device)
        search_primal_kernel[(blocks,)](
            H, self.J, self.columns, self.row_size, self.limit, self.lower, self.upper, costs,
            self.x, self.place, start.slot, start.position, start.row_position, start.M,
            *written, order, torch.empty_like(order, dtype=costs.dtype), B, n, self.R, self.equalities,
            *map(self.stride, (H, self.J, self.limit, self.row_size, self.lower, self.x)),
            start.free, 5 * (n + self.R) + 50, each, elastic=self.elastic, diagonal=diagonal, **self._launch_sizes(),
        )  # fmt: skip

    def _project(self, diagonal: bool, e: Tensor, H: Tensor, *kept: Tensor) -> tuple[Tensor, Tensor]:
        """Project errors (B, decisions) at solutions, with the results of ``GPUSolution.project``.

        The tensors after ``e`` are those that ``solve`` leaves in ``GPUSolution.kept``. ``diagonal`` says that H is.
        """
        from pear.solvers.active_set.gpu.primal_kernels import project_primal_kernel

        (B, n), sizes = e.shape, self._launch_sizes()
        if sizes["width"] <= _WIDE:  # two small blocks on an SM are faster than a large one
            sizes["num_warps"] = min(sizes["num_warps"], 4)
        e = pad(e, (0, 1)) if self.elastic else e.contiguous()  # the last variable of an elastic start is held
        g, converged = torch.empty_like(e), torch.empty(B, dtype=torch.int8, device=e.device)
        project_primal_kernel[(B,)](
            H, self.J, self.columns, e, *kept, g, converged, self.n, self.R,
            self.stride(H), self.stride(self.J), diagonal=diagonal, **sizes,
        )  # fmt: skip
        return g[:, :n], converged.bool()

    def _launch_sizes(self) -> dict[str, int]:
        """Return the compile-time constants and launch options of the kernels.

        They depend on the numbers of variables, rows and slots of the working set.
        """
        width, height = (max(least, 1 << (size - 1).bit_length()) for least, size in ((16, self.n), (2, self.R)))
        warps, registers = self.rooms[self.room]
        warps = max(warps, 8) if width > _WIDE else warps
        chunk = min(self.room, max(2, min(4 * warps, _TILE // width)))
        sizes = {"rows": self.R > 0, "width": width, "height": height, "slots": self.room, "chunk": chunk}
        return sizes | {"num_warps": warps, "maxnreg": registers}


@dataclass(frozen=True, eq=False)
class VertexPrimalMethod(PrimalMethod):
    """The primal method for constraints that all samples share. It starts from a vertex of the feasible set."""

    @classmethod
    def of(cls, qp: QuadraticProgram) -> VertexPrimalMethod | None:
        """Make the method with a vertex as its start, found on the CPU; return None if there is no feasible point."""
        start = call_kernel_for_start(pack_programs({name: getattr(qp, name).cpu() for name in _CONSTRAINTS}, qp.n))
        if not int(start.has_start[0]):
            return None
        n, device, place = qp.n, qp.c.device, start.place[0]
        codes = {kernel_arrays.BASIC: FREE, kernel_arrays.UPPER: AT_UPPER, kernel_arrays.FREE: UNBOUNDED}
        return cls(
            n=n,
            J=torch.cat([qp.A, qp.G], 1).contiguous(),
            limit=torch.cat([qp.b, qp.h], 1).contiguous(),
            lower=qp.lb.contiguous(),
            upper=qp.ub.contiguous(),
            room=cls.first_room(qp),
            equalities=qp.p,
            x=torch.from_numpy(start.x[:1, :n].copy()).to(device),
            place=torch.tensor([[codes.get(int(v), AT_LOWER) for v in place[:n]]], dtype=torch.int32, device=device),
            free=torch.tensor([v for v in start.basis[0] if v < n], dtype=torch.long, device=device),
            held=torch.from_numpy(np.flatnonzero(place[n : n + qp.p + qp.m] != kernel_arrays.BASIC)).to(device),
        )


@dataclass(frozen=True, eq=False)
class ElasticPrimalMethod(PrimalMethod):
    """The primal method for constraints that differ by sample. It starts from an infeasible point.

    Each variable of this point x⁰ is at the bound nearer to zero, or at zero if it has no bounds. Let v be Jx⁰ − limit
    in the rows that x⁰ violates, and zero elsewhere. The kernel's rows have one more variable t, from 0 to 1, and the
    products Jx − vt in place of Jx. With t = 1, x⁰ satisfies these rows. A point with t = 0 satisfies the rows of the
    program, so that t is the share of the violation that is left. The cost of t is likely to exceed what a feasible
    decision costs. Once t is zero, the kernel leaves t there. The working set at the start is t alone.

    Attributes:
        distance: (B,) the largest distance of x⁰ to a row that x⁰ violates.
    """

    elastic: ClassVar[bool] = True
    distance: Tensor

    @classmethod
    def of(cls, qp: QuadraticProgram) -> ElasticPrimalMethod:
        """Make the method with its start at the bounds of the programs."""
        B = max(len(getattr(qp, name)) for name in _CONSTRAINTS)
        A, b, G, h, lower, upper = (v.expand(B, *v.shape[1:]) for v in (getattr(qp, k) for k in _CONSTRAINTS))
        J, limit = torch.cat([A, G], 1), torch.cat([b, h], 1)
        at_upper = upper.abs() < lower.abs()
        unbounded = lower.isinf() & upper.isinf()
        x = torch.where(unbounded, 0.0, torch.where(at_upper, upper, lower))
        place = torch.where(unbounded, UNBOUNDED, torch.where(at_upper, AT_UPPER, AT_LOWER)).int()
        violation = matvec(J, x) - limit
        violation[:, qp.p :].clamp_(min=0)
        norm = matrix_row_squares(J).sqrt()
        far = torch.where(norm > 0, violation.abs() / norm, 0.0)
        return cls(
            n=qp.n + 1,
            J=torch.cat([J, -violation[:, :, None]], 2),
            limit=limit.contiguous(),
            lower=pad(lower, (0, 1)),
            upper=pad(upper, (0, 1), value=1.0),
            room=cls.first_room(qp),
            equalities=qp.p,
            x=pad(x, (0, 1), value=1.0),
            place=pad(place, (0, 1), value=FREE),
            free=torch.tensor([qp.n], device=x.device),
            held=torch.zeros(0, dtype=torch.long, device=x.device),
            distance=far.amax(1) if far.shape[1] else x.new_zeros(B),
        )

    def extend_curvature(self, H: Tensor, qp: QuadraticProgram) -> Tensor:
        """Return H with a diagonal entry for the last variable t: (B, n, n), or (B, n) if H is diagonal.

        t is the share of the violation that is left. Its curvature is such that it falls to zero in one step.
        """
        corner = self._violation_cost(qp.c, qp)
        if qp.diagonal:
            return torch.cat([H.expand(len(corner), -1), corner[:, None]], 1)
        padded = pad(H.expand(len(corner), -1, -1), (0, 1, 0, 1))
        padded[:, -1, -1] = corner
        return padded

    def extend_costs(self, costs: Tensor, qp: QuadraticProgram) -> Tensor:
        """Return the costs (K, B, n) of the kernel's programs. Only the first of the K costs has a cost of t.

        t, the last variable, is the share of the violation that is left. The search for the first cost brings t to
        zero, where it stays in the later searches.
        """
        padded = pad(costs, (0, 1))
        padded[0, :, -1] = self._violation_cost(costs[0], qp)
        return padded

    def _violation_cost(self, cost: Tensor, qp: QuadraticProgram) -> Tensor:
        """Return (B,) a cost of the violation that is likely to exceed what a feasible point costs."""
        slope = cost.abs() + matvec(qp.H, self.x[:, :-1].expand(len(cost), -1)).abs()
        price = _PRICE * slope.sum(1) * self.distance
        return torch.where(price > 0, price, 1.0)
