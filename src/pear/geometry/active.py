"""One rule for the active set.

*Guess* (from a solver's inexact point): a constraint is taken as active where its slack is no larger than its
multiplier, both free of units. *Final* (at the exact point): a constraint is active where it is tight, whatever its
multiplier. A tight constraint with a zero multiplier is weakly active; it counts as active. The final set therefore
depends on the decision alone and not on which of several multipliers a solver happened to return.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pear.geometry.residual import units
from pear.problem.canonical import QuadraticProgram, matvec
from pear.solvers.solution import ActiveSet, Duals

TIGHT = 1e-9
"""Slack, in units of the decision's size, below which a constraint of an exact solution is tight."""

_ROUNDOFF = 1e-12


def guess(qp: QuadraticProgram, x: Tensor, duals: Duals) -> ActiveSet:
    """The active set that an approximate point (B, n) and its multipliers suggest, by complementarity."""
    return _where_slack_below(qp, x, *_scaled_multipliers(qp, x, duals, floor=_ROUNDOFF))


def tight(qp: QuadraticProgram, x: Tensor) -> ActiveSet:
    """The constraints that are tight at the exact point x (B, n)."""
    limit = torch.full_like(x[:, :1], TIGHT)
    return _where_slack_below(qp, x, limit, limit, limit)


def weak(qp: QuadraticProgram, x: Tensor, duals: Duals, active: ActiveSet) -> ActiveSet:
    """The active constraints whose multiplier is zero as well; never a variable whose two bounds coincide."""
    rows, lower, upper = _scaled_multipliers(qp, x, duals, floor=0.0)
    pinned = qp.lb == qp.ub
    return ActiveSet(
        active.rows & (rows <= TIGHT),
        active.lower & (lower <= TIGHT) & ~pinned,
        active.upper & (upper <= TIGHT) & ~pinned,
    )


def _scaled_multipliers(qp: QuadraticProgram, x: Tensor, duals: Duals, floor: float) -> tuple[Tensor, Tensor, Tensor]:
    u = units(qp, x)
    rows = duals.inequality * u.rows_g / u.force
    bound = duals.bound / u.force
    return rows.clamp(min=floor), (-bound).clamp(min=floor), bound.clamp(min=floor)


def _where_slack_below(qp: QuadraticProgram, x: Tensor, rows: Tensor, lower: Tensor, upper: Tensor) -> ActiveSet:
    u = units(qp, x)
    at_rows = (qp.h - matvec(qp.G, x)) / u.rows_g / u.size <= rows
    below = (x - qp.lb) / u.size
    above = (qp.ub - x) / u.size
    at_lower = (below <= lower) | (qp.lb == qp.ub)
    return ActiveSet(at_rows, at_lower, (above <= upper) & ~at_lower)
