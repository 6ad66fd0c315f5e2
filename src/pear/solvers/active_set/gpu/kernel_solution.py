"""Solutions of a batch as an active-set kernel leaves them on the GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from pear.problem.quadratic_program import QuadraticProgram
from pear.solvers.active_set.gpu.kernel_codes import AT_LOWER, AT_UPPER, NO_ROOM, OPTIMAL, SINGULAR

_BY_POINT = ("x", "curvature", "y", "lower", "upper", "rows", "optimal", "no_room", "singular")


@dataclass(frozen=True)
class KernelSolution:
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
    kept: tuple[Tensor, ...]
    projection: Callable[..., tuple[Tensor, Tensor]]

    @classmethod
    def of(
        cls, qp: QuadraticProgram, point: tuple[Tensor, ...], rows: Tensor, status: Tensor, **more: Any
    ) -> KernelSolution:
        """Flatten the arrays that a kernel has written for K costs of B programs.

        Args:
            qp: the programs.
            point: solutions, Hx, multipliers of all rows, and int32 codes of the places of variables. The first, second
                and fourth have shape (K, B, n), or more columns, which are cut off; the third has shape (K, B, R).
            rows: (K, B, m) int32, −1 where an inequality is not held.
            status: (K, B) int32 outcomes.
            more: ``kept`` and ``projection``.
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

        Of the solutions for several costs only those for the first cost can be projected at.

        Args:
            e: (B, n) errors.

        Returns:
            (B, n) P e, refined to rounding, and (B,) bool, where the refinement converged.
        """
        return self.projection(e, *self.kept)

    def joined(self, other: KernelSolution) -> KernelSolution:
        """These solutions followed by those of another batch. Only these can be projected at."""
        both: dict[str, Any] = {name: torch.cat([getattr(self, name), getattr(other, name)]) for name in _BY_POINT}
        return replace(self, **both)

    def copied(self) -> KernelSolution:
        """The same solutions, with a copy of the tensors that projections read."""
        return replace(self, kept=tuple(part.clone() for part in self.kept))
