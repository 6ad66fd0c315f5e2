"""The inputs and the results of one call of a regret."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pear.optimality.tensor_record import TensorRecord


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
class RegretCallResults(TensorRecord):
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
    def of_failures(cls, status: Tensor, true_status: Tensor, n: int) -> RegretCallResults:
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
