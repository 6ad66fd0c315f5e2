"""The dual active-set method on a GPU: its programs, the launch of its kernel, and the projection after it.

The search starts from the minimum subject to the equalities alone. To the kernel, multipliers of equalities are
variables without bounds. With K = [H Aᵀ; A 0] instead of H and (c, −b) instead of c, the kernel's program has bounds
and inequalities only. The search therefore spends no steps on equalities.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from pear.optimality.rule import RANK
from pear.presolving.independent_rows import independent_rows
from pear.problem.matrix import matrix_row_squares, tmatvec
from pear.problem.quadratic_program import QuadraticProgram
from pear.solvers.active_set.gpu.gpu_method import GPUMethod
from pear.solvers.active_set.gpu.gpu_solution import RUNNING, SINGULAR, GPUSolution

LAUNCH = {64: (1, 8, 128), 128: (2, 8, 128), 256: (4, 8, 128), 512: (8, 16, 255), 1024: (8, 8, 255)}
"""Launch settings by the length of vectors: warps of a block, terms read together, and registers of a thread."""

_WIDE = 256  # a projection, which waits less than a search, of longer vectors is faster with half the warps


class DualCurvature(NamedTuple):
    """The curvature of a batch in the form that the dual kernel reads; a leading 1 means that samples share a field.

    If there are equalities A, the matrix K = [H Aᵀ; A 0] takes the place of H.

    Attributes:
        H: (B or 1, n, n), or (B or 1, n) if H is diagonal.
        response: (B or 1, n + R, n + R) W = C H⁻¹Cᵀ with C = [I; J]. If the multiplier of constraint i grows by one,
            the value of constraint j falls by W_ij.
        outcome: (B or 1,) int32 RUNNING, or SINGULAR if H is not positive definite or K has no inverse.
    """

    H: Tensor
    response: Tensor
    outcome: Tensor


@dataclass(frozen=True, eq=False)
class DualMethod(GPUMethod):
    """The dual method for bounds, inequalities and equalities. It needs no feasible point.

    Attributes:
        n: the number of variables of the kernel's programs: decisions, then the multipliers of independent equalities.
        J: (B or 1, R, n) inequalities.
        lower, upper: (B or 1, n + R) limits of variables and of inequalities.
        room: the number of rank-one terms of the working set for which there is memory.
        A: (B or 1, p, decisions) the independent equalities.
        b: (B or 1, p) their right-hand sides.
        independent: (p,) int64 positions of these equalities among all equalities.
    """

    rooms: ClassVar[tuple[int, ...]] = (64, 128, 256, 512, 1024)
    A: Tensor
    b: Tensor
    independent: Tensor

    @classmethod
    def of(cls, qp: QuadraticProgram, terms: int) -> DualMethod:
        """Make the method for these constraints, with room for at least ``terms`` terms, or the largest room there is.

        Equalities that follow from others are left out. The call waits for the device.
        """
        independent = torch.arange(qp.p, device=qp.c.device)
        if qp.p and len(qp.A) == 1:
            rank, order, _ = independent_rows(qp.A[0].cpu().numpy(), RANK)
            independent = torch.from_numpy(order[:rank].copy()).to(qp.c.device).sort()[0]
        p, B = len(independent), max(map(len, (qp.lb, qp.ub, qp.h)))
        lower = pad(qp.lb.expand(B, -1), (0, p + qp.m), value=-torch.inf).contiguous()
        upper = torch.cat([pad(qp.ub.expand(B, -1), (0, p), value=torch.inf), qp.h.expand(B, -1)], 1)
        return cls(
            n=qp.n + p,
            J=pad(qp.G, (0, p)).contiguous(),
            lower=lower,
            upper=upper,
            room=next((room for room in cls.rooms if room >= terms), max(cls.rooms)),
            A=qp.A[:, independent],
            b=qp.b[:, independent],
            independent=independent,
        )

    @property
    def size(self) -> int:
        """n + R, the length of the kernel's vectors: one entry for each variable and one for each inequality."""
        return self.n + self.R

    @property
    def numbers(self) -> int:
        """About how many numbers a launch keeps in memory for each sample."""
        return 2 * self.room * self.size

    @cached_property
    def norm(self) -> Tensor:
        """The length of every constraint, (B or 1, n + R): 1 for a variable and for a row without entries."""
        lengths = matrix_row_squares(self.J).sqrt()
        return torch.cat([lengths.new_ones(len(lengths), self.n), torch.where(lengths > 0, lengths, 1.0)], 1)

    def curvature(self, qp: QuadraticProgram, inverse: Tensor | None = None) -> DualCurvature:
        """Return H in the form that the kernel reads.

        Args:
            qp: the programs.
            inverse: (B or 1, decisions, decisions) the inverses of H if they are known, else None.
        """
        from pear.solvers.active_set.gpu.inverse_kernel import invert_by_kernel

        H, p, more = qp.H, len(self.independent), self.size - qp.n
        diagonal = H.diagonal(dim1=1, dim2=2)
        if inverse is None and not qp.diagonal:
            response, outcome = invert_by_kernel(H.contiguous(), more)
        else:
            known = torch.diag_embed(1.0 / diagonal) if inverse is None else inverse
            response = pad(known.contiguous(), (0, more, 0, more))
            outcome = torch.where((diagonal > 0).all(1), RUNNING, SINGULAR).int()
        H = diagonal.contiguous() if qp.diagonal and not p else H.contiguous()
        if p:
            response = self._repeat_by_sample(response, self.A)
            outcome = torch.maximum(outcome, self._add_equality_responses(response, self.A))
            H = pad(H.expand(len(response), -1, -1), (0, p, 0, p))
            H[:, qp.n :, : qp.n] = self.A
            H[:, : qp.n, qp.n :] = self.A.mT
        if self.R:
            response = self._repeat_by_sample(response, self.J)
            self._add_row_responses(response, self.J)
        return DualCurvature(H, response, outcome.expand(len(response)).contiguous())

    def solve(self, qp: QuadraticProgram, costs: Tensor, curvature: DualCurvature | None = None) -> GPUSolution:
        """Return the solutions of B programs for K costs each, found by one launch; see ``GPUMethod.solve``."""
        from pear.solvers.active_set.gpu.dual_kernels import search_dual_kernel

        H, response, outcome = self.curvature(qp) if curvature is None else curvature
        (K, B, _), n, p, size, room = costs.shape, self.n, len(self.independent), self.size, self.room
        costs = (torch.cat([costs, -self.b.expand(K, B, p)], 2) if p else costs).contiguous()
        w, Hx, terms, weight = (costs.new_empty(K, B, *shape) for shape in ((size,), (size,), (room, size), (room,)))
        place, since, count, status = (
            torch.empty(K, B, *shape, dtype=torch.int32, device=w.device) for shape in ((size,), (size,), (), ())
        )
        search_dual_kernel[(K * B,)](
            response, outcome, H, self.J, self.columns, self.norm, self.lower, self.upper, costs,
            w, Hx, place, since, terms, weight, count, status, B, n, self.R, qp.n, room,
            *map(self.stride, (response, H, self.J, self.norm, self.lower)), **self._launch_sizes(H),
        )  # fmt: skip
        if p:  # Kx has Aᵀ times the multipliers in it
            y = w[..., qp.n : n]
            Hx = Hx[..., : qp.n] - (tmatvec(self.A, y) if len(self.A) == 1 else (y[:, :, None] @ self.A)[:, :, 0])
        kept = (response, H, *(part[0] for part in (since, terms, weight, count)))
        point = (w, Hx, self._row_multipliers(w, qp.p), place)
        return GPUSolution.of(qp, point, since[..., n:], status, method=self, kept=kept, projection=self._project)

    def _row_multipliers(self, w: Tensor, p: int) -> Tensor:
        """Return (K, B, p + R) multipliers of all p equalities and of the inequalities, from w (K, B, n + R).

        Equalities that were left out, because they follow from others, get multipliers of zero.
        """
        k = len(self.independent)
        if k == p:
            return w[..., self.n - k :]
        equalities = w.new_zeros(*w.shape[:2], p)
        equalities[..., self.independent] = w[..., self.n - k : self.n]
        return torch.cat([equalities, w[..., self.n :]], 2)

    def _project(self, e: Tensor, response: Tensor, H: Tensor, *kept: Tensor) -> tuple[Tensor, Tensor]:
        """Project errors (B, decisions) at solutions, with the results of ``GPUSolution.project``.

        The tensors after ``e`` are those that ``solve`` leaves in ``GPUSolution.kept``.
        """
        from pear.solvers.active_set.gpu.dual_kernels import project_dual_kernel

        B, decisions = e.shape
        g, converged = e.new_empty(B, self.size), torch.empty(B, dtype=torch.int8, device=e.device)
        sizes = self._launch_sizes(H) | ({"num_warps": 4, "chunk": 8, "maxnreg": 128} if self.size > _WIDE else {})
        project_dual_kernel[(B,)](
            response, H, self.J, self.columns, e.contiguous(), *kept, g, converged, self.n,
            self.R, decisions, self.room, *map(self.stride, (response, H, self.J)), **sizes,
        )  # fmt: skip
        return g[:, :decisions], converged.bool()

    def _launch_sizes(self, H: Tensor) -> dict[str, int]:
        """Return the compile-time constants and launch options of the kernels.

        They depend on the number of variables and inequalities, and on whether H is diagonal.
        """
        width = max(min(LAUNCH), 1 << (self.size - 1).bit_length())
        warps, chunk, registers = LAUNCH[width]
        sizes = {"diagonal": H.dim() == 2, "rows": self.R > 0, "width": width, "chunk": chunk}
        return sizes | {"num_warps": warps, "maxnreg": registers}

    @staticmethod
    def _repeat_by_sample(response: Tensor, rows: Tensor) -> Tensor:
        """Return ``response`` with a matrix for each sample if ``rows`` differ by sample; else return it unchanged."""
        B = max(len(response), len(rows))
        return response if len(response) == B else response.repeat(B, 1, 1)

    @staticmethod
    def _add_equality_responses(response: Tensor, A: Tensor) -> Tensor:
        """Replace H⁻¹ in ``response`` by the inverse of K = [H Aᵀ; A 0], in place.

        The inverse has p more rows and columns than H⁻¹, for the p equalities. ``response`` has room for them.

        Returns:
            (B,) int32 RUNNING, or SINGULAR if K has no inverse.
        """
        from pear.solvers.active_set.gpu.inverse_kernel import invert_by_kernel

        B, (p, n) = len(response), A.shape[1:]
        some, these = slice(0, n), slice(n, n + p)
        moved = torch.bmm(response[:, some, some], A.mT.expand(B, n, p))
        middle, outcome = invert_by_kernel(torch.bmm(A.expand(B, p, n), moved))
        share = torch.bmm(middle, moved.mT)
        response[:, some, some].baddbmm_(moved, share, alpha=-1)
        response[:, these, some] = share
        response[:, some, these] = share.mT
        torch.neg(middle, out=response[:, these, these])
        return outcome

    @staticmethod
    def _add_row_responses(response: Tensor, J: Tensor) -> None:
        """Write the entries of ``response`` that belong to the rows J, computed from those of the variables."""
        B, (R, n) = len(response), J.shape[1:]
        some, rows = slice(0, n), slice(n, n + R)
        moved = torch.bmm(response[:, some, some], J.mT.expand(B, n, R))
        response[:, some, rows] = moved
        response[:, rows, some] = moved.mT
        response[:, rows, rows] = torch.bmm(J.expand(B, R, n), moved)
