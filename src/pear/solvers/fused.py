"""Fused passes: decisions, regrets and gradients of a whole batch from one call of a solver.

Some solvers can solve, verify and project a dense batch without returning to the pipeline. Such a solver offers a
``FusedPass`` through its row of the registry. A pass gives the same results as the pipeline. Samples that it cannot
finish are left to the pipeline.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from pear.optimality.duals_and_active_sets import ActiveSet, Duals, TensorRecord
from pear.optimality.rule import NEGLIGIBLE
from pear.solvers.candidate import Projector


class RegretCall(NamedTuple):
    """The detached inputs of one call of a regret.

    Attributes:
        predicted, true: (B, n) costs, or (B, k) values where a model predicts right-hand sides.
        smoothing: λ.
        injection: β.
        guidance: α.
        keys: sample ids, or None.
        Q: predicted curvature, or None.
        true_Q: curvature of the true objective, or None.
        shares_curvature: True where the true objective has the predicted curvature.
        rows: row numbers of the samples in the problem, for calls without keys; None where the call covers all rows.
    """

    predicted: Tensor
    true: Tensor
    smoothing: float
    injection: float
    keys: list[Hashable] | None = None
    Q: Any = None
    true_Q: Any = None
    shares_curvature: bool = False
    rows: Tensor | None = None
    guidance: float = 0.0

    def only(self, index: Tensor) -> RegretCall:
        """Select the samples at ``index`` (k,); fields that all samples share stay shared."""
        keys = None if self.keys is None else [self.keys[i] for i in index.tolist()]
        Q, true_Q = (v[index] if isinstance(v, Tensor) and v.dim() == 3 else v for v in (self.Q, self.true_Q))
        predicted, true = self.predicted[index], self.true[index]
        return self._replace(predicted=predicted, true=true, keys=keys, rows=index, Q=Q, true_Q=true_Q)


@dataclass(frozen=True)
class Regrets(TensorRecord):
    """Regrets of a batch and their gradients.

    Attributes:
        value: (B,) regrets.
        exact: (B, n) gradients with respect to the predicted cost, without the normal component.
        injected: (B, n) the same gradients with the normal component added.
        x: (B, n) decisions under the predicted costs.
        best: (B, n) decisions under the true costs.
        status: (B,) int8 codes of ``Status`` of the problems with predicted costs.
        true_status: (B,) int8 codes of ``Status`` of the problems with true costs.
        kkt_residual: (B,) KKT residuals of the problems with predicted costs.
        reused: (B,) bool, True where the warm start was still optimal and no solver was called.
        repaired: (B,) bool, True where the active set of a candidate was wrong and has been corrected.
        extra: (B,) penalties that guidance and violations add to ``value`` where right-hand sides are predicted. None
            where costs are predicted, because guidance then follows from the two decisions.
        gradient: (B, k) gradient of value + extra with respect to predicted right-hand sides; None where costs are
            predicted.
    """

    value: Tensor
    exact: Tensor
    injected: Tensor
    x: Tensor
    best: Tensor
    status: Tensor
    true_status: Tensor
    kkt_residual: Tensor
    reused: Tensor
    repaired: Tensor
    extra: Tensor | None = None
    gradient: Tensor | None = None

    @classmethod
    def of_failures(cls, status: Tensor, true_status: Tensor, n: int) -> Regrets:
        """Make the regrets of samples that failed: all numbers are zero and the KKT residuals are NaN.

        Args:
            status, true_status: (B,) codes of ``Status`` under the predicted and under the true costs.
            n: the number of variables.
        """
        wide = torch.zeros(len(status), n, dtype=torch.float64, device=status.device)
        never = torch.zeros_like(status, dtype=torch.bool)
        return cls(
            value=wide[:, 0].clone(),
            exact=wide,
            injected=wide.clone(),
            x=wide.clone(),
            best=wide.clone(),
            status=status.clone(),
            true_status=true_status.clone(),
            kkt_residual=torch.full_like(wide[:, 0], torch.nan),
            reused=never,
            repaired=never.clone(),
        )


class RowResponse(NamedTuple):
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
class RowProjector(Projector, Protocol):
    """A projector that also gives the multipliers of the rows."""

    def respond(self, w: Tensor, active: ActiveSet) -> RowResponse | None:
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
    projector: Projector
    doubtful: bool
    proven: bool = False
    left: Tensor | None = None
    duals: Duals | None = None
    active: ActiveSet | None = None

    @property
    def gives_rows(self) -> bool:
        """Whether ``respond`` may give derivatives with respect to constraints."""
        known = self.duals is not None and not self.doubtful
        return known and isinstance(self.projector, RowProjector)

    def respond(self, w: Tensor) -> RowResponse | None:
        """Solve the reduced systems for upstream gradients w (B, n); None where the pipeline has to."""
        if not self.gives_rows or self.active is None:
            return None
        assert isinstance(self.projector, RowProjector)
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
class PassSolutions:
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
class SolvingPass(Protocol):
    """A pass that also returns solutions with their multipliers and active sets."""

    def solve(self, cost: Tensor, smoothing: float) -> PassSolutions | None:
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

    def regret(self, call: RegretCall) -> tuple[Regrets, Tensor] | None:
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
class RowPass(Protocol):
    """A pass whose decisions also have derivatives with respect to right-hand sides and bounds."""

    def decide_with_rows(
        self, cost: Tensor, smoothing: float, keys: list[Hashable] | None, fields: dict[str, Any]
    ) -> FusedDecisions | None:
        """Decide for a batch as ``FusedPass.decide`` does."""
        ...


def solved_status(x: Tensor) -> Tensor:
    """Return the statuses (B,) of decisions (B, n) that are all solved; NumPy is faster than torch on a CPU."""
    if not x.is_cpu:
        return torch.zeros(len(x), dtype=torch.int8, device=x.device)
    return torch.from_numpy(np.zeros(x.shape[0], np.int8))


def add_normal(rescaled: Tensor, g: Tensor, strength: float) -> Tensor:
    """Add the normal component to a projection: g + β (‖g‖/‖n‖) n with n = H⁻¹e − g.

    Nothing is added where n = 0.

    Args:
        rescaled: (B, n) H⁻¹e, where e is the error of the objective's gradient.
        g: (B, n) projection of e.
        strength: β ≥ 0.
    """
    n = rescaled - g
    size_n, size_g = (torch.linalg.vector_norm(v, dim=1, keepdim=True) for v in (n, g))
    real = size_n > NEGLIGIBLE * torch.linalg.vector_norm(rescaled, dim=1, keepdim=True)
    return torch.addcmul(g, torch.where(real, strength * size_g / size_n, 0.0), n)
