"""The rule that decides which constraints are active.

At an inexact point the active set is a guess: a constraint counts as active where its slack, free of units, is no
larger than its multiplier. At an exact solution a constraint is active where it is tight, whatever its multiplier. A
tight constraint with a zero multiplier is weakly active, and counts as active. The final set therefore depends on the
decision alone, and not on which of several possible multipliers a solver returns.
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
    """The active set that approximate points and their multipliers suggest, by complementarity.

    Slacks are measured in units of the largest decision and multipliers in units of the largest cost. These units are
    the same for all constraints of a sample, because on the central path of an interior-point solver the product of
    slack and multiplier is the same for all constraints.

    Args:
        qp: the programs.
        x: (B, n) the points.
        duals: their multipliers.
        scale: the factors of the rows of G (m,) and the units of the variables (n,) in which the solver works. By
            default rows are scaled to length one and variables are not scaled.
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
    """The active set of exact solutions, and the weakly active constraints in it.

    Args:
        qp: the programs.
        measured: the slacks and multipliers of the solutions, relative to their natural sizes.
        working: the constraints that the solutions were computed with, which are tight by construction.

    Returns:
        All tight constraints, and those of them whose multiplier is zero. A variable whose bounds coincide is never
        weakly active.
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
