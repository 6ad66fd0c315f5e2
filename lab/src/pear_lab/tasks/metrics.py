"""Metrics of a forecast that experiments record: regret, squared error, relaxation gap, changes of the active set."""

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
from pear.problem.tensor_conversion import to_batch_tensor
from pear.tasks.task import Task

PUBLISHED_SHIFT = 1e-7
"""The number that PEAR's paper adds to the denominator of the normalised regret, in the unit of the costs."""


def published_regret_metric(outcome: RegretOutcome) -> float:
    """Return the normalised regret of PEAR's paper, ``Σ regret / (Σ |best| + 1e-7)`` over the samples.

    Here best is the best objective value of a sample. ``pear.normalized_regret`` has the denominator ``Σ |best|``, so
    that the unit of the costs does not matter. The tables of the laboratory show the regret of the paper.

    Example:
        >>> published_regret_metric(RegretOutcome(torch.tensor([1.0]), torch.tensor([0.0])))
        10000000.0
    """
    return float(outcome.regret.sum() / (outcome.best.abs().sum() + PUBLISHED_SHIFT))


class RelaxationGap(NamedTuple):
    """The gap between a problem and its continuous relaxation.

    Attributes:
        gap: ``Σ |relaxed optimum − integer optimum| / (Σ |integer optimum| + 1e-7)`` under the true costs.
        share: gap / (gap + regret), where regret is the normalised regret of the forecasts, or 0 if that is negative.
            The share is 0 if gap and regret are 0.
    """

    gap: float
    share: float


def mse_metric(predicted: Any, true: Any) -> float:
    """Return the mean of ``(ĉ − c)²`` over samples and costs, in float64.

    Args:
        predicted: (B, n) the predicted costs ĉ.
        true: (B, n) the true costs c.

    Example:
        >>> mse_metric([[1.0, 2.0]], [[1.0, 4.0]])
        2.0
    """
    forecast, costs = _metric_forecast_and_costs(predicted, true)
    return float((forecast.double() - costs.double()).square().mean())


def relaxation_gap_metric(task: Task, predicted: Any, true: Any) -> RelaxationGap:
    """Return the relaxation gap of a task, and the share of the gap in the sum of the gap and a forecast's regret.

    Args:
        task: the decision task; without integer variables gap and share are 0.
        predicted: (B, n) the predicted costs.
        true: (B, n) the true costs.
    """
    forecast, costs = _metric_forecast_and_costs(predicted, true)
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
    """Return ρ, the share of inequalities that become active or inactive if the forecast is perturbed a little.

    ``ρ = 1/m Σᵢ [aᵢ ≠ a'ᵢ]``, averaged over samples and perturbations. The m inequalities are the rows of G and the
    finite bounds. The mask a marks the inequalities that are active at the smoothed decision under ĉ, and a' those at
    the smoothed decision under ĉ + δ. The perturbation δ is normal with a standard deviation of ``scale`` times the
    mean of |ĉ|. PEAR's paper does not give the size of its perturbations.

    Args:
        problem: the decision problem; an integer problem is relaxed.
        predicted: (B, n) the predicted costs ĉ.
        smoothing: λ, the strength of the smoothing term.
        scale: the size of the perturbations relative to the forecasts.
        draws: the number of perturbations of each sample.
        generator: the generator of the perturbations; if omitted, a generator with seed 0.

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
    forecast = to_batch_tensor(predicted).detach().double()
    relaxed = problem.relaxed()
    generator = torch.Generator().manual_seed(0) if generator is None else generator
    before = _active_metric_masks(relaxed, solve(relaxed, forecast, smoothing=smoothing))
    size = scale * float(forecast.abs().mean())
    changed = 0.0
    for _ in range(draws):
        moved = forecast + size * torch.randn(forecast.shape, generator=generator, dtype=torch.float64).to(forecast)
        after = _active_metric_masks(relaxed, solve(relaxed, moved, smoothing=smoothing))
        changed += float((before != after).double().mean()) if before.numel() else 0.0
    return changed / draws


def _active_metric_masks(problem: Problem, solution: Solution) -> Tensor:
    """Return a mask (B, m) of the active inequalities, which are the rows of G and the finite bounds."""
    active, count = solution.active, len(solution.x)
    parts = []
    for field, mask in ((problem.h, active.rows), (problem.lb, active.lower), (problem.ub, active.upper)):
        if field is not None:
            parts.append(mask[:, field.isfinite().reshape(-1, field.shape[-1]).any(0)])
    return torch.cat(parts, 1) if parts else torch.zeros(count, 0, dtype=torch.bool)


def _metric_forecast_and_costs(predicted: Any, true: Any) -> tuple[Tensor, Tensor]:
    """Return predicted and true costs as two tensors (B, n). Different shapes raise an error."""
    forecast, costs = to_batch_tensor(predicted).detach(), to_batch_tensor(true).detach()
    check_cost_pair(forecast, costs)
    return forecast, costs
