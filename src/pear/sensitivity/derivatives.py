"""Derivatives of a loss L by the cost, matrices, right-hand sides and bounds of a problem, from w = ∂L/∂z."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from pear.errors import NotUniqueError
from pear.optimality.duals_and_active_sets import ActiveSet, Duals
from pear.optimality.rule import OPTIMAL
from pear.problem.matrix import matvec, tmatvec
from pear.problem.quadratic_program import QuadraticProgram
from pear.sensitivity.uniqueness import require_unique
from pear.sensitivity.verified_solutions import VerifiedSolutions

Derivative = Callable[[], Tensor]
"""A function without arguments that computes one derivative, so that only those that are needed are computed."""


def objective_derivatives(p: Tensor, z: Tensor, sign: int) -> list[Derivative]:
    """Make functions that return the derivatives with respect to the cost (B, n) and to Q (B, n, n).

    Args:
        p: (B, n) projection P w of the upstream gradient w.
        z: (B, n) decisions.
        sign: 1 for minimisation, −1 for maximisation.
    """
    return [lambda: -sign * p, lambda: -0.5 * sign * (_outer(p, z) + _outer(z, p))]


class DecisionPoint(NamedTuple):
    """Solutions of a batch of programs, with their multipliers and tight constraints.

    Attributes:
        qp: the programs.
        x: (B, n) decisions.
        duals: the multipliers.
        active: the constraints that are tight.
    """

    qp: QuadraticProgram
    x: Tensor
    duals: Duals
    active: ActiveSet


def all_derivatives(solved: VerifiedSolutions, w: Tensor, sign: int) -> list[Derivative]:
    """Make functions that return the derivatives in the cost, Q, A, b, G, h, lb and ub, one row per sample.

    Args:
        solved: the verified solutions.
        w: (B, n) upstream gradient.
        sign: 1 for minimisation, −1 for maximisation.

    Raises:
        NotUniqueError: a decision is not unique.
    """
    keep = solved.solved[:, None]
    w = torch.where(keep, w, torch.zeros_like(w))
    p, q_eq, q_in, unique = solved.systems.project(w, least_multipliers=True)
    require_unique(solved, unique)
    p, q_eq, q_in = (torch.where(keep, v, torch.zeros_like(v)) for v in (p, q_eq, q_in))
    return derivatives_at(DecisionPoint(solved.qp, solved.x, solved.duals, solved.active), w, p, q_eq, q_in, sign)


def derivatives_of_part(solved: VerifiedSolutions, w: Tensor, sign: int) -> list[Derivative]:
    """Make the functions of ``all_derivatives`` for a loss of variables that are unique, if others need not be.

    Some variables may move at no cost, such as the slacks of a scenario without weight. They have no derivative. The
    other variables have one if w is zero along all directions that cost nothing: ``[H Jᵀ; J 0][p; q] = [w; 0]`` then
    has a solution. Whether it has one is checked.

    Args:
        solved: the verified solutions.
        w: (B, n) upstream gradient, zero for the variables that need not be unique.
        sign: 1 for minimisation, −1 for maximisation.

    Raises:
        NotUniqueError: the system has no solution: w reaches variables that are not unique.
    """
    qp, keep = solved.qp, solved.solved[:, None]
    w = torch.where(keep, w, torch.zeros_like(w))
    sides = w, w.new_zeros(len(w), qp.p), w.new_zeros(len(w), qp.m)
    *fast, good = solved.systems.solve(*sides)
    if not bool((good | ~keep[:, 0]).all()):
        careful = solved.systems.solve_carefully(*sides)[:3]
        fast = [torch.where(good[:, None], f, c) for f, c in zip(fast, careful, strict=True)]
    p, q_eq, q_in = (torch.where(keep, v, torch.zeros_like(v)) for v in fast)
    terms = matvec(qp.H, p), tmatvec(qp.A, q_eq), tmatvec(qp.G, q_in)
    rest = torch.where(solved.active.fixed, 0.0, w - terms[0] - terms[1] - terms[2]).abs().amax(1)
    size = w.abs().amax(1) + torch.stack([term.abs().amax(1) for term in terms]).amax(0)
    left = (rest > OPTIMAL * size).nonzero()[:, 0].tolist()
    if left:
        raise NotUniqueError(
            "the decision of {samples} is not unique, so that it has no derivative; a quadratic term or smoothing > 0 "
            "makes it unique",
            left,
        )
    return derivatives_at(DecisionPoint(solved.qp, solved.x, solved.duals, solved.active), w, p, q_eq, q_in, sign)


def derivatives_at(
    point: DecisionPoint, w: Tensor, p: Tensor, q_eq: Tensor, q_in: Tensor, sign: int
) -> list[Derivative]:
    """The same functions from the solution ``[H Jᵀ; J 0][p; q] = [w; 0]`` of the reduced systems.

    Args:
        point: the solutions.
        w: (B, n) upstream gradient.
        p: (B, n) the projection P w.
        q_eq: (B, p) the multipliers of the equalities in the reduced systems.
        q_in: (B, m) those of the inequalities, zero where they are not tight.
        sign: 1 for minimisation, −1 for maximisation.
    """
    qp, z, duals, active = point

    def at_bound(where: Tensor) -> Tensor:
        slope = w - matvec(qp.H, p) - tmatvec(qp.A, q_eq) - tmatvec(qp.G, q_in)
        return torch.where(where, slope, torch.zeros_like(slope))

    # where both bounds of a variable coincide, its multiplier decides which of them it follows
    pinned = qp.lb == qp.ub
    upper = active.upper | (active.lower & pinned & (duals.bound > 0))
    return [
        *objective_derivatives(p, z, sign),
        lambda: -(_outer(duals.equality, p) + _outer(q_eq, z)),
        lambda: q_eq,
        lambda: -(_outer(torch.where(active.rows, duals.inequality, 0.0), p) + _outer(q_in, z)),
        lambda: q_in,
        lambda: at_bound(active.lower & ~upper),
        lambda: at_bound(upper),
    ]


def _outer(a: Tensor, c: Tensor) -> Tensor:
    return a[:, :, None] * c[:, None, :]
