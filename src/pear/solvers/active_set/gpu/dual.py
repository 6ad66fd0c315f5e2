"""Batches for the dual method's kernel: where it starts from, the launch, and the projection after it.

It starts from the minimum with the equalities alone. Multipliers of equalities are variables without bounds there: with
K = [H Aᵀ; A 0] for H and (c, −b) for c the program has bounds and inequalities alone, and nothing has to be added one
by one that is held at every solution.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from pear.problem.canonical import QuadraticProgram
from pear.problem.matrix import row_squares, tmatvec
from pear.solvers.active_set.gpu.found import Found
from pear.solvers.active_set.gpu.start import RUNNING, SINGULAR, stride
from pear.solvers.linalg.rank import row_rank

LAUNCH = {64: (1, 8, 128), 128: (2, 8, 128), 256: (4, 8, 128), 512: (8, 16, 255), 1024: (8, 8, 255)}
"""By the numbers of a vector: warps of a block, terms that it looks at together, and registers of a thread."""

_WIDE = 256  # of more numbers a projection, which waits less than a search, is faster with half the warps


class Known(NamedTuple):
    """The curvature of a batch as the kernel takes it; a leading dimension is 1 where all samples share it.

    Attributes:
        curvature: (B or 1, n, n), or (B or 1, n) where it is diagonal.
        reach: (B or 1, n + R, n + R) W, how far bounds and rows move with the multipliers of each other.
        outcome: (B or 1,) int32 RUNNING, or SINGULAR where there is no such matrix.
    """

    curvature: Tensor
    reach: Tensor
    outcome: Tensor


@dataclass(frozen=True)
class FreeStart:
    """Any constraints, and no point: every sample starts from its minimum with the equalities alone.

    Attributes:
        n: variables of the kernel's programs: decisions, then the multipliers of independent equalities.
        J: (B or 1, R, n) inequalities; lower, upper: (B or 1, n + R) limits of variables and of inequalities.
        A, b: (B or 1, p, decisions) and (B or 1, p) the independent equalities; kept: (p,) int64 which ones they are.
    """

    n: int
    J: Tensor
    lower: Tensor
    upper: Tensor
    A: Tensor
    b: Tensor
    kept: Tensor

    @classmethod
    def of(cls, qp: QuadraticProgram) -> FreeStart:
        """From the programs alone. Equalities that follow from others are left out: this waits for the device."""
        kept = torch.arange(qp.p, device=qp.c.device)
        if qp.p and len(qp.A) == 1:
            rank, order, _ = row_rank(qp.A[0].cpu().numpy())
            kept = torch.from_numpy(order[:rank].copy()).to(qp.c.device).sort()[0]
        p, m, without = len(kept), qp.m, qp.c.new_full((1, 1), torch.inf)
        lower = _beside(qp.lb, -without.expand(1, p), -without.expand(1, m))
        upper = _beside(qp.ub, without.expand(1, p), qp.h)
        lower, upper = (limits.expand(max(len(lower), len(upper)), -1).contiguous() for limits in (lower, upper))
        J = torch.nn.functional.pad(qp.G, (0, p)).contiguous()
        return cls(qp.n + p, J, lower, upper, A=qp.A[:, kept], b=qp.b[:, kept], kept=kept)

    @property
    def size(self) -> int:
        """How many variables and inequalities there are."""
        return self.n + self.J.shape[1]

    @cached_property
    def columns(self) -> Tensor:
        """(B or 1, n, R) Jᵀ."""
        return self.J.mT.contiguous()

    @cached_property
    def norm(self) -> Tensor:
        """(B or 1, n + R) the length of every constraint: 1 for a variable and for a row without entries."""
        lengths = row_squares(self.J).sqrt()
        return torch.cat([lengths.new_ones(len(lengths), self.n), torch.where(lengths > 0, lengths, 1.0)], 1)

    def known(self, qp: QuadraticProgram, inverse: Tensor | None = None) -> Known:
        """The curvature of programs in the kernel's form; ``inverse`` is H⁻¹, (B or 1, n, n), where it is known."""
        from pear.solvers.active_set.gpu.invert import inverted

        H, (p, R) = qp.H, (self.n - qp.n, self.J.shape[1])
        diagonal = H.diagonal(dim1=1, dim2=2)
        if inverse is None and not qp.diagonal:
            inverse, outcome = inverted(H.contiguous(), p + R)
        else:
            known = torch.diag_embed(1.0 / diagonal) if inverse is None else inverse
            inverse = torch.nn.functional.pad(known.contiguous(), (0, p + R, 0, p + R))
            outcome = torch.where((diagonal > 0).all(1), RUNNING, SINGULAR).int()
        curvature = diagonal.contiguous() if qp.diagonal and not p else H.contiguous()
        if p:
            B = max(len(H), len(self.A))
            inverse = inverse if len(inverse) == B else inverse.repeat(B, 1, 1)
            outcome = torch.maximum(outcome, _fill_equalities(inverse, self.A))
            curvature = torch.nn.functional.pad(H.expand(B, -1, -1), (0, p, 0, p))
            curvature[:, qp.n :, : qp.n] = self.A
            curvature[:, : qp.n, qp.n :] = self.A.mT
        if R:
            B = max(len(inverse), len(self.J))
            inverse = inverse if len(inverse) == B else inverse.repeat(B, 1, 1)
            _fill_rows(inverse, self.J)
        return Known(curvature, inverse, outcome.expand(len(inverse)).contiguous())

    def of_equalities(self, w: Tensor) -> Tensor:
        """(K, B, decisions) Aᵀ times the multipliers in (K, B, n + R)."""
        y = w[..., self.n - len(self.kept) : self.n]
        return tmatvec(self.A, y) if len(self.A) == 1 else (y[:, :, None] @ self.A)[:, :, 0]

    def multipliers(self, w: Tensor, p: int) -> Tensor:
        """(K, B, p + R) of all p equalities and the inequalities, in (K, B, n + R)."""
        k = len(self.kept)
        if k == p:
            return w[..., self.n - k :]
        every = w.new_zeros(*w.shape[:2], p)
        every[..., self.kept] = w[..., self.n - k : self.n]
        return torch.cat([every, w[..., self.n :]], 2)


