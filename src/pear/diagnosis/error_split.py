"""The split of the squared error into a tangent part, which moves decisions, and a normal part, which does not.

Let e = ĉ − c be the error of the predicted cost, H the curvature of the smoothed problem, and P e the projection of
H⁻¹e onto the directions that the active constraints allow. The squared error eᵀH⁻¹e is the sum of the tangent part eᵀPe
and the normal part nᵀHn with ``n = H⁻¹e − P e``. The decision under c + t e has the derivative −P e with respect to t.
The tangent part is the mean of eᵀPe for t from 0 to 1, which is ``eᵀ(z*(c) − z*(ĉ))``; z* is the smoothed decision
under a cost. This is exact even if the active set changes between c and ĉ. If the objective has a smooth term φ, H
changes, too, and the tangent part is eᵀPe at ĉ instead.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from pear.decisions.choose_smoothing import choose_smoothing
from pear.decisions.continuous_programs import solve_continuous_programs
from pear.decisions.failures import report_failures
from pear.decisions.smoothing import Smoothing
from pear.optimality.rule import NEGLIGIBLE
from pear.problem import Problem
from pear.problem.matrix import matvec
from pear.sensitivity.convexity import lacks_strict_convexity
from pear.sensitivity.inverse_curvature import apply_inverse_curvature
from pear.sensitivity.projection import project_and_test_curvature

EXACT = 1e-10
"""Largest accepted rounding error of a part, relative to the whole squared error."""
_FLAT_SHARE = 0.01  # this share of the mean curvature is added in every direction if the curvature is singular


def split_error(
    problem: Problem, predicted: Tensor, true: Tensor, smoothing: float | Literal["auto"], solver: str
) -> tuple[dict[str, Tensor], str]:
    """Return the tangent and the normal part of every sample's squared error.

    Args:
        problem: the decision problem, continuous.
        predicted: (B, n) predicted costs ĉ.
        true: (B, n) true costs c.
        smoothing: the smoothing λ, or "auto" to choose λ as ``PEARLoss`` does.
        solver: name of the solver, as in ``pear.solve``.

    Returns:
        The fields ``squared_error``, ``tangent``, ``normal``, ``tangent_at_forecast``, ``zero_gradient`` and
        ``degenerate`` of a ``Diagnosis``, each (B,), and a sentence about the smoothing. ``tangent_at_forecast`` is NaN
        if the tangent and the normal part at ĉ do not add up to the squared error.
    """
    scale = _smoothing_to_split(problem, true, choose_smoothing(problem, true, smoothing))
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
    # The curvature of φ changes between c and ĉ, and H with it: the tangent part is then the one at the forecast.
    tangent = _clip_error_part((e * (best.x - solved.x)).sum(1) if problem.phi is None else local, total)
    parts = {
        "squared_error": total,
        "tangent": tangent,
        "normal": total - tangent,
        "tangent_at_forecast": torch.where(holds, _clip_error_part(local, total), torch.nan),
        "zero_gradient": (total > 0) & (local <= NEGLIGIBLE * total),
        "degenerate": solved.weak.count() > 0,
    }
    return parts, scale.note


def unsplit_error(count: int) -> dict[str, Tensor]:
    """Return the fields of ``split_error`` for ``count`` samples whose squared error cannot be split: NaN or False."""
    unknown, no = torch.full((count,), torch.nan), torch.zeros(count, dtype=torch.bool)
    names = ("squared_error", "tangent", "normal", "tangent_at_forecast")
    return dict.fromkeys(names, unknown) | {"zero_gradient": no, "degenerate": no}


def _clip_error_part(value: Tensor, whole: Tensor) -> Tensor:
    """Return a part (B,) of the squared error ``whole`` (B,), clipped to [0, whole].

    Values outside by more than rounding become NaN.
    """
    outside = torch.maximum(-value, value - whole) > EXACT * whole
    return torch.where(outside, torch.nan, torch.minimum(value.clamp(min=0), whole))


def _smoothing_to_split(problem: Problem, true: Tensor, scale: Smoothing) -> Smoothing:
    """Return the smoothing ``scale``; if it leaves H singular, one with λ = a hundredth of the mean curvature.

    H is the curvature of the smoothed problem. If it is zero, the mean size of the true costs replaces its mean.
    """
    qp = scale.problem(problem).canonical(true, scale.value)
    if problem.phi is not None or not bool(lacks_strict_convexity(qp).any()):
        return scale
    mean = float(qp.H.diagonal(dim1=1, dim2=2).mean()) or float(true.abs().mean()) or 1.0
    value = _FLAT_SHARE * mean
    return Smoothing(
        value, scale.units, f"the curvature is singular, so that λ = {value:.3g}, a hundredth of its mean, is added"
    )
