"""The rule that decides which constraints are active.

At an inexact point the active set can only be guessed: a constraint counts as active if its slack is no larger than its
multiplier, after each is divided by its unit (see ``guess_active_set``). At an exact solution every tight constraint is
active, whatever its multiplier is. A tight constraint whose multiplier is zero is called weakly active. The active set
of an exact solution therefore depends on the decision alone, and not on which of several possible multipliers a solver
returns.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pear.optimality.duals_and_active_sets import ActiveSet, Duals
from pear.optimality.natural_sizes import RelativeResiduals, positive_size
from pear.optimality.rule import ROUNDOFF, TIGHT, WEAK
from pear.problem.matrix import matrix_row_squares, matvec
from pear.problem.quadratic_program import QuadraticProgram


def guess_active_set(
    qp: QuadraticProgram, x: Tensor, duals: Duals, scale: tuple[Tensor, Tensor] | None = None
) -> ActiveSet:
    """Guess the active constraints at approximate points: the constraints whose slack is at most their multiplier.

    Slacks are divided by the largest entry of the point, and multipliers by the largest entry of c and Hx. All
    constraints of a sample share these two units, because an interior-point solver stops near a point at which the
    product of slack and multiplier is the same for all constraints. A constraint whose slack is at most rounding
    (``rule.ROUNDOFF``) is active in any case. If the bounds of a variable coincide, or both would be active, only the
    lower bound is active.

    Args:
        qp: the programs.
        x: (B, n) the points.
        duals: the multipliers of the points.
        scale: the scaling of the solver that found the points: (m,) factors of the rows of G, and (n,) units of the
            variables. By default, rows are scaled to length one and variables are not scaled.
    """
    rows, columns = (
        (1 / positive_size(matrix_row_squares(qp.G).sqrt()), torch.ones_like(qp.c[:1])) if scale is None else scale
    )
    size = positive_size((x / columns).abs().amax(1, keepdim=True))
    unit = positive_size((columns * torch.maximum(qp.c.abs(), matvec(qp.H, x).abs())).amax(1, keepdim=True))
    slack, multiplier = (qp.h - matvec(qp.G, x)) * rows / size, duals.inequality / rows / unit
    bound = duals.bound * columns / unit
    at_lower = ((x - qp.lb) / columns / size <= (-bound).clamp(min=ROUNDOFF)) | (qp.lb == qp.ub)
    at_upper = ((qp.ub - x) / columns / size <= bound.clamp(min=ROUNDOFF)) & ~at_lower
    return ActiveSet(slack <= multiplier.clamp(min=ROUNDOFF), at_lower, at_upper)


def exact_active_set(
    qp: QuadraticProgram, measured: RelativeResiduals, working: ActiveSet
) -> tuple[ActiveSet, ActiveSet]:
    """Return the active sets of exact solutions, and the sets of their weakly active constraints.

    Args:
        qp: the programs.
        measured: the slacks and multipliers of the solutions, divided by their natural sizes.
        working: the constraints that were held with equality to compute the solutions.

    Returns:
        All tight constraints, which are those held with equality and those with zero slack; and the tight constraints
        whose multiplier is zero. Slacks and multipliers are zero up to the tolerances ``rule.TIGHT`` and ``rule.WEAK``.
        Bounds that coincide are never weakly active.
    """
    s, pinned = measured, qp.lb == qp.ub
    lower = working.lower | (s.slack_lower <= TIGHT)
    upper = (working.upper | (s.slack_upper <= TIGHT)) & ~lower
    active = ActiveSet(working.rows | (s.slack_rows <= TIGHT), lower, upper)
    weak = ActiveSet(
        active.rows & (s.multiplier_rows <= WEAK),
        active.lower & (-s.multiplier_bound <= WEAK) & ~pinned,
        active.upper & (s.multiplier_bound <= WEAK) & ~pinned,
    )
    return active, weak
