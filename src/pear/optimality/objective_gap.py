"""The objective gap between a feasible point and the solution, computed without subtracting two objectives."""

from __future__ import annotations

import torch
from torch import Tensor

from pear.optimality.duals_and_active_sets import Duals


def objective_gap(d: Tensor, Hd: Tensor, slack: Tensor, duals: Duals) -> Tensor:
    """Compute the objective at feasible points minus the objective at the solutions. Shape (B,).

    The gap is ½dᵀHd plus, for every constraint that is active at the solution, its absolute multiplier times its slack
    at the point. No term is negative. Nothing cancels, so that even a tiny gap is accurate to rounding.

    Args:
        d: (B, n) the points minus the solutions.
        Hd: (B, n) the product of H and d.
        slack: (B, m) the slacks of the inequality rows at the points.
        duals: the multipliers of the solutions.
    """
    curved = 0.5 * (d * Hd).sum(1).clamp(min=0)
    gap = curved - (duals.bound * d).clamp(max=0).sum(1)
    if not slack.shape[1]:
        return gap
    rows = torch.where(duals.inequality > 0, duals.inequality * slack, 0.0)
    return gap + rows.clamp(min=0).sum(1)
