"""The squared error in two parts: the tangent part moves decisions, constraints absorb the normal part.

At a smoothed decision, in the metric of H⁻¹, ``eᵀH⁻¹e = eᵀPe + nᵀHn`` with the normal component ``n = H⁻¹e − Pe``. On
the way from c to ĉ the decision moves by −P e for every unit of t, so that the mean of eᵀPe is ``eᵀ(z*(c) − z*(ĉ))``.
Two decisions give it exactly, whatever active sets lie between them.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from pear.decisions.continuous_programs import solve_continuous_programs
from pear.decisions.failures import report_failures
from pear.decisions.smoothing import Smoothing, choose_smoothing
from pear.optimality.rule import NEGLIGIBLE
from pear.problem import Problem
from pear.problem.matrix import matvec
from pear.sensitivity.curvature_sign import has_singular_curvature
from pear.sensitivity.inverse_curvature import apply_inverse_curvature
from pear.sensitivity.projection import project_and_test_curvature

EXACT = 1e-10
"""Largest accepted rounding error of a part, relative to the whole squared error."""
_FLAT_SHARE = 0.01  # a singular curvature gets this share of its mean added in every direction


def split_error(
    problem: Problem, predicted: Tensor, true: Tensor, smoothing: float | Literal["auto"], solver: str
) -> tuple[dict[str, Tensor], str]:
    """Split the squared error of every sample into its tangent and its normal part.

    Args:
        problem: the decision problem, continuous.
        predicted: (B, n) predicted costs ĉ.
        true: (B, n) true costs c.
        smoothing: λ, or "auto" to choose it as ``PEARLoss`` does.
        solver: name of the solver, as in ``pear.solve``.

    Returns:
        The attributes ``squared_error``, ``tangent``, ``normal``, ``tangent_at_forecast``, ``zero_gradient`` and
        ``degenerate`` of a ``Diagnosis``, each (B,), and a sentence about the smoothing. ``tangent_at_forecast`` is NaN
        where it and the normal part at ĉ do not add up to the squared error.
    """
    scale = _smoothing_with_curvature(problem, true, choose_smoothing(problem, true, smoothing))
    inner = scale.problem(problem)
    costs = [scale.times_units(cost) for cost in (predicted, true)]
    solved, best = (solve_continuous_programs(inner, cost, scale.value, solver) for cost in costs)
    for one, what in ((solved, "predicted"), (best, "true")):
        report_failures(one.status, "raise", f"the smoothed problem under the {what} costs")
    e = problem.sign * (costs[0] - costs[1])
    rescaled = apply_inverse_curvature(solved.qp, e)
    g, curved = project_and_test_curvature(solved, e)
    total, local = (e * rescaled).sum(1), (e * g).sum(1)
    absorbed = ((rescaled - g) * (e - matvec(solved.qp.H, g))).sum(1)
    holds = curved & ((local + absorbed - total).abs() <= EXACT * total)
    # The curvature of φ changes on the way, and with it the metric: there the split is that at the forecast.
    tangent = _clip_part((e * (best.x - solved.x)).sum(1) if problem.phi is None else local, total)
    parts = {
        "squared_error": total,
        "tangent": tangent,
        "normal": total - tangent,
        "tangent_at_forecast": torch.where(holds, _clip_part(local, total), torch.nan),
        "zero_gradient": (total > 0) & (local <= NEGLIGIBLE * total),
        "degenerate": solved.weak.count() > 0,
    }
    return parts, scale.note


def _clip_part(value: Tensor, whole: Tensor) -> Tensor:
    """Clip a part (B,) to [0, whole]. Values outside by more than rounding become NaN."""
    outside = torch.maximum(-value, value - whole) > EXACT * whole
    return torch.where(outside, torch.nan, torch.minimum(value.clamp(min=0), whole))


def _smoothing_with_curvature(problem: Problem, true: Tensor, scale: Smoothing) -> Smoothing:
    """Return the given smoothing, or a larger one if H would be singular without it."""
    qp = scale.problem(problem).canonical(true, scale.value)
    if problem.phi is not None or not bool(has_singular_curvature(qp).any()):
        return scale
    mean = float(qp.H.diagonal(dim1=1, dim2=2).mean()) or float(true.abs().mean()) or 1.0
    value = _FLAT_SHARE * mean
    return Smoothing(
        value, scale.units, f"the curvature is singular, so that λ = {value:.3g}, a hundredth of its mean, is added"
    )
