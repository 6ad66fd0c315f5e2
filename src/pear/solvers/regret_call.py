"""The inputs and the results of one call that computes the regrets of a batch."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pear.optimality.tensor_record import TensorRecord


class RegretCall(NamedTuple):
    """The inputs of one call that computes the regrets of a batch. All tensors are detached from their graphs.

    Attributes:
        predicted, true: (B, n) costs; for a model with a constraint map, (B, k) inputs of its maps.
        smoothing: the coefficient λ of the quadratic smoothing term.
        injection: the strength β of the normal component of the gradient.
        guidance: the weight α of the guidance term of the loss.
        keys: sample keys; None if the samples have none.
        Q: the predicted curvature; None if it is not predicted.
        true_Q: the curvature of the true objective; None if it is the curvature of the problem.
        shares_curvature: True if the true objective has the predicted curvature.
        rows: (B,) the row of each sample in those fields of the problem that differ by sample; None if sample i has row
            i. Samples with keys do not need it: if some field differs by sample, the keys are the row numbers.
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
        """Return a call with only the samples at the positions ``index``. Fields that all samples share stay shared."""
        keys = None if self.keys is None else [self.keys[i] for i in index.tolist()]
        Q, true_Q = (v[index] if isinstance(v, Tensor) and v.dim() == 3 else v for v in (self.Q, self.true_Q))
        predicted, true = self.predicted[index], self.true[index]
        return self._replace(predicted=predicted, true=true, keys=keys, rows=index, Q=Q, true_Q=true_Q)


@dataclass
class RegretCallResults(TensorRecord):
    """The results of a ``RegretCall``: the regrets of a batch and their gradients.

    Attributes:
        value: (B,) regrets.
        exact: (B, n) gradients with respect to the predicted costs, without the normal component.
        injected: (B, n) gradients with respect to the predicted costs, with the normal component.
        x: (B, n) decisions under the predicted costs.
        best: (B, n) decisions under the true costs.
        status: (B,) int8 codes of ``Status`` of the problems with predicted costs.
        true_status: (B,) int8 codes of ``Status`` of the problems with true costs.
        kkt_residual: (B,) KKT residuals of the problems with predicted costs.
        reused: (B,) bool, True if the warm start was still optimal and no solver was called.
        repaired: (B,) bool, True if the active set of a candidate was wrong and has been corrected.
        extra: (B,) penalties that guidance and violations add to ``value``, for a model with a constraint map. None for
            other calls, where guidance follows from ``x`` and ``best``.
        gradient: (B, k) gradients of value + extra with respect to the predicted inputs of the maps, for a model with a
            constraint map; None for other calls.
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
        """Make the results of failed samples: the KKT residuals are NaN, and regrets, gradients and decisions are zero.

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
