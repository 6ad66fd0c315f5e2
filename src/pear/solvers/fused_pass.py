"""Fused passes: solvers that compute decisions, regrets and gradients of a whole batch in one call.

Some solvers can solve, verify and project a dense batch without returning to the pipeline. Such a solver offers a
``FusedPass`` through its row of the backend registry. The results of a pass are those of the pipeline. Samples that the
pass cannot finish are left to the pipeline.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

from torch import Tensor

from pear.optimality.duals_and_active_sets import ActiveSet, Duals
from pear.problem.tensor_conversion import count_true_in_tensor
from pear.solvers.candidate import CandidateProjector
from pear.solvers.regret_call import RegretCall, RegretCallResults


class FusedRowResponse(NamedTuple):
    """The solution of the reduced KKT systems for upstream gradients, from which all derivatives follow.

    Attributes:
        p: (B, n) the projections of the upstream gradients.
        equality: (B, p) the multipliers of the equalities in these systems.
        inequality: (B, m) the multipliers of the inequalities in these systems.
        good: (B,) bool, True for an accurate solution.
    """

    p: Tensor
    equality: Tensor
    inequality: Tensor
    good: Tensor


class FusedRowProjector(CandidateProjector, Protocol):
    """A projector that also computes the multipliers of the rows in the reduced KKT systems."""

    def respond(self, w: Tensor, active: ActiveSet) -> FusedRowResponse | None:
        """Solve the reduced KKT systems for upstream gradients; return None if the projector cannot solve them.

        Args:
            w: (B, n) upstream gradients.
            active: the tight constraints.
        """
        ...


class FusedPassDecisions(NamedTuple):
    """The decisions of a fused pass for a batch.

    Attributes:
        x: (B, n) decisions.
        projector: projects errors at these decisions.
        doubtful: True if some decision of the batch may not be unique. The pass then gives no derivatives.
        proven: True if every projection is known to converge. The convergence flags of the projector are then not read.
        left: (k,) positions of the samples that are left to the pipeline; None if all samples are solved.
        duals: the multipliers; None if the pass does not return them. If it does, the projector is a
            ``FusedRowProjector``.
        active: the tight constraints; None if the pass does not return them.
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
        """True if ``respond`` may return a solution, from which derivatives with respect to constraints follow."""
        return self.duals is not None and not self.doubtful

    def respond(self, w: Tensor) -> FusedRowResponse | None:
        """Solve the reduced KKT systems for upstream gradients w (B, n); return None to leave them to the pipeline."""
        if not self.gives_rows or self.active is None:
            return None
        return cast(FusedRowProjector, self.projector).respond(w, self.active)

    def project(self, error: Tensor) -> Tensor | None:
        """Project errors at the decisions.

        Args:
            error: (B, n) errors.

        Returns:
            (B, n) the projections, with arbitrary rows for the samples in ``left``; None if the pass cannot compute the
            projections, so that the pipeline must.
        """
        if self.doubtful:
            return None
        g, converged = self.projector.project(error)
        if self.left is not None:
            converged[self.left] = True
        return g if self.proven or count_true_in_tensor(converged) == converged.shape[0] else None


class FusedSolutions(NamedTuple):
    """The verified solutions of a fused pass for a batch.

    Attributes:
        x: (B, n) decisions.
        value: (B,) values of the objective, in the sense of the problem: not negated for a maximisation.
        duals: the multipliers.
        active: the tight constraints.
        weak: the tight constraints whose multiplier is zero.
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
    """A fused pass that also returns solutions with their multipliers and active sets."""

    def solve(self, cost: Tensor, smoothing: float) -> FusedSolutions | None:
        """Solve the problem for a batch of costs; return None to leave the batch to the pipeline.

        Args:
            cost: (B, n) costs.
            smoothing: the coefficient λ of the quadratic smoothing term.
        """
        ...


class FusedPass(Protocol):
    """A solver that solves, verifies and projects batches of one problem, each in one call."""

    def decide(
        self, cost: Tensor, smoothing: float, keys: list[Hashable] | None, fields: dict[str, Any]
    ) -> FusedPassDecisions | None:
        """Return the decisions of a batch; None to leave the batch to the pipeline.

        Args:
            cost: (B, n) costs.
            smoothing: the coefficient λ of the quadratic smoothing term.
            keys: sample keys; None if the samples have none.
            fields: values that replace fields of the problem in this call.
        """
        ...

    def regret(self, call: RegretCall) -> tuple[RegretCallResults, Tensor] | None:
        """Compute the regrets and gradients of a batch.

        Returns:
            The results, and (k,) positions of the samples that are left to the pipeline; None to leave the whole batch
            to the pipeline.
        """
        ...

    def restore(self) -> None:
        """Load the rows that a saved store of warm starts holds for this pass, if any, and check them.

        Raises:
            DataError: the saved rows do not belong to the problem.
        """
        ...


@runtime_checkable
class FusedRowPass(Protocol):
    """A fused pass whose decisions also have derivatives with respect to right-hand sides and bounds."""

    def decide_with_rows(
        self, cost: Tensor, smoothing: float, keys: list[Hashable] | None, fields: dict[str, Any]
    ) -> FusedPassDecisions | None:
        """Return the decisions of a batch, with derivatives with respect to right-hand sides and bounds.

        The arguments are those of ``FusedPass.decide``. The result is None if the pipeline has to decide.
        """
        ...
