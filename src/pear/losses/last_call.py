"""``LastCall``: the decisions and statistics of the last call of a ``PEARLoss``."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from pear.decisions.regret_finder import RegretFinder
from pear.decisions.solution import describe_solution_statuses, worst_solution_residual
from pear.sensitivity.verified_solutions import VerifiedSolutions
from pear.solvers.regret_call import RegretCall, RegretCallResults


@dataclass(repr=False)
class LastCall:
    """The decisions and statistics of the last call of a loss. All tensors are on the device that computed them.

    Attributes:
        decision: (B, n) decisions under the predicted costs, in float64; zero for failed samples.
        regret: (B,) regret of each sample; zero for failed samples.
        reuse_rate: the share of samples whose warm start passed the check, so that no solver was called. It is zero for
            problems that a GPU kernel solves, because solving again is faster than checking.
        kkt_residual: (B,) the KKT residuals of the decisions, as in ``pear.Solution``.
    """

    decision: Tensor
    regret: Tensor
    reuse_rate: float
    kkt_residual: Tensor
    _parts: RegretCallResults
    _wanted: bool
    _call: RegretCall
    _finder: RegretFinder

    def __repr__(self) -> str:
        facts = {"mean regret": f"{float(self.regret.mean()):.4g}"} if len(self.regret) else {}
        facts |= worst_solution_residual(self.kkt_residual) | {"reuse_rate": f"{self.reuse_rate:.2f}"}
        text = "".join(f"; {name} {fact}" for name, fact in facts.items())
        return f"LastCall({describe_solution_statuses(self.status, self.decision.shape[1])}{text})"

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields without the cached properties."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @cached_property
    def status(self) -> Tensor:
        """The status of each sample, (B,) int8.

        It is the status under the predicted costs, or, if that is SOLVED, the status under the true costs.
        """
        return torch.where(self._parts.status == 0, self._parts.true_status, self._parts.status)

    @property
    def repaired_rate(self) -> float:
        """The share of samples for which the solver's active set was wrong and was corrected."""
        return float(self._parts.repaired.sum()) / max(len(self.regret), 1)

    @property
    def zero_gradient_rate(self) -> float:
        """The share of samples whose gradient of the regret is exactly zero; NaN if no gradient was computed."""
        zero = float((self._parts.exact == 0).all(1).sum()) if self._wanted else math.nan
        return zero / max(len(self.regret), 1)

    @cached_property
    def _verified(self) -> VerifiedSolutions:
        """The verified solutions under the predicted costs. The pipeline solves the programs again on first use."""
        return self._finder.solve_again(self._call)

    @property
    def weakly_active(self) -> Tensor:
        """The number of constraints that are weakly active at each sample's decision, (B,); computed on first use."""
        return self._verified.weak.count()

    @property
    def tangent_dim(self) -> Tensor:
        """The dimension of the tangent space of the active constraints, (B,), per sample; computed on first use."""
        return self._verified.systems.tangent_dim()
