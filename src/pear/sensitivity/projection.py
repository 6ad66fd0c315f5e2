"""The gradient of regret: the projection of the cost error ĉ − c onto the tangent space, with a normal component."""

from __future__ import annotations

import torch
from torch import Tensor

from pear.sensitivity.inverse_curvature import apply_inverse_curvature_on_rows
from pear.sensitivity.reduced_systems import reduced_systems
from pear.sensitivity.uniqueness import require_unique
from pear.sensitivity.verified_solutions import VerifiedSolutions
from pear.solvers.normal_component import add_normal_component


def project(solution: VerifiedSolutions, e: Tensor) -> Tensor:
    """Compute P e, the H-orthogonal projection of H⁻¹e onto the tangent space of the active constraints J.

    H is the curvature of the objective. The matrix ``P = H⁻¹ − H⁻¹Jᵀ(JH⁻¹Jᵀ)⁻¹JH⁻¹`` is never formed.

    Args:
        solution: the verified solutions.
        e: (B, n) vectors to project.

    Returns:
        (B, n), zero for failed samples.

    Raises:
        NotUniqueError: a decision is not unique.
        SolveError: a decision is unique, but its projection could not be computed accurately.
    """
    g, curved = project_and_test_curvature(solution, torch.where(solution.solved[:, None], e, torch.zeros_like(e)))
    require_unique(solution, curved)
    return torch.where(solution.solved[:, None], g, torch.zeros_like(g))


def project_and_test_curvature(solution: VerifiedSolutions, e: Tensor) -> tuple[Tensor, Tensor]:
    """Project vectors e as ``project`` does, and test whether the objective is curved along every tangent direction.

    The solver's projector is used for a sample if it holds exactly the tight constraints and its refinement converges.
    All other samples use the reduced systems, which decide the rank.

    Args:
        solution: the verified solutions.
        e: (B, n) vectors to project.

    Returns:
        g = P e (B, n), and the result of the test (B,), bool.
    """
    if solution.projector is None:
        g, _, _, curved = solution.systems.project(e)
        return g, curved
    g, curved = solution.projector.project(e)
    curved = curved & solution.projects
    rest = (~curved & solution.solved).nonzero()[:, 0]
    if len(rest):
        systems = reduced_systems(solution.qp[rest], solution.active[rest])
        g[rest], _, _, curved[rest] = systems.project(e[rest])
    return g, curved


def inject_into_projection(solution: VerifiedSolutions, e: Tensor, g: Tensor, strength: float) -> Tensor:
    """Return g + β (‖g‖/‖v‖) v, where g is a projection and v = H⁻¹e − g the normal component.

    If v = 0, the result is g. H is the curvature. If it is singular, the positive definite matrix ``H + ρJᵀJ`` replaces
    it, with ρ > 0 and the active constraints J. Both matrices have the same projection P.

    Args:
        solution: the verified solutions, whose decisions are unique. For failed samples the result is g.
        e: (B, n) errors of the gradient of the objective.
        g: (B, n) projections of e.
        strength: β ≥ 0.

    Returns:
        (B, n).
    """
    if strength == 0:
        return g
    qp, active, good = solution.qp, solution.active, solution.solved.nonzero()[:, 0] if solution.qp.is_sparse else None
    if good is None or len(good) == qp.batch:
        return add_normal_component(apply_inverse_curvature_on_rows(qp, active, e), g, strength)
    result = g.clone()  # a failed sample has no active constraints, on which its system may be singular
    rescaled = apply_inverse_curvature_on_rows(qp[good], active[good], e[good])
    result[good] = add_normal_component(rescaled, g[good], strength)
    return result
