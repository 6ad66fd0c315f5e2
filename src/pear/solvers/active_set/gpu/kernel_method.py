"""The base class of the primal and the dual method on a GPU."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

from torch import Tensor

from pear.problem.quadratic_program import QuadraticProgram
from pear.solvers.active_set.gpu.kernel_solution import KernelSolution


@dataclass(frozen=True, eq=False)
class KernelMethod(ABC):
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
        """About how many numbers a launch works on, for each sample."""

    @abstractmethod
    def solve(self, qp: QuadraticProgram, costs: Tensor, curvature: Any = None) -> KernelSolution:
        """Solve the programs for K costs each; return the K·B solutions in this order.

        Args:
            qp: the programs; the first of the costs is theirs.
            costs: (K, B, n) costs.
            curvature: what the method computes from H alone, where the caller has it, else None.
        """

    def wider(self) -> KernelMethod | None:
        """Return the method with the next larger room; None where there is none."""
        more = next((room for room in self.rooms if room > self.room), None)
        return None if more is None else replace(self, room=more)


def stride(values: Tensor) -> int:
    """Return the number of entries between two samples; 0 where all samples share one row."""
    return 0 if values.shape[0] == 1 else values[0].numel()
