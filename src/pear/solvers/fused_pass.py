"""Fused passes: decisions, regrets and gradients of a whole batch from one call of a solver.

Some solvers can solve, verify and project a dense batch without returning to the pipeline. Such a solver offers a
``FusedPass`` through its row of the registry. A pass gives the same results as the pipeline. Samples that it cannot
finish are left to the pipeline.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

from torch import Tensor

from pear.optimality.duals_and_active_sets import ActiveSet, Duals
from pear.solvers.candidate import CandidateProjector
from pear.solvers.regret_call import RegretCall, RegretCallResults


class FusedRowResponse(NamedTuple):
    """The solution of the reduced systems of the backward pass, from which all derivatives follow.

    Attributes:
        p: (B, n) the projection P w of the upstream gradient.
        equality: (B, p) the multipliers of the equalities.
        inequality: (B, m) those of the inequalities.
        good: (B,) bool, True where they are accurate.
    """

    p: Tensor
    equality: Tensor
    inequality: Tensor
    good: Tensor


@runtime_checkable
class FusedRowProjector(CandidateProjector, Protocol):
    """A projector that also gives the multipliers of the rows."""

    def respond(self, w: Tensor, active: ActiveSet) -> FusedRowResponse | None:
        """Solve the reduced systems of the backward pass; None where the pass cannot.

        Args:
            w: (B, n) upstream gradients.
            active: the tight constraints.
        """
        ...


@dataclass(frozen=True)
class FusedDecisions:
    """Decisions of a batch by a fused pass.

    Attributes:
        x: (B, n) decisions.
        projector: projects errors at these decisions.
        doubtful: True where a decision of the batch may not be unique. The pass then gives no derivatives.
        proven: True where every projection is known to converge, so that its flags need not be read.
        left: (k,) positions of the samples that are left to the pipeline; None where all are solved.
        duals, active: the multipliers and the tight constraints; None where the pass does not give them.
    """

    x: Tensor
    projector: CandidateProjector
    doubtful: bool
    proven: bool = False
    left: Tensor | None = None
    duals: Duals | None = None
    active: ActiveSet | None = None

    @property
    def gives_rows(self) -> bool:
        """Whether ``respond`` may give derivatives with respect to constraints."""
        known = self.duals is not None and not self.doubtful
        return known and isinstance(self.projector, FusedRowProjector)

    def respond(self, w: Tensor) -> FusedRowResponse | None:
        """Solve the reduced systems for upstream gradients w (B, n); None where the pipeline has to."""
        if not self.gives_rows or self.active is None:
            return None
        assert isinstance(self.projector, FusedRowProjector)
        return self.projector.respond(w, self.active)

    def project(self, error: Tensor) -> Tensor | None:
        """Project errors at the decisions.

        Args:
            error: (B, n) errors.

        Returns:
            (B, n) P·error, or None where the pass cannot give the derivatives and the reduced systems are needed. The
            rows of samples in ``left`` are arbitrary.
        """
        if self.doubtful:
            return None
        g, converged = self.projector.project(error)
        if self.left is not None:
            converged[self.left] = True
        return g if self.proven or bool(converged.all()) else None


@dataclass(frozen=True)
class FusedSolutions:
    """Verified solutions of a batch from one call of a solver.

    Attributes:
        x: (B, n) decisions.
        value: (B,) values of the objective, in the problem's own sense.
        duals: their multipliers.
        active: the tight constraints.
        weak: those of them whose multiplier is zero.
        kkt_residual: (B,) KKT residuals.
    """

    x: Tensor
    value: Tensor
    duals: Duals
    active: ActiveSet
    weak: ActiveSet
    kkt_residual: Tensor


@runtime_checkable
class FusedSolvingPass(Protocol):
    """A pass that also returns solutions with their multipliers and active sets."""

    def solve(self, cost: Tensor, smoothing: float) -> FusedSolutions | None:
        """Solve a batch of the problem's own programs; None where the pipeline has to solve it.

        Args:
            cost: (B, n) costs.
            smoothing: λ.
        """
        ...


class FusedPass(Protocol):
    """Solves, verifies and projects many batches of one problem."""

    def decide(
        self, cost: Tensor, smoothing: float, keys: list[Hashable] | None, fields: dict[str, Any]
    ) -> FusedDecisions | None:
        """Decide for a batch; return None where the pass does not apply and the pipeline has to decide.

        Args:
            cost: (B, n) costs.
            smoothing: λ.
            keys: sample ids, or None.
            fields: values that replace fields of the problem in this call.
        """
        ...

    def regret(self, call: RegretCall) -> tuple[RegretCallResults, Tensor] | None:
        """Compute regrets and gradients of a batch.

        Returns:
            The regrets, and (k,) positions of the samples that are left to the pipeline; None where the pass does not
            apply and the pipeline has to compute all of them.
        """
        ...

    def restore(self) -> None:
        """Check and load the rows that a saved store of warm starts holds for this pass, if any.

        Raises:
            DataError: the saved rows do not belong to the problem.
        """
        ...


@runtime_checkable
class FusedRowPass(Protocol):
    """A pass whose decisions also have derivatives with respect to right-hand sides and bounds."""

    def decide_with_rows(
        self, cost: Tensor, smoothing: float, keys: list[Hashable] | None, fields: dict[str, Any]
    ) -> FusedDecisions | None:
        """Decide for a batch as ``FusedPass.decide`` does."""
        ...
