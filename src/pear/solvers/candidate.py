"""The records that pass between the pipeline and a solver: a start goes in, a candidate comes out.

A solver has two phases. ``prepare(qp)``, where the solver's module has one, computes what depends on the constraints
alone, once per problem. ``solve(qp, tol, …)`` then proposes a point for every cost. It uses a start where it can. A
candidate is never trusted: the pipeline verifies and repairs it. A solver declares further capabilities in its row of
the registry, or by optional fields of its candidate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from pear.optimality.duals_and_active_sets import ActiveSet, Duals
from pear.optimality.status import Status
from pear.optimality.tensor_record import TensorRecord


class CandidateProjector(Protocol):
    """Projects vectors at the points of a candidate, with the state that the solver left there."""

    def project(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """Project errors with the working sets held.

        Args:
            e: (B, n) errors, one per sample.

        Returns:
            (B, n) the projections P e, and (B,) bool, True where the refinement of the projection converged.
        """
        ...


@dataclass(frozen=True)
class PartCandidateProjector:
    """Projects only some samples of a batch.

    The other samples get zeros and are marked as not converged.

    Attributes:
        index: (k,) positions of the samples that can be projected.
        projector: the projector of these k samples.
    """

    index: Tensor
    projector: CandidateProjector

    def project(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """Project errors (B, n); return P e (B, n), and (B,) bool, True where the refinement converged."""
        g, converged = torch.zeros_like(e), torch.zeros(len(e), dtype=torch.bool, device=e.device)
        g[self.index], converged[self.index] = self.projector.project(e[self.index])
        return g, converged


@dataclass(frozen=True)
class Start(TensorRecord):
    """Warm starts: the solutions of an earlier call. They are verified before they are used.

    Attributes:
        x: (B, n) primal points.
        duals: their multipliers.
        working: the constraints that were held in the earlier solution.
        has_start: (B,) bool, True where the sample has a start. Other rows have no meaning.
    """

    x: Tensor
    duals: Duals
    working: ActiveSet
    has_start: Tensor


@dataclass(frozen=True)
class Candidate(TensorRecord):
    """Approximate primal-dual points that a solver proposes, to be verified and repaired.

    Attributes:
        x: (B, n) primal points.
        duals: multipliers in the sign convention of ``Duals``; zeros where the solver has none (integer problems).
        status: (B,) int8 codes of ``Status`` that the solver claims. A sample that is INACCURATE still has its best
            point.
        bound: (B,) proven lower bounds of the minimised objective of integer programs; None for continuous programs.
        working: the constraints that the points were computed with; None where the solver does not know them.
        guess: the solver's guess of the active set; None where the pipeline is to guess it from the point.
        verified: True where status SOLVED already means that ``pear.optimality`` has checked every condition.
        exhausted: True where the solver cannot reach a higher accuracy.
        projector: projects errors at these points; None where the solver cannot.
        resume: state from which the solver continues when a higher accuracy is requested; None where it has none.
    """

    x: Tensor
    duals: Duals
    status: Tensor
    bound: Tensor | None = None
    working: ActiveSet | None = None
    guess: ActiveSet | None = None
    verified: bool = False
    exhausted: bool = False
    projector: CandidateProjector | None = None
    resume: Any = None


def empty_candidate(batch: int, n: int, p: int, m: int, like: Tensor) -> Candidate:
    """Make a candidate of NaNs with status INACCURATE, for a solver to fill in.

    Args:
        batch: the number of samples.
        n, p, m: the numbers of variables, equalities and inequalities.
        like: a tensor on the device of the result.
    """

    def nan(size: int) -> Tensor:
        return torch.full((batch, size), float("nan"), dtype=torch.float64, device=like.device)

    status = torch.full((batch,), int(Status.INACCURATE), dtype=torch.int8, device=like.device)
    return Candidate(nan(n), Duals(nan(p), nan(m), nan(n)), status)
