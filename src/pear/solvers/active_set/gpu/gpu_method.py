"""What the primal and the dual method on a GPU share: codes of their kernels, solutions, and the base class.

The codes are numbers that kernels and Python code exchange in int32 tensors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from pear.problem.quadratic_program import QuadraticProgram

PLACES = FREE, AT_LOWER, AT_UPPER, NOWHERE, UNBOUNDED = range(5)
"""Where a variable is.

FREE: it can move. AT_LOWER, AT_UPPER: it is held at a bound. NOWHERE: it is padding. UNBOUNDED: it has no bounds and
has not yet been made free.
"""

OUTCOMES = RUNNING, OPTIMAL, NO_ROOM, SINGULAR, INFEASIBLE = range(5)
"""How the search of a sample ended.

RUNNING: it did not end. OPTIMAL: at an optimum. NO_ROOM: the working set became larger than its room. SINGULAR: the
objective has no curvature along a direction that had to be followed. INFEASIBLE: a constraint cannot be satisfied
together with those that are held.
"""

_BY_POINT = ("x", "curvature", "y", "lower", "upper", "rows", "optimal", "no_room", "singular")


@dataclass(frozen=True)
class GPUSolution:
    """Solutions of a batch, refined to rounding, and a way to project at them.

    Attributes:
        qp: the programs.
        x, curvature: (B, n) solutions and Hx.
        y: (B, R) multipliers of all rows, zero where a row is not held.
        lower, upper: (B, n) bool, variables held at a bound.
        rows: (B, m) bool, inequalities that are held.
        optimal: (B,) bool, where the kernel reports an optimum.
        no_room: (B,) bool, where the working set became larger than its room.
        singular: (B,) bool, where the search met a working set without curvature.
        method: the method that found them.
        kept: tensors of the kernel that the projection reads.
        projection: takes errors (B, n) and the tensors of ``kept``; see ``project``.
    """

    qp: QuadraticProgram
    x: Tensor
    curvature: Tensor
    y: Tensor
    lower: Tensor
    upper: Tensor
    rows: Tensor
    optimal: Tensor
    no_room: Tensor
    singular: Tensor
    method: GPUMethod
    kept: tuple[Tensor, ...]
    projection: Callable[..., tuple[Tensor, Tensor]]

    @classmethod
    def of(
        cls, qp: QuadraticProgram, point: tuple[Tensor, ...], rows: Tensor, status: Tensor, **more: Any
    ) -> GPUSolution:
        """Flatten the arrays that a kernel has written for K costs of B programs.

        Args:
            qp: the programs.
            point: solutions, Hx, multipliers of all rows, and int32 codes of the places of variables. The first, second
                and fourth have shape (K, B, n), or more columns, which are cut off; the third has shape (K, B, R).
            rows: (K, B, m) int32, −1 where an inequality is not held.
            status: (K, B) int32 outcomes.
            more: ``method``, ``kept`` and ``projection``.
        """
        x, curvature, y, place = (part.flatten(0, 1) for part in point)
        place, code = place[:, : qp.n], status.flatten()
        return cls(
            qp=qp,
            x=x[:, : qp.n],
            curvature=curvature[:, : qp.n],
            y=y,
            lower=place == AT_LOWER,
            upper=place == AT_UPPER,
            rows=rows.flatten(0, 1) >= 0,
            optimal=code == OPTIMAL,
            no_room=code == NO_ROOM,
            singular=code == SINGULAR,
            **more,
        )

    def project(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """Project errors with the working sets held.

        After a solve for several costs, this projects at the solutions for the first cost alone.

        Args:
            e: (B, n) errors.

        Returns:
            (B, n) P e, refined to rounding, and (B,) bool, where the refinement converged.
        """
        return self.projection(e, *self.kept)

    def joined(self, other: GPUSolution) -> GPUSolution:
        """Return these solutions followed by those of another batch. ``project`` still covers this batch alone."""
        both: dict[str, Any] = {name: torch.cat([getattr(self, name), getattr(other, name)]) for name in _BY_POINT}
        return replace(self, **both)

    def copied(self) -> GPUSolution:
        """Copy the tensors that projections read; the other tensors are shared."""
        return replace(self, kept=tuple(part.clone() for part in self.kept))


@dataclass(frozen=True, eq=False)
class GPUMethod(ABC):
    """A method together with a problem's constraints in the form that its kernel reads.

    A leading dimension is 1 where all samples share a field.

    Attributes:
        rooms: the values that ``room`` can have, smallest first.
        n: variables of the kernel's programs, which may be more than the decisions.
        J: (B or 1, R, n) rows.
        lower, upper: (B or 1, n or more) bounds.
        room: how large the working set may become.
    """

    rooms: ClassVar[Iterable[int]]
    n: int
    J: Tensor
    lower: Tensor
    upper: Tensor
    room: int

    @property
    def R(self) -> int:
        """Number of rows."""
        return self.J.shape[1]

    @cached_property
    def columns(self) -> Tensor:
        """(B or 1, n, R) Jᵀ."""
        return self.J.mT.contiguous()

    @property
    @abstractmethod
    def numbers(self) -> int:
        """About how many numbers a launch keeps in memory for each sample."""

    @abstractmethod
    def solve(self, qp: QuadraticProgram, costs: Tensor, curvature: Any = None) -> GPUSolution:
        """Solve B programs for K costs each.

        Args:
            qp: the programs, with the first of the costs.
            costs: (K, B, n) costs.
            curvature: what the method computes from H alone, where the caller has it, else None.

        Returns:
            K·B solutions, those for the first cost first.
        """

    def wider(self) -> GPUMethod | None:
        """Return the method with the next larger room for working sets; None where this is the largest."""
        more = next((room for room in self.rooms if room > self.room), None)
        return None if more is None else replace(self, room=more)


def gpu_sample_stride(values: Tensor) -> int:
    """Return the number of entries from one sample of a tensor to the next; 0 where all samples share one entry."""
    return 0 if values.shape[0] == 1 else values[0].numel()
