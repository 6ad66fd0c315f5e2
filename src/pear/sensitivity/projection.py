"""The projected error: from ĉ − c to the gradient of regret, and the normal component that may be added to it."""

from __future__ import annotations

import torch
from torch import Tensor

from pear.errors import NotUniqueError
from pear.problem.canonical import QuadraticProgram
from pear.problem.sparse import SparseProgram
from pear.sensitivity.reduced import ReducedKKT
from pear.sensitivity.uniqueness import is_unique
from pear.sensitivity.verified import Verified

_NEGLIGIBLE = 1e-12
"""A component this much smaller than the rescaled error H⁻¹e is rounding, and is set to zero."""


def project(solution: Verified, e: Tensor) -> Tensor:
    """G = P e, the H-orthogonal projection of H⁻¹e onto the tangent space of the active constraints, (B, n).

    ``P = H⁻¹ − H⁻¹Jᵀ(JH⁻¹Jᵀ)⁻¹JH⁻¹`` is never formed. Rows of failed samples are zero.

    Raises:
        NotUniqueError: where the objective has no curvature along some tangent direction.
    """
    g, unique = project_any(solution, _only_solved(solution, e))
    require_unique(solution, unique)
    scale = e.abs().amax(1, keepdim=True) / solution.qp.H.abs().amax((1, 2))[:, None].clamp(min=1e-300)
    noise = g.abs().amax(1, keepdim=True) <= _NEGLIGIBLE * scale
    return torch.where(noise | ~solution.solved[:, None], torch.zeros_like(g), g)


def project_any(solution: Verified, e: Tensor) -> tuple[Tensor, Tensor]:
    """G = P e, (B, n), and (B,) bool where the objective is curved along every tangent direction."""
    part = solution.compiled
    if part is not None:
        g, curved = part.project(e)
        if bool(part.done.all()):
            return g, curved
        # the general way for the rest only
        rest = (~part.done).nonzero()[:, 0]
        reduced = ReducedKKT(solution.qp[rest], solution.active[rest])
        g[rest], _, _, curved[rest] = reduced.project(e[rest])
        return g, curved
    g, _, _, curved = solution.reduced.project(e)
    return g, curved


def inject_normal(qp: QuadraticProgram, e: Tensor, g: Tensor, strength: float) -> Tensor:
    """G + β (‖g‖/‖n‖) n with the normal component n = H⁻¹e − g; nothing is added where n = 0.

    Args:
        qp: the programs, with H positive definite.
        e: (B, n) error of the objective's gradient.
        g: (B, n) its projection.
        strength: β ≥ 0.
    """
    return g if strength == 0 else add_normal(_inverse_times(qp, e), g, strength)


def add_normal(rescaled: Tensor, g: Tensor, strength: float) -> Tensor:
    """The same for H⁻¹e that is known already, (B, n)."""
    n = rescaled - g
    size_n, size_g = (torch.linalg.vector_norm(v, dim=1, keepdim=True) for v in (n, g))
    real = size_n > _NEGLIGIBLE * torch.linalg.vector_norm(rescaled, dim=1, keepdim=True)
    ratio = torch.where(real, size_g / torch.where(real, size_n, torch.ones_like(size_n)), torch.zeros_like(size_n))
    return g + strength * ratio * n


def require_unique(solution: Verified, curved: Tensor) -> None:
    """Refuse derivatives where the decision is not unique; failed samples do not count.

    Args:
        solution: the solutions.
        curved: (B,) bool, where the objective is curved along every tangent direction.
    """
    # a weakly active constraint counts as active, but may hide that the decision could leave it at no cost
    unique = curved.clone()
    sparse = isinstance(solution.qp, SparseProgram)  # its projection looks at weakly active constraints itself
    doubtful = (solution.solved & curved & (solution.weak.count() > 0)).nonzero()[:, 0]
    if len(doubtful) and not sparse:
        qp = solution.qp[doubtful]
        singular = (torch.linalg.cholesky_ex(qp.H).info > 0).expand(len(doubtful))
        doubtful = doubtful[singular]
        unique[doubtful] = is_unique(qp[singular], solution.active[doubtful], solution.weak[doubtful])
    flat = (~unique & solution.solved).nonzero()[:, 0].tolist()
    if flat:
        raise NotUniqueError(
            f"the decision of sample{'s' if len(flat) > 1 else ''} {', '.join(map(str, flat[:5]))} is not unique "
            "(the objective is flat along a feasible direction), so that it has no derivative; "
            "pass smoothing > 0 or a positive definite Q",
            flat,
        )


def _only_solved(solution: Verified, e: Tensor) -> Tensor:
    return torch.where(solution.solved[:, None], e, torch.zeros_like(e))


def _inverse_times(qp: QuadraticProgram, e: Tensor) -> Tensor:
    """H⁻¹ e, by division where H is diagonal."""
    if isinstance(qp, SparseProgram) and not qp.diagonal:
        from pear.sensitivity.curvature import inverse_times

        flat, solve = inverse_times(qp, e)
    elif qp.diagonal:
        diagonal = qp.H.diagonal(dim1=1, dim2=2)
        flat, solve = (diagonal <= 0).any(1), lambda: e / diagonal
    else:
        L, info = torch.linalg.cholesky_ex(qp.H)
        flat, solve = info > 0, lambda: torch.cholesky_solve(e.unsqueeze(-1), L).squeeze(-1)
    if bool(flat.any()):
        raise NotUniqueError(
            "injection needs H⁻¹, but the curvature is singular; "
            "pass smoothing > 0, a positive definite Q, or injection=0",
            flat.nonzero()[:, 0].tolist(),
        )
    return solve()
