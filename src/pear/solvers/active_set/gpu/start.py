"""Where the GPU's kernels start from.

One vertex for all samples, or for each sample a point outside and a way in; the dual method has its own (``dual``).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from pear.problem.canonical import QuadraticProgram
from pear.problem.matrix import matvec, row_squares
from pear.solvers.active_set.layout import BASIC, FREE, UPPER, States

MOVABLE, AT_LOWER, AT_UPPER, NOWHERE, UNBOUNDED = range(5)
"""Where a variable is: in the working set, at a bound, padding, or without bounds and not yet in the working set."""

RUNNING, OPTIMAL, CROWDED, SINGULAR, INFEASIBLE = range(5)
"""How the search of a sample ended: not at all, at an optimum, without room for the working set, without curvature
along a direction that would have to be followed, or with a constraint that cannot be satisfied beside those held."""

_DEAR = 10.0  # what a violation costs at first, against what ending it may cost


@dataclass(frozen=True)
class WorkingSet:
    """Where all samples start, in the form the kernel has for it.

    Attributes:
        slot: (slots,) int32; position: (n,) and row_position: (R,) int32, the same from the other side.
        M: (slots, slots) the part of the inverse that depends on the rows alone.
        free: number of variables, which come first.
    """

    slot: Tensor
    position: Tensor
    row_position: Tensor
    M: Tensor
    free: int

    @classmethod
    def of(cls, indices: Tensor, M: Tensor, free: int, n: int, R: int) -> WorkingSet:
        """From (k,) indices, in their order."""
        slot, where = (torch.full((size,), -1, dtype=torch.int32, device=M.device) for size in (len(M), n + R))
        slot[: len(indices)] = indices.int()
        where[indices] = torch.arange(len(indices), dtype=torch.int32, device=M.device)
        return cls(slot, where[:n], where[n:], M, free)


@dataclass(frozen=True)
class _Start:
    """Constraints in the kernel's form; a leading dimension is 1 where all samples share them.

    Attributes:
        n: variables of the kernel's programs.
        J, limit: (B or 1, R, n) and (B or 1, R) rows, equalities first; lower, upper: (B or 1, n) bounds.
        equalities: how many of the rows are equalities.
        elastic: whether the last variable is the share of a violation that is left.
    """

    elastic: ClassVar[bool] = False
    n: int
    J: Tensor
    limit: Tensor
    lower: Tensor
    upper: Tensor
    equalities: int

    @cached_property
    def rows(self) -> tuple[Tensor, Tensor]:
        """(B or 1, n, R) Jᵀ, and (B or 1, R) the largest entry of each row."""
        size = self.J.abs().amax(2) if self.J.shape[1] else self.J[:, :, 0]
        return self.J.mT.contiguous(), size

    def curvature(self, H: Tensor, qp: QuadraticProgram) -> Tensor:
        """(B or 1, n, n), or (B or 1, n) where it is diagonal, of the kernel's programs."""
        return H

    def costs(self, costs: Tensor, qp: QuadraticProgram) -> Tensor:
        """(K, B, n) of the kernel's programs."""
        return costs

    def errors(self, e: Tensor) -> Tensor:
        """(B, n) to be projected in the kernel's programs."""
        return e

    def arrived(self, x: Tensor, place: Tensor) -> Tensor:
        """(K, B) bool: solutions (K, B, n) satisfy the constraints, as all points on the way do."""
        return torch.ones_like(place[..., 0], dtype=torch.bool)


@dataclass(frozen=True)
class VertexStart(_Start):
    """Constraints that all samples share, and a feasible vertex.

    Attributes:
        x, place: (1, n) the vertex, and int32 where its variables are.
        free, held: (k,) int64, its free variables and held rows; inverse: (k, k) of these columns of these rows.
    """

    x: Tensor
    place: Tensor
    free: Tensor
    held: Tensor
    inverse: Tensor

    @classmethod
    def of(cls, qp: QuadraticProgram, start: States) -> VertexStart:
        """From the vertex that the compiled method has found."""
        n, device, place = qp.n, qp.c.device, start.place[0]
        free = [int(v) for v in start.basis[0] if v < n]
        held = [i for i in range(qp.p + qp.m) if place[n + i] != BASIC]
        where = {BASIC: MOVABLE, UPPER: AT_UPPER, FREE: UNBOUNDED}
        J = torch.cat([qp.A, qp.G], 1).contiguous()
        columns, rows = (torch.tensor(index, dtype=torch.long, device=device) for index in (free, held))
        return cls(
            n=n,
            J=J,
            limit=torch.cat([qp.b, qp.h], 1).contiguous(),
            lower=qp.lb.contiguous(),
            upper=qp.ub.contiguous(),
            equalities=qp.p,
            x=torch.from_numpy(start.x[:1, :n].copy()).to(device),
            place=torch.tensor([[where.get(int(v), AT_LOWER) for v in place[:n]]], dtype=torch.int32, device=device),
            free=columns,
            held=rows,
            inverse=torch.linalg.inv(J[0][rows][:, columns]),
        )

    def working_set(self, slots: int) -> WorkingSet:
        """The working set of the vertex."""
        k = len(self.free)
        M = self.inverse.new_zeros(slots, slots)
        M[:k, k : 2 * k] = self.inverse
        M[k : 2 * k, :k] = self.inverse.mT
        return WorkingSet.of(torch.cat([self.free, self.n + self.held]), M, k, self.n, self.J.shape[1])


