"""What comes back from a GPU's active-set kernel."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

from torch import Tensor

from pear.problem.canonical import QuadraticProgram
from pear.solvers.active_set.gpu.start import AT_LOWER, AT_UPPER, CROWDED, OPTIMAL, SINGULAR


class Launch(Protocol):
    """A batch that has gone through a kernel, with what the kernel has left."""

    def project(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """See ``Found.project``."""

    def copied(self) -> Any:
        """The same in memory of its own."""


@dataclass(frozen=True)
class Found:
    """Solutions of a batch, refined to rounding.

    Attributes:
        qp: the programs.
        x, curvature: (B, n) points and Hx; y: (B, R) multipliers of all rows, zero where one is not held.
        lower, upper: (B, n) bool, variables held at a bound; rows: (B, m) bool, inequalities that are held.
        ended: (B,) bool, where the kernel reports an optimum; crowded: (B,) bool, where its working set was too small;
            unsound: (B,) bool, where the way led through a working set without curvature.
    """

    qp: QuadraticProgram
    x: Tensor
    curvature: Tensor
    y: Tensor
    lower: Tensor
    upper: Tensor
    rows: Tensor
    ended: Tensor
    crowded: Tensor
    unsound: Tensor
    _launch: Launch

    @classmethod
    def of(cls, launch: Launch, qp: QuadraticProgram, point: tuple[Tensor, ...], rows: Tensor, status: Tensor) -> Found:
        """From what a kernel has written.

        Args:
            launch: what projects.
            qp: the programs.
            point: solutions, Hx, multipliers of all rows, and int32 where variables are: (K, B, n), some with more
                after that, and (K, B, R).
            rows: (K, B, m) int32, −1 where an inequality is not held.
            status: (K, B) int32.
        """
        x, curvature, y, place = (part.flatten(0, 1) for part in point)
        place, one = place[:, : qp.n], status.flatten()
        return cls(
            qp=qp,
            x=x[:, : qp.n],
            curvature=curvature[:, : qp.n],
            y=y,
            lower=place == AT_LOWER,
            upper=place == AT_UPPER,
            rows=rows.flatten(0, 1) >= 0,
            ended=one == OPTIMAL,
            crowded=one == CROWDED,
            unsound=one == SINGULAR,
            _launch=launch,
        )

    def project(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """``g = P e`` with the working sets held, (B, n), refined to rounding, and (B,) bool where it converged.

        Of the solutions for several costs only the first B can be projected at.
        """
        return self._launch.project(e)

    def copied(self) -> Found:
        """The same with a copy of what projections need."""
        return replace(self, _launch=self._launch.copied())
