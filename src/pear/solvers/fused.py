"""Fused passes: decisions, regrets and gradients of a whole batch from one call of a solver.

A solver that can solve, verify and project a dense batch without coming back to the pipeline offers a ``FusedPass``
through its row of the registry. The results are what the pipeline would give, or the pass leaves the sample to it.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from pear.optimality.duals_and_active_sets import TensorRecord
from pear.optimality.rule import NEGLIGIBLE
from pear.solvers.base import Projector


class RegretCall(NamedTuple):
    """The detached inputs of one call of a regret.

    Attributes:
        predicted, true: (B, n) costs, or (B, k) values of a model that predicts right-hand sides.
        smoothing: λ; injection: β; guidance: α.
        keys: sample ids, or None.
        Q, true_Q: predicted curvature and the one of the true objective, or None.
        shares_curvature: True where the true objective has the predicted curvature.
        rows: without keys, the samples' row numbers in the problem; None where the call covers all of its rows.
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
        """The call for some of its samples; fields that the samples share stay shared."""
        keys = None if self.keys is None else [self.keys[i] for i in index.tolist()]
        Q, true_Q = (v[index] if isinstance(v, Tensor) and v.dim() == 3 else v for v in (self.Q, self.true_Q))
        predicted, true = self.predicted[index], self.true[index]
        return self._replace(predicted=predicted, true=true, keys=keys, rows=index, Q=Q, true_Q=true_Q)


@dataclass(frozen=True)
class Regrets(TensorRecord):
    """Regrets of a batch and their gradients.

    Attributes:
        value: (B,) regrets.
        exact, injected: (B, n) gradients by the predicted cost, without and with the normal component.
        x, best: (B, n) decisions under the predicted and under the true costs.
        status, true_status: (B,) int8 of ``Status``, of the two problems.
        kkt_residual: (B,) of the predicted problem.
        reused: (B,) bool, where the warm start is still optimal.
        repaired: (B,) bool, where a candidate's active set was wrong.
        extra: (B,) what guidance and violations add to ``value`` where right-hand sides are predicted, and
        gradient: (B, k) the gradient of value + extra by the predicted values; both None where costs are predicted,
            because guidance then follows from the two decisions.
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
        """The regrets of samples with these statuses (B,): zeros for everything in their n variables."""
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


@dataclass(frozen=True)
class FusedDecisions:
    """Decisions of a batch that a fused pass has solved completely.

    Attributes:
        x: (B, n) decisions.
        projector: projects at them.
        doubtful: True where some decision may not be unique; then the pass gives no derivative.
        proven: True where the projector is known to converge, so that its flags need not be read.
    """

    x: Tensor
    projector: Projector
    doubtful: bool
    proven: bool = False

    def project(self, error: Tensor) -> Tensor | None:
        """(B, n) P·error at the decisions; None where some of them needs the reduced systems."""
        if self.doubtful:
            return None
        g, converged = self.projector.project(error)
        return g if self.proven or bool(converged.all()) else None


class FusedPass(Protocol):
    """Solves, verifies and projects batch after batch of one problem."""

    def decide(
        self, cost: Tensor, smoothing: float, keys: list[Hashable] | None, fields: dict[str, Any]
    ) -> FusedDecisions | None:
        """Decide for a batch; None where the pipeline has to.

        Args:
            cost: (B, n).
            smoothing: λ.
            keys: sample ids, or None.
            fields: what replaces the problem's fields in this call.
        """
        ...

    def regret(self, call: RegretCall) -> tuple[Regrets, Tensor] | None:
        """Regrets and gradients of a batch, and the (k,) samples left to the pipeline; None where it takes them all."""
        ...

    def restore(self) -> None:
        """Check and take over the rows that a saved store holds for this pass, if any.

        Raises:
            DataError: they do not belong to the problem.
        """
        ...


def add_normal(rescaled: Tensor, g: Tensor, strength: float) -> Tensor:
    """g + β (‖g‖/‖n‖) n with the normal component n = H⁻¹e − g; nothing is added where n = 0.

    Args:
        rescaled: (B, n) H⁻¹e, for the error e of the objective's gradient.
        g: (B, n) projection of e.
        strength: β ≥ 0.
    """
    n = rescaled - g
    size_n, size_g = (torch.linalg.vector_norm(v, dim=1, keepdim=True) for v in (n, g))
    real = size_n > NEGLIGIBLE * torch.linalg.vector_norm(rescaled, dim=1, keepdim=True)
    return torch.addcmul(g, torch.where(real, strength * size_g / size_n, 0.0), n)
