"""Verified solutions of a batch, with the factorised systems that the gradient needs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from pear.optimality.duals_and_active_sets import ActiveSet, Duals
from pear.optimality.status import Status
from pear.problem.quadratic_program import QuadraticProgram
from pear.sensitivity.reduced_systems import ReducedSystems, reduced_systems
from pear.solvers.candidate import CandidateProjector, Start


@dataclass
class VerifiedSolutions:
    """Solutions of a batch of programs that passed the verification, and the status of samples that did not.

    Attributes:
        qp: the programs, including those that failed.
        x: (B, n) decisions, zero where the sample failed.
        duals: the multipliers.
        active: the constraints that are tight.
        weak: the tight constraints whose multiplier is zero.
        status: (B,) the ``Status`` of each sample.
        kkt_residual: (B,) the largest scaled violation of the optimality conditions.
        repaired: (B,) bool, True where the active set of the solver's point was wrong and was exchanged.
        reused: (B,) bool, True where a warm start passed the check unchanged and no solver was called.
        working: the constraints that x was computed with. At a degenerate vertex these are fewer than the tight ones,
            so that their multipliers have the right signs. The next solve starts from this set.
        projector: the solver's own projector, or None.
        projects: (B,) bool, True where the projector holds exactly the tight constraints.
        kept: the factorised systems on the active sets where they exist already, else None.
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
    projector: CandidateProjector | None
    projects: Tensor
    kept: ReducedSystems | None = None

    @property
    def solved(self) -> Tensor:
        """Whether each sample was solved, (B,) bool."""
        return self.status == Status.SOLVED

    @cached_property
    def systems(self) -> ReducedSystems:
        """The factorised reduced systems on the active sets."""
        return reduced_systems(self.qp, self.active) if self.kept is None else self.kept

    def as_start(self) -> Start:
        """These solutions as a warm start."""
        return Start(self.x, self.duals, self.working, self.solved)
