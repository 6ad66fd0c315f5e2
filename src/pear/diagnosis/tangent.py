"""Which part of the squared error moves decisions: the tangent one, and the normal one, which does not.

At the smoothed decision, in the metric of H⁻¹: ``eᵀH⁻¹e = eᵀPe + nᵀHn`` with the normal component ``n = H⁻¹e − Pe``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from pear.decisions.smoothing import Smoothing
from pear.decisions.solve import choose_smoothing, fail, solve_verified
from pear.optimality.rule import NEGLIGIBLE
from pear.problem import Problem
from pear.problem.canonical import matvec
from pear.sensitivity.curvature import inverse_times, singular
from pear.sensitivity.projection import project_any

EXACT = 1e-10
"""How far the two parts of an error may be from the whole, relative to it."""
_FLAT_SHARE = 0.01  # of the mean curvature, which a singular one gets in every direction


@dataclass(frozen=True)
class ErrorSplit:
    """The squared errors of a batch and their parts.

    Attributes:
        total: (B,) eᵀH⁻¹e.
        tangent: (B,) eᵀPe; normal: (B,) the rest, computed on its own. NaN where they do not add up.
        zero_gradient: (B,) bool, where there is an error and none of it is tangent.
        degenerate: (B,) bool, where a constraint is tight at the smoothed decision without a multiplier.
        smoothing: what the problem was smoothed by.
    """

    total: Tensor
    tangent: Tensor
    normal: Tensor
    zero_gradient: Tensor
    degenerate: Tensor
    smoothing: Smoothing


def split_error(
    problem: Problem, predicted: Tensor, true: Tensor, smoothing: float | Literal["auto"], solver: str
) -> ErrorSplit:
    """Split the error of every sample at the decision under its predicted cost.

    Args:
        problem: what is decided, continuous.
        predicted: (B, n) ĉ.
        true: (B, n) c.
        smoothing: λ; "auto" as ``PEARLoss`` picks it.
        solver: as of ``pear.solve``.
    """
    scale = _with_curvature(problem, true, choose_smoothing(problem, true, smoothing))
    inner = scale.problem(problem)
    solved = solve_verified(inner, scale.times_units(predicted), scale.value, solver)
    fail(solved.status, "raise", "the smoothed problem under the predicted costs")
    e = problem.sign * scale.times_units(predicted - true)
    rescaled = inverse_times(solved.qp, e)
    g, curved = project_any(solved, e)
    total, tangent = (e * rescaled).sum(1), (e * g).sum(1)
    normal = ((rescaled - g) * (e - matvec(solved.qp.H, g))).sum(1)
    # What rounding leaves below zero of a part that is zero.
    tangent, normal = (torch.where(part.abs() <= EXACT * total, part.clamp(min=0), part) for part in (tangent, normal))
    holds = curved & ((tangent + normal - total).abs() <= EXACT * total)
    return ErrorSplit(
        total=total,
        tangent=torch.where(holds, tangent, torch.nan),
        normal=torch.where(holds, normal, torch.nan),
        zero_gradient=(total > 0) & (tangent <= NEGLIGIBLE * total),
        degenerate=solved.weak.count() > 0,
        smoothing=scale,
    )


def _with_curvature(problem: Problem, true: Tensor, scale: Smoothing) -> Smoothing:
    """The same smoothing, or more where H would still be singular: H⁻¹ would not exist."""
    qp = scale.problem(problem).canonical(true, scale.value)
    if problem.phi is not None or not bool(singular(qp).any()):
        return scale
    mean = float(qp.H.diagonal(dim1=1, dim2=2).mean()) or float(true.abs().mean()) or 1.0
    value = _FLAT_SHARE * mean
    return Smoothing(
        value, scale.units, f"the curvature is singular, so that λ = {value:.3g}, a hundredth of its mean, is added"
    )
