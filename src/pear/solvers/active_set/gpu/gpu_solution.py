"""``GPUSolution``: the solutions that a kernel has found. This module also defines the codes that kernels write.

The codes are numbers in int32 tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pear.problem.quadratic_program import QuadraticProgram

if TYPE_CHECKING:
    from pear.solvers.active_set.gpu.gpu_method import GPUMethod

PLACES = FREE, AT_LOWER, AT_UPPER, NOWHERE, UNBOUNDED = range(5)
"""Where a variable is.

A FREE variable can move. AT_LOWER and AT_UPPER variables are held at a bound. NOWHERE is padding. An UNBOUNDED variable
has no bounds and has not yet been made free.
"""

OUTCOMES = RUNNING, OPTIMAL, NO_ROOM, SINGULAR, INFEASIBLE = range(5)
"""How the search of a sample ended.

RUNNING: the search did not end. OPTIMAL: it reached an optimum. NO_ROOM: the working set became larger than its room.
SINGULAR: the objective has no curvature along a direction that had to be followed. INFEASIBLE: a constraint cannot be
satisfied together with those that are held.
"""

_BY_POINT = ("x", "curvature", "y", "lower", "upper", "rows", "optimal", "no_room", "singular")


@dataclass(frozen=True)
class GPUSolution:
    """Solutions of a batch, refined up to rounding, and a way to project errors at them.

    Attributes:
        qp: the programs.
        x, curvature: (B, n) solutions and Hx.
        y: (B, R) multipliers of all R rows, zero if a row is not held.
        lower, upper: (B, n) bool, variables held at a bound.
        rows: (B, m) bool, inequalities that are held.
        optimal: (B,) bool, True if the kernel reports an optimum.
        no_room: (B,) bool, True if the working set became larger than its room.
        singular: (B,) bool, True if the search had to follow a direction along which the objective has no curvature.
        method: the method that found the solutions.
        kept: tensors of the kernel that the projection reads.
        projection: a function of errors (B, n) and the tensors of ``kept``; see ``project``.
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
        """Make the solutions from the arrays that a kernel has written for K costs of B programs.

        Args:
            qp: the programs.
            point: solutions, Hx, multipliers of all rows, and int32 codes of the places of variables. The first, second
                and fourth have shape (K, B, n), or more columns, which are cut off; the third has shape (K, B, R).
            rows: (K, B, m) int32, −1 if an inequality is not held.
            status: (K, B) int32 outcomes.
            **more: the fields ``method``, ``kept`` and ``projection``.

        Returns:
            K·B solutions, those for the first cost first.
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
        """Project errors e (B, n), as ``CandidateProjector.project`` does.

        After a solve for several costs, projections are possible only at the solutions for the first cost.
        """
        return self.projection(e, *self.kept)

    def joined(self, other: GPUSolution) -> GPUSolution:
        """Return the solutions of this batch, then those of ``other``.

        The method ``project`` of the result projects at the solutions of this batch alone.
        """
        both: dict[str, Any] = {name: torch.cat([getattr(self, name), getattr(other, name)]) for name in _BY_POINT}
        return replace(self, **both)

    def copied(self) -> GPUSolution:
        """Return a copy whose projection reads memory of its own. The other tensors are shared."""
        return replace(self, kept=tuple(part.clone() for part in self.kept))