def _beside(*parts: Tensor) -> Tensor:
    """Parts (B or 1, k) beside each other."""
    B = max(map(len, parts))
    return torch.cat([part.expand(B, -1) for part in parts], 1)


def _fill_equalities(reach: Tensor, A: Tensor) -> Tensor:
    """Write K⁻¹ to where H⁻¹ is and beside it; (B,) int32 whether there is one."""
    from pear.solvers.active_set.gpu.invert import inverted

    B, (p, n) = len(reach), A.shape[1:]
    some, these = slice(0, n), slice(n, n + p)
    moved = torch.bmm(reach[:, some, some], A.mT.expand(B, n, p))
    middle, outcome = inverted(torch.bmm(A.expand(B, p, n), moved))
    share = torch.bmm(middle, moved.mT)
    reach[:, some, some].baddbmm_(moved, share, alpha=-1)
    reach[:, these, some] = share
    reach[:, some, these] = share.mT
    torch.neg(middle, out=reach[:, these, these])
    return outcome


def _fill_rows(reach: Tensor, J: Tensor) -> None:
    """Write how rows move beside how variables do."""
    B, (R, n) = len(reach), J.shape[1:]
    some, rows = slice(0, n), slice(n, n + R)
    moved = torch.bmm(reach[:, some, some], J.mT.expand(B, n, R))
    reach[:, some, rows] = moved
    reach[:, rows, some] = moved.mT
    reach[:, rows, rows] = torch.bmm(J.expand(B, R, n), moved)


@dataclass
class Ascent:
    """One batch on its way through the dual method.

    Attributes:
        start: its constraints; qp: the programs; room: for how many terms; known: their curvature.
        kept: what projections need beside it.
    """

    start: FreeStart
    qp: QuadraticProgram
    room: int
    known: Known
    kept: tuple[Tensor, ...] = field(init=False, default=())

    @property
    def _sizes(self) -> dict[str, int]:
        """What the kernels are compiled for."""
        width = max(min(LAUNCH), 1 << (self.start.size - 1).bit_length())
        warps, chunk, registers = LAUNCH[width]
        sizes = {"diagonal": self.known.curvature.dim() == 2, "rows": self._rows > 0, "width": width, "chunk": chunk}
        return sizes | {"num_warps": warps, "maxnreg": registers}

    @property
    def _rows(self) -> int:
        return self.start.J.shape[1]

    def run(self, costs: Tensor) -> Found:
        """Solve for (K, B, decisions) costs; the solutions are below each other."""
        from pear.solvers.active_set.gpu.ascend import ascend

        start, qp, known = self.start, self.qp, self.known
        (K, B, _), n, p, size = costs.shape, start.n, start.n - qp.n, start.size
        costs = torch.cat([costs, -start.b.expand(K, B, p)], 2).contiguous() if p else costs.contiguous()
        w, curvature, terms, weight = (
            costs.new_empty(K, B, *shape) for shape in ((size,), (size,), (self.room, size), (self.room,))
        )
        place, came, count, status = (
            torch.empty(K, B, *shape, dtype=torch.int32, device=w.device) for shape in ((size,), (size,), (), ())
        )
        ascend[(K * B,)](
            known.reach, known.outcome, known.curvature, start.J, start.columns, start.norm, start.lower, start.upper,
            costs, w, curvature, place, came, terms, weight, count, status, B, n, self._rows, qp.n, self.room,
            *map(stride, (known.reach, known.curvature, start.J, start.norm, start.lower)), **self._sizes,
        )  # fmt: skip
        self.kept = tuple(part[0] for part in (came, terms, weight, count))
        if p:  # Kx has Aᵀ times the multipliers in it
            curvature = curvature[..., : qp.n] - start.of_equalities(w)
        return Found.of(self, qp, (w, curvature, start.multipliers(w, qp.p), place), came[..., n:], status)

    def project(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """See ``Found.project``."""
        from pear.solvers.active_set.gpu.project import project_by_terms

        start, known, decisions = self.start, self.known, self.qp.n
        g = e.new_empty(len(e), start.size)
        converged = torch.empty(len(e), dtype=torch.int8, device=e.device)
        sizes = self._sizes | ({"num_warps": 4, "chunk": 8, "maxnreg": 128} if start.size > _WIDE else {})
        project_by_terms[(len(e),)](
            known.reach, known.curvature, start.J, start.columns, e.contiguous(), *self.kept, g, converged, start.n,
            self._rows, decisions, self.room, *map(stride, (known.reach, known.curvature, start.J)), **sizes,
        )  # fmt: skip
        return g[:, :decisions], converged.bool()

    def copied(self) -> Ascent:
        """The same in memory of its own."""
        known = Known(*(part.clone() for part in self.known))
        copy = Ascent(self.start, self.qp, self.room, known)
        copy.kept = tuple(part.clone() for part in self.kept)
        return copy
