"""Batches for the primal method's kernel: the launch, and the projection after it."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from pear.problem.canonical import QuadraticProgram
from pear.solvers.active_set.gpu.found import Found
from pear.solvers.active_set.gpu.start import ElasticStart, VertexStart, WorkingSet, stride

SLOTS = {32: (1, 128), 64: (2, 255), 128: (8, 255)}
"""Room for the working set, each with the warps of a block and the registers of a thread: M stays in registers."""

_WIDE = 256  # from more variables on a block has eight warps at least
_FEW_BLOCKS = 256  # costs of a sample that make no more blocks than that are searched for at once
_TILE = 4096  # numbers of H, or of the rows, that a block looks at together


@dataclass
class Descent:
    """One batch on its way through the primal method."""

    start: VertexStart | ElasticStart
    qp: QuadraticProgram
    slots: int
    begin: WorkingSet
    H: Tensor = field(init=False)
    sizes: dict[str, int] = field(init=False)
    kept: tuple[Tensor, ...] = field(init=False, default=())

    def __post_init__(self) -> None:
        H = self.qp.H.diagonal(dim1=1, dim2=2) if self.qp.diagonal else self.qp.H
        self.H = self.start.curvature(H, self.qp).contiguous()
        width = max(16, 1 << (self.start.n - 1).bit_length())
        height = max(2, 1 << (self.start.J.shape[1] - 1).bit_length())
        warps, registers = SLOTS[self.slots]
        warps = max(warps, 8) if width > _WIDE else warps
        chunk = min(self.slots, max(2, min(4 * warps, _TILE // width)))
        self.sizes = {"rows": self.start.J.shape[1] > 0, "width": width, "height": height, "slots": self.slots}
        self.sizes |= {"chunk": chunk, "num_warps": warps, "maxnreg": registers}

    @property
    def _strides(self) -> tuple[int, int]:
        return (stride(self.H), stride(self.start.J))

    def run(self, costs: Tensor) -> Found:
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
        found = Found.of(self, qp, (x, curvature, y, place), row_position[..., qp.p :], status)
        return replace(found, ended=found.ended & start.arrived(x, place).flatten())

    def _search(self, costs: Tensor, written: tuple[Tensor, ...]) -> None:
        """Fill in what the kernel writes."""
        from pear.solvers.active_set.gpu.descend import descend

        start, begin, (K, B, n) = self.start, self.begin, costs.shape
        R = start.J.shape[1]
        apart = K * B <= _FEW_BLOCKS and not start.elastic  # whose later costs start from where the first has led
        blocks, each = (K * B, 1) if apart else (B, K)
        order = torch.empty(blocks, self.slots, dtype=torch.int32, device=costs.device)
        strides = (*self._strides, stride(start.limit), stride(start.J[:, :, 0]), stride(start.lower))
        descend[(blocks,)](
            self.H, start.J, *start.rows, start.limit, start.lower, start.upper, costs,
            start.x, start.place, begin.slot, begin.position, begin.row_position, begin.M,
            *written, order, torch.empty_like(order, dtype=costs.dtype), B, n, R, start.equalities, *strides,
            stride(start.x), begin.free, 5 * (n + R) + 50, each,
            elastic=start.elastic, diagonal=self.qp.diagonal, **self.sizes,
        )  # fmt: skip

    def project(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """See ``Found.project``."""
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

    def copied(self) -> Descent:
        """The same in memory of its own."""
        other = copy(self)
        other.kept = tuple(part.clone() for part in self.kept)
        other.H = self.H.clone()
        return other
