"""``LastCall``: decisions and statistics of the last call of a loss."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from pear.decisions.batch_regrets import RegretDecider
from pear.decisions.solution import describe_statuses, worst_residual
from pear.sensitivity.verified_solutions import VerifiedSolutions
from pear.solvers.fused import RegretCall, Regrets


@dataclass(repr=False)
class LastCall:
    """Decisions and statistics of the last call of a loss.

    Attributes:
        decision: (B, n) decisions taken under the predicted costs, in float64; zero where a sample failed.
        regret: (B,) regret of each sample; zero where it was masked.
        reuse_rate: share of samples whose warm start passed the check, so that no solver was called; zero on a GPU for
            problems that its kernel solves, which is faster than a check.
        kkt_residual: (B,) as in ``pear.solve``.
    """

    decision: Tensor
    regret: Tensor
    reuse_rate: float
    kkt_residual: Tensor
    _parts: Regrets
    _wanted: bool
    _call: RegretCall
    _decider: RegretDecider

    def __repr__(self) -> str:
        facts = {"mean regret": f"{float(self.regret.mean()):.4g}"} if len(self.regret) else {}
        facts |= worst_residual(self.kkt_residual) | {"reuse_rate": f"{self.reuse_rate:.2f}"}
        told = "".join(f"; {name} {fact}" for name, fact in facts.items())
        return f"LastCall({describe_statuses(self.status, self.decision.shape[1])}{told})"

    def __getstate__(self) -> dict[str, Any]:
        """The fields, without the properties that are computed on demand."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @cached_property
    def status(self) -> Tensor:
        """(B,) int8 of ``pear.Status``: the failure of the predicted problem, or else of the true one."""
        return torch.where(self._parts.status == 0, self._parts.true_status, self._parts.status)

    @property
    def repaired_rate(self) -> float:
        """Share of samples whose solver's active set was wrong and was exchanged."""
        return float(self._parts.repaired.sum()) / max(len(self.regret), 1)

    @property
    def zero_gradient_rate(self) -> float:
        """Share of samples whose gradient is exactly zero; NaN where no gradient was asked for."""
        zero = float((self._parts.exact == 0).all(1).sum()) if self._wanted else math.nan
        return zero / max(len(self.regret), 1)

    @cached_property
    def _verified(self) -> VerifiedSolutions:
        return self._decider.verify(self._call)

    @property
    def weakly_active(self) -> Tensor:
        """(B,) number of weakly active constraints; computed when asked for."""
        return self._verified.weak.count()

    @property
    def tangent_dim(self) -> Tensor:
        """(B,) dimension of each sample's tangent space; computed when asked for."""
        return self._verified.systems.tangent_dim()
