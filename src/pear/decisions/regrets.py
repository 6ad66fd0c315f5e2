"""What a pass over a batch is asked, and what it answers, on the CPU and on a GPU."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor

from pear.optimality.point import TensorRecord
from pear.solvers.base import Projector


class RegretCall(NamedTuple):
    """What one call of a regret is given, detached.

    Attributes:
        predicted, true: (B, n) costs.
        smoothing: λ; injection: β; guidance: α.
        keys: of the samples, or None.
        Q, true_Q: predicted curvature and the one of the true objective, or None.
        rows: without keys, the samples' numbers in the problem, or None where they are all there.
        fields: right-hand sides that replace the problem's, where they are predicted.
    """

    predicted: Tensor
    true: Tensor
    smoothing: float
    injection: float
    keys: list[Hashable] | None = None
    Q: Any = None
    true_Q: Any = None
    rows: Tensor | None = None
    guidance: float = 0.0
    fields: dict[str, Tensor] | None = None

    def only(self, index: Tensor) -> RegretCall:
        """Some of the samples; what they share stays shared."""
        keys = None if self.keys is None else [self.keys[i] for i in index.tolist()]
        Q, true_Q = (v[index] if isinstance(v, Tensor) and v.dim() == 3 else v for v in (self.Q, self.true_Q))
        true_Q = Q if self.true_Q is self.Q else true_Q
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


@dataclass(frozen=True)
class Decided:
    """A batch that a pass has solved.

    Attributes:
        x: (B, n) decisions.
        projector: projects at them.
        doubtful: True where some decision may not be unique, so that no derivative is given here.
        proven: True where the projector is known to converge, so that its word need not be waited for.
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