@dataclass(frozen=True)
class ElasticStart(_Start):
    """Constraints of each sample's own, and one more variable: the share t of the violation at the start that is left.

    With x⁰ at the bounds and v = Jx⁰ − limit where that violates a row, (x⁰, 1) satisfies Jx − vt ≤ limit, 0 ≤ t ≤ 1,
    and t costs more than any decision does. Once it is zero the kernel leaves it there.
    There are n + 1 variables, and the working set is t alone.

    Attributes:
        x, place: (B, n) the point, and int32 where its variables are.
        distance: (B,) how far the rows are from x⁰, at most.
    """

    elastic: ClassVar[bool] = True
    x: Tensor
    place: Tensor
    distance: Tensor

    @classmethod
    def of(cls, qp: QuadraticProgram) -> ElasticStart:
        """From the programs alone."""
        B, device = max(getattr(qp, name).shape[0] for name in ("A", "b", "G", "h", "lb", "ub")), qp.c.device

        def each(value: Tensor) -> Tensor:
            return value.expand(B, *value.shape[1:])

        J = torch.cat([each(qp.A), each(qp.G)], 1)
        limit = torch.cat([each(qp.b), each(qp.h)], 1)
        lower, upper = each(qp.lb), each(qp.ub)
        at_upper = upper.abs() < lower.abs()
        unbounded = lower.isinf() & upper.isinf()
        x = torch.where(unbounded, 0.0, torch.where(at_upper, upper, lower))
        place = torch.where(at_upper, AT_UPPER, AT_LOWER).to(torch.int32)
        place = torch.where(unbounded, UNBOUNDED, place)
        violation = matvec(J, x) - limit
        violation = torch.where(torch.arange(limit.shape[1], device=device) < qp.p, violation, violation.clamp(min=0))
        norm = row_squares(J).sqrt()
        far = torch.where(norm > 0, violation.abs() / norm, 0.0)
        zero, one = x.new_zeros(B, 1), x.new_ones(B, 1)
        return cls(
            n=qp.n + 1,
            J=torch.cat([J, -violation[:, :, None]], 2),
            limit=limit.contiguous(),
            lower=torch.cat([lower, zero], 1),
            upper=torch.cat([upper, one], 1),
            equalities=qp.p,
            x=torch.cat([x, one], 1),
            place=torch.cat([place, torch.zeros(B, 1, dtype=torch.int32, device=device)], 1),
            distance=far.amax(1) if far.shape[1] else zero[:, 0],
        )

    def working_set(self, slots: int) -> WorkingSet:
        """That of t."""
        last = torch.tensor([self.n - 1], device=self.x.device)
        return WorkingSet.of(last, self.x.new_zeros(slots, slots), 0, self.n, self.J.shape[1])

    def curvature(self, H: Tensor, qp: QuadraticProgram) -> Tensor:
        """(B, n, n), or (B, n) where it is diagonal, with that of t, which takes it to zero in one step."""
        corner = self._price(qp.c[None], qp)
        if qp.diagonal:
            return torch.cat([H.expand(len(corner), -1), corner[:, None]], 1)
        padded = torch.nn.functional.pad(H.expand(len(corner), -1, -1), (0, 1, 0, 1))
        padded[:, -1, -1] = corner
        return padded

    def costs(self, costs: Tensor, qp: QuadraticProgram) -> Tensor:
        """(K, B, n) with the cost of t, which the first has to bring to zero."""
        price = torch.zeros_like(costs[..., 0])
        price[0] = self._price(costs, qp)
        return torch.cat([costs, price[..., None]], 2)

    def errors(self, e: Tensor) -> Tensor:
        """(B, n) with a zero for t, which is held."""
        return torch.nn.functional.pad(e, (0, 1))

    def arrived(self, x: Tensor, place: Tensor) -> Tensor:
        """(K, B) bool: nothing of the violation is left."""
        return (place[..., -1] == AT_LOWER) & (x[..., -1] == 0)

    def _price(self, costs: Tensor, qp: QuadraticProgram) -> Tensor:
        """(B,) what ending the violation costs, at a guess, and some more."""
        slope = costs[0].abs() + matvec(qp.H, self.x[:, :-1].expand(len(costs[0]), -1)).abs()
        price = _DEAR * slope.sum(1) * self.distance
        return torch.where(price > 0, price, 1.0)


def stride(values: Tensor) -> int:
    """Numbers between the samples; 0 where there is one for all."""
    return 0 if values.shape[0] == 1 else values[0].numel()
