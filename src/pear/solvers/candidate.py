"""What a solver receives and returns: a start, and a candidate with its projector.

Every solver has a function ``solve(qp, tol, …)``. It proposes a candidate, a point for every sample, and may begin at a
start. If a solver also has a function ``prepare(qp)``, this is called once per problem and computes everything that
depends on the constraints only. The pipeline verifies and repairs the points of a candidate, unless the candidate says
that they have passed the checks already. A solver declares further capabilities in its row of the backend registry.
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
    """An object that projects vectors e at the points of a candidate.

    The projection of e is the H-orthogonal projection of H⁻¹e onto the tangent space of the working set, where H is the
    curvature; see ``pear.sensitivity.projection.project``. The vectors are called errors, because most of them are
    errors of the objective's gradient. A solver keeps factors from its last iteration for this purpose.
    """

    def project(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """Project errors e (B, n).

        Returns:
            (B, n) the projections, and (B,) bool, True if the refinement of the projection has converged.
        """
        ...


@dataclass(frozen=True)
class PartCandidateProjector:
    """A projector for only some samples of a batch.

    All other samples get zeros as projections and are marked as not converged.

    Attributes:
        index: (k,) positions of the samples that can be projected.
        projector: the projector of these k samples.
    """

    index: Tensor
    projector: CandidateProjector

    def project(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """Project errors e (B, n), as ``CandidateProjector.project`` does."""
        g, converged = torch.zeros_like(e), torch.zeros(len(e), dtype=torch.bool, device=e.device)
        g[self.index], converged[self.index] = self.projector.project(e[self.index])
        return g, converged


@dataclass(frozen=True)
class Start(TensorRecord):
    """Warm starts: the solutions of an earlier call, which are verified before they are used.

    Attributes:
        x: (B, n) primal points.
        duals: the multipliers of the points.
        working: the constraints that were held as equalities to compute the earlier solutions.
        has_start: (B,) bool, False for a sample without a start, whose rows in the other fields have no meaning.
    """

    x: Tensor
    duals: Duals
    working: ActiveSet
    has_start: Tensor


@dataclass(frozen=True)
class Candidate(TensorRecord):
    """Approximate primal-dual points that a solver proposes. The pipeline verifies and repairs them.

    Attributes:
        x: (B, n) primal points.
        duals: the multipliers, with the signs of ``Duals``; zeros for integer programs.
        status: (B,) int8 codes of ``Status`` that the solver claims. A sample with the status INACCURATE has the best
            point that the solver has found, or NaN if it has found none.
        bound: (B,) proven lower bounds of the minimised objective of integer programs; None for continuous programs.
        working: the constraints that were held as equalities to compute the points; None if they are not known.
        guess: the active set as the solver guesses it; None to let the pipeline guess it from the point.
        verified: True if the points with the status SOLVED have passed the checks of ``pear.optimality`` already.
        exhausted: True if the solver cannot reach a higher accuracy.
        projector: projects errors at these points; None if the solver has no projector.
        resume: the state from which the solver continues if a higher accuracy is requested; None if it cannot continue.
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
    """Make a candidate with NaN for all numbers and the status INACCURATE, for a solver to fill in.

    Args:
        batch: the number of samples.
        n, p, m: the numbers of variables, equalities and inequalities.
        like: a tensor on the device of the result.
    """

    def nan_tensor(size: int) -> Tensor:
        return torch.full((batch, size), float("nan"), dtype=torch.float64, device=like.device)

    status = torch.full((batch,), int(Status.INACCURATE), dtype=torch.int8, device=like.device)
    return Candidate(nan_tensor(n), Duals(nan_tensor(p), nan_tensor(m), nan_tensor(n)), status)
