"""``GPUMethod``: the base class of the primal and of the dual method on a GPU."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

from torch import Tensor

from pear.problem.quadratic_program import QuadraticProgram
from pear.solvers.active_set.gpu.gpu_solution import GPUSolution


@dataclass(frozen=True, eq=False)
class GPUMethod(ABC):
    """A method together with a problem's constraints, in the form that its kernel reads.

    A leading dimension is 1 if all samples share a field.

    Attributes:
        rooms: the values that ``room`` can have, smallest first.
        n: the number of variables of the kernel's programs, which may be more than the decisions.
        J: (B or 1, R, n) the R rows.
        lower, upper: (B or 1, n or more) bounds; the dual method appends the limits of the rows.
        room: how many slots of the working set (primal method) or rank-one terms (dual method) a sample has memory for.
    """

    rooms: ClassVar[Iterable[int]]
    n: int
    J: Tensor
    lower: Tensor
    upper: Tensor
    room: int

    @property
    def R(self) -> int:
        """The number of rows."""
        return self.J.shape[1]

    @cached_property
    def columns(self) -> Tensor:
        """Jᵀ, (B or 1, n, R)."""
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
            costs: (K, B, decisions) costs.
            curvature: what the method computes from H alone, if the caller has it, else None.

        Returns:
            K·B solutions, those for the first cost first.
        """

    def wider(self) -> GPUMethod | None:
        """Return the method with the next larger room for working sets; None if its room is the largest."""
        more = next((room for room in self.rooms if room > self.room), None)
        return None if more is None else replace(self, room=more)

    @staticmethod
    def stride(values: Tensor) -> int:
        """Return the number of elements per sample of a tensor (B or 1, ...); 0 if all samples share its elements."""
        return 0 if values.shape[0] == 1 else values[0].numel()
