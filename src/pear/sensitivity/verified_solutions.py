"""Verified solutions of a batch, with the factorised systems that the gradient needs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from pear.optimality.duals_and_active_sets import ActiveSet, Duals, Status
from pear.problem.quadratic_program import QuadraticProgram
from pear.sensitivity.reduced_systems import ReducedSystems, reduced_systems
from pear.solvers.base import Projector, Start


@dataclass
class VerifiedSolutions:
    """Exact solutions of a batch of programs.

    Attributes:
        qp: the programs; rows that failed are still in it.
        x, duals, active, weak, status, kkt_residual, repaired: as in ``Solution``; failed rows of x are zero here.
        reused: (B,) bool, True where a warm start passed the check unchanged and no solver was called.
        working: the constraints that x was computed with. At a degenerate vertex these are fewer than the tight ones,
            so that their multipliers have the right signs. The next solve starts from this set.
        projector: the solver's own projector, or None.
        projects: (B,) bool, the samples for which the projector holds exactly the tight constraints.
        kept: the factorised systems on the active sets, where they exist already.
    """

    qp: QuadraticProgram
    x: Tensor
    duals: Duals
    active: ActiveSet
    weak: ActiveSet
    status: Tensor
    kkt_residual: Tensor
    repaired: Tensor
    reused: Tensor
    working: ActiveSet
    projector: Projector | None
    projects: Tensor
    kept: ReducedSystems | None = None

    @property
    def solved(self) -> Tensor:
        """(B,) bool."""
        return self.status == Status.SOLVED

    @cached_property
    def systems(self) -> ReducedSystems:
        """The factorised reduced systems on the active sets."""
        return reduced_systems(self.qp, self.active) if self.kept is None else self.kept

    def as_start(self) -> Start:
        """These solutions as a warm start."""
        return Start(self.x, self.duals, self.working, self.solved)
