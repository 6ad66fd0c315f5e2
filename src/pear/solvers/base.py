"""What passes between the pipeline and a solver: a start in, a candidate out.

A solver has two phases. ``prepare(qp)``, where its module has one, works out what depends on the constraints alone,
once for a problem. ``solve(qp, tol, …)`` then proposes a point for every cost, from a start where it can use one. A
candidate is never trusted: the pipeline verifies and repairs it. Whatever a solver can do beyond that, it says by a
capability in its row of the registry, or by what its candidate carries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from pear.optimality.duals_and_active_sets import ActiveSet, Duals, Status, TensorRecord


class Projector(Protocol):
    """Projects at the points of a candidate with the state that they were computed with."""

    def project(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """P e (B, n) with the working sets held, and (B,) bool where the refinement converged."""
        ...


@dataclass(frozen=True)
class PartProjector:
    """Projects the samples at ``index`` (k,) of a batch; the others get zeros, and are marked as not converged."""

    index: Tensor
    projector: Projector

    def project(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """P e (B, n), and (B,) bool where the refinement converged."""
        g, converged = torch.zeros_like(e), torch.zeros(len(e), dtype=torch.bool, device=e.device)
        g[self.index], converged[self.index] = self.projector.project(e[self.index])
        return g, converged


@dataclass(frozen=True)
class Start(TensorRecord):
    """Points to start from, as they were found the last time; verified before they are used.

    Attributes:
        x: (B, n); duals; working: the constraints that were held.
        has_start: (B,) bool, where there is anything to start from.
    """

    x: Tensor
    duals: Duals
    working: ActiveSet
    has_start: Tensor


@dataclass(frozen=True)
class Candidate(TensorRecord):
    """Approximate primal-dual points, to be verified and repaired.

    Attributes:
        x: (B, n) primal points.
        duals: multipliers in the sign convention of ``Duals``; zeros where the solver has none (integer problems).
        status: (B,) int8 of ``Status``; what the solver believes. INACCURATE still carries its best point.
        bound: (B,) proven lower bounds of the minimised objective, of integer programs; None for continuous ones.
        working: the constraints that the points were computed with, where the solver knows them.
        guess: the constraints that a solver with units of its own takes for active; None leaves it to the rule.
        verified: True where SOLVED is the verdict of ``pear.optimality`` already, on every condition.
        exhausted: True where asking for more accuracy is of no use.
        projector: projects at these very points.
        resume: where the solver goes on from when it is asked for more accuracy.
    """

    x: Tensor
    duals: Duals
    status: Tensor
    bound: Tensor | None = None
    working: ActiveSet | None = None
    guess: ActiveSet | None = None
    verified: bool = False
    exhausted: bool = False
    projector: Projector | None = None
    resume: Any = None


def empty_candidate(batch: int, n: int, p: int, m: int, like: Tensor) -> Candidate:
    """NaNs with status INACCURATE, for a solver to fill in."""

    def nan(size: int) -> Tensor:
        return torch.full((batch, size), float("nan"), dtype=torch.float64, device=like.device)

    status = torch.full((batch,), int(Status.INACCURATE), dtype=torch.int8, device=like.device)
    return Candidate(nan(n), Duals(nan(p), nan(m), nan(n)), status)
