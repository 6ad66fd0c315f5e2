"""How much a feasible point loses against the optimal one, without subtracting two objectives."""

from __future__ import annotations

import torch
from torch import Tensor

from pear.optimality.point import Duals


def objective_gap(d: Tensor, Hd: Tensor, slack: Tensor, duals: Duals) -> Tensor:
    """(B,) objective of feasible points less that of the solutions.

    It is ½dᵀHd plus multiplier times slack of every constraint that is active at the solution. All terms are at least
    zero, so that nothing cancels and the value is right to rounding however small it is.

    Args:
        d: (B, n) from the solutions to the points; Hd: (B, n) their curvature terms.
        slack: (B, m) of the rows at the points.
        duals: multipliers of the solutions.
    """
    curved = 0.5 * (d * Hd).sum(1).clamp(min=0)
    gap = curved - (duals.bound * d).clamp(max=0).sum(1)
    if not slack.shape[1]:
        return gap
    rows = torch.where(duals.inequality > 0, duals.inequality * slack, 0.0)
    return gap + rows.clamp(min=0).sum(1)
