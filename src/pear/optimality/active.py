"""One rule for the active set.

*Guess* (from a solver's inexact point): a constraint is taken as active where its slack is no larger than its
multiplier, both free of units. *Final* (at the exact point): a constraint is active where it is tight, whatever its
multiplier. A tight constraint with a zero multiplier is weakly active; it counts as active. The final set therefore
depends on the decision alone and not on which of several multipliers a solver happened to return.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pear.optimality.point import ActiveSet, Duals
from pear.optimality.scale import Scaled, positive, scaled
from pear.problem.canonical import QuadraticProgram, matvec, row_squares

TIGHT = 1e-10
"""Slack, relative to the terms it is made of, up to which a constraint of an exact solution is tight."""

_WEAK = 1e-9
_ROUNDOFF = 1e-12


def guess(qp: QuadraticProgram, x: Tensor, duals: Duals) -> ActiveSet:
    """The active set that an approximate point (B, n) and its multipliers suggest, by complementarity.

    Slack and multiplier are compared in units of the largest decision and the largest cost, the same for all
    constraints of a sample: on an interior-point solver's central path their product is the same for all, too.
    """
    size = positive(x.abs().amax(1, keepdim=True))
    force = positive(torch.maximum(qp.c.abs(), matvec(qp.H, x).abs()).amax(1, keepdim=True))
    norm = positive(row_squares(qp.G).sqrt())
    rows = (qp.h - matvec(qp.G, x)) / norm / size
    pinned = qp.lb == qp.ub
    at_lower = ((x - qp.lb) / size <= (-duals.bound / force).clamp(min=_ROUNDOFF)) | pinned
    at_upper = ((qp.ub - x) / size <= (duals.bound / force).clamp(min=_ROUNDOFF)) & ~at_lower
    return ActiveSet(rows <= (duals.inequality * norm / force).clamp(min=_ROUNDOFF), at_lower, at_upper)


def final(
    qp: QuadraticProgram, x: Tensor, duals: Duals, working: ActiveSet, measured: Scaled | None = None
) -> tuple[ActiveSet, ActiveSet]:
    """The active set of an exact solution, and the weakly active part of it.

    Args:
        qp: the programs.
        x: (B, n) exact solutions.
        duals: their multipliers.
        working: the constraints they were computed with; tight by construction.
        measured: the point's slacks and multipliers, where they are known already.

    Returns:
        All tight constraints, and those among them whose multiplier is zero. A variable whose bounds coincide is never
        weakly active.
    """
    s = scaled(qp, x, duals) if measured is None else measured
    pinned = qp.lb == qp.ub
    lower = working.lower | (s.lower <= TIGHT)
    active = ActiveSet(working.rows | (s.rows <= TIGHT), lower, (working.upper | (s.upper <= TIGHT)) & ~lower)
    weak = ActiveSet(
        active.rows & (s.push_rows <= _WEAK),
        active.lower & (s.push_lower <= _WEAK) & ~pinned,
        active.upper & (s.push_upper <= _WEAK) & ~pinned,
    )
    return active, weak
