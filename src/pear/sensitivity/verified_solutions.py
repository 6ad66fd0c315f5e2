"""Verified solutions of a batch, with the factorised systems that gradients need."""

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
    """The solutions of the samples that passed the verification, and the status of the samples that failed.

    Attributes:
        qp: the programs of all samples.
        x: (B, n) decisions, zero for failed samples.
        duals: the multipliers.
        active: the constraints that are tight.
        weak: the tight constraints whose multiplier is zero.
        status: (B,) the ``Status`` of each sample.
        kkt_residual: (B,) the largest scaled violation of the optimality conditions; NaN for failed samples.
        repaired: (B,) bool, True if the active set of the solver's point was wrong and was corrected.
        reused: (B,) bool, True if a warm start passed the verification and no solver was called.
        working: the constraints that were held as equalities to compute x. The next solve starts from them. At a
            degenerate vertex they are only some of the tight constraints, so that all multipliers have the right signs.
        projector: the projector of the solver; None if the solver has none.
        projects: (B,) bool, True if the projector holds exactly the tight constraints.
        kept: the factorised systems on the active sets; None if they have not been built.
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
        """Which samples are solved. Shape (B,), bool."""
        return self.status == Status.SOLVED

    @cached_property
    def systems(self) -> ReducedSystems:
        """The factorised reduced systems on the active sets, built when they are first used."""
        return reduced_systems(self.qp, self.active) if self.kept is None else self.kept

    def as_start(self) -> Start:
        """Return these solutions as warm starts."""
        return Start(self.x, self.duals, self.working, self.solved)
