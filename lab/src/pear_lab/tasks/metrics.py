"""Scores of a forecast that experiments record besides its regret."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from pear.decisions import solve
from pear.decisions.solution import Solution
from pear.errors import ProblemError
from pear.losses.cost_pairs import check_cost_pair
from pear.losses.regret_outcome import RegretOutcome
from pear.problem import Problem
from pear.problem.array_conversion import as_batch
from pear.tasks.task import Task

PUBLISHED_SHIFT = 1e-7
"""The number that the paper adds to the denominator of the normalised regret, in whatever unit the costs have."""


def published_regret_metric(outcome: RegretOutcome) -> float:
    """Return the normalised regret of the paper, ``Σ regret / (Σ |best| + 1e-7)``.

    ``pear.normalized_regret`` adds nothing, so that no unit matters. Tables keep the published number.

    Example:
        >>> published_regret_metric(RegretOutcome(torch.tensor([1.0]), torch.tensor([0.0])))
        10000000.0
    """
    return float(outcome.regret.sum() / (outcome.best.abs().sum() + PUBLISHED_SHIFT))


class RelaxationGap(NamedTuple):
    """How far the relaxation is from the integer problem.

    Attributes:
        gap: ``Σ |relaxed optimum − integer optimum| / (Σ |integer optimum| + 1e-7)`` under the true costs.
        share: gap / (gap + regret): what perfect forecasts would lose against the relaxed optimum, as a part of what
            these forecasts lose against it; 0 where nothing is lost.
    """

    gap: float
    share: float


def mse_metric(predicted: Any, true: Any) -> float:
    """Return the mean of ``(ĉ − c)²`` over samples and costs, in float64.

    Args:
        predicted: (B, n) ĉ.
        true: (B, n) c.

    Example:
        >>> mse_metric([[1.0, 2.0]], [[1.0, 4.0]])
        2.0
    """
    forecast, costs = _read_forecast_and_costs(predicted, true)
    return float((forecast.double() - costs.double()).square().mean())


def relaxation_gap_metric(task: Task, predicted: Any, true: Any) -> RelaxationGap:
    """Measure how much of the loss against the relaxed optimum comes from the relaxation, whatever the forecast.

    Args:
        task: what is decided; where it has no integers the gap is zero.
        predicted: (B, n) ĉ.
        true: (B, n) c.
    """
    forecast, costs = _read_forecast_and_costs(predicted, true)
    if not task.problem.is_integer:
        return RelaxationGap(0.0, 0.0)
    wide = costs.double()
    whole, relaxed = ((wide * z.double()).sum(1) for z in (task.decide(costs), task.decide_relaxed(wide)))
    gap = published_regret_metric(RegretOutcome((relaxed - whole).abs(), whole))
    lost = gap + max(0.0, published_regret_metric(task.outcome(forecast, costs)))
    return RelaxationGap(gap, gap / lost if lost > 0 else 0.0)


def active_change_metric(
    problem: Problem,
    predicted: Any,
    smoothing: float = 0.1,
    scale: float = 0.01,
    draws: int = 10,
    generator: torch.Generator | None = None,
) -> float:
    """Return ρ, the share of inequalities that become active or inactive when the forecast is perturbed a little.

    ``ρ = 1/m Σ [a_i ≠ a'_i]``, with a the mask of the m inequalities (rows of G and finite bounds) that are active at
    the smoothed decision under ĉ and a' the same under ĉ + δ, averaged over samples and perturbations. The paper does
    not say how large its perturbations are. Here δ is normal, with a standard deviation of ``scale`` times the mean
    of |ĉ|.

    Args:
        problem: the decision problem; an integer problem is relaxed.
        predicted: (B, n) ĉ.
        smoothing: λ of the smoothed problem.
        scale: size of the perturbations relative to the forecasts.
        draws: perturbations per sample.
        generator: draws them; one with seed 0 if omitted.

    Example:
        >>> import pear
        >>> square = pear.Problem(lb=[0.0, 0.0], ub=[1.0, 1.0])
        >>> active_change_metric(square, [[1.0, -1.0]])
        0.0
    """
    if draws != int(draws) or draws < 1:
        raise ProblemError(f"draws must be a whole number of at least 1; got {draws!r}")
    if not 0 <= scale < float("inf"):
        raise ProblemError(f"scale must be a number of at least 0; got {scale!r}")
    forecast = as_batch(predicted).detach().double()
    relaxed = problem.relaxed()
    generator = torch.Generator().manual_seed(0) if generator is None else generator
    before = _active_inequalities(relaxed, solve(relaxed, forecast, smoothing=smoothing))
    size = scale * float(forecast.abs().mean())
    changed = 0.0
    for _ in range(draws):
        moved = forecast + size * torch.randn(forecast.shape, generator=generator, dtype=torch.float64).to(forecast)
        after = _active_inequalities(relaxed, solve(relaxed, moved, smoothing=smoothing))
        changed += float((before != after).double().mean()) if before.numel() else 0.0
    return changed / draws


def _active_inequalities(problem: Problem, solution: Solution) -> Tensor:
    """Return a mask (B, m) of the active inequalities: rows of G and finite bounds."""
    active, count = solution.active, len(solution.x)
    parts = []
    for field, mask in ((problem.h, active.rows), (problem.lb, active.lower), (problem.ub, active.upper)):
        if field is not None:
            parts.append(mask[:, field.isfinite().reshape(-1, field.shape[-1]).any(0)])
    return torch.cat(parts, 1) if parts else torch.zeros(count, 0, dtype=torch.bool)


def _read_forecast_and_costs(predicted: Any, true: Any) -> tuple[Tensor, Tensor]:
    """Read predicted and true costs as two tensors (B, n), and check that they fit."""
    forecast, costs = as_batch(predicted).detach(), as_batch(true).detach()
    check_cost_pair(forecast, costs)
    return forecast, costs
