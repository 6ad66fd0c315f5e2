"""Derivatives of a loss L with respect to the data of a problem, computed from w = ∂L/∂z for the decisions z."""

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
"""A function without arguments that computes one derivative. Derivatives that nobody needs are never computed."""


def objective_derivatives(p: Tensor, z: Tensor, sign: int) -> list[Derivative]:
    """Return two functions that compute the derivatives of a loss with respect to the cost (B, n) and Q (B, n, n).

    Args:
        p: (B, n) the upstream gradients, projected by ``pear.sensitivity.projection.project``.
        z: (B, n) the decisions.
        sign: 1 for minimisation, −1 for maximisation.
    """
    return [
        lambda: -p if sign == 1 else p,
        lambda: -0.5 * sign * (_derivative_products(p, z) + _derivative_products(z, p)),
    ]


class DecisionPoint(NamedTuple):
    """The decisions of a batch of programs, with their multipliers and tight constraints.

    Attributes:
        qp: the programs.
        x: (B, n) the decisions.
        duals: the multipliers.
        active: the tight constraints.
    """

    qp: QuadraticProgram
    x: Tensor
    duals: Duals
    active: ActiveSet


def all_derivatives(solved: VerifiedSolutions, w: Tensor, sign: int) -> list[Derivative]:
    """Return functions for the derivatives of a loss with respect to the cost, Q, A, b, G, h, lb and ub, in this order.

    Args:
        solved: the verified solutions. The derivatives of failed samples are zero.
        w: (B, n) upstream gradients, the derivatives of the loss with respect to the decisions.
        sign: 1 for minimisation, −1 for maximisation.

    Returns:
        Eight functions without arguments. Each computes one derivative, with one row per sample.

    Raises:
        NotUniqueError: a decision is not unique.
        SolveError: a decision is unique, but its derivative could not be computed accurately.
    """
    keep = solved.solved[:, None]
    w = torch.where(keep, w, torch.zeros_like(w))
    p, q_eq, q_in, unique = solved.systems.project(w, least_multipliers=True)
    require_unique(solved, unique)
    p, q_eq, q_in = (torch.where(keep, v, torch.zeros_like(v)) for v in (p, q_eq, q_in))
    return derivatives_at(DecisionPoint(solved.qp, solved.x, solved.duals, solved.active), w, p, q_eq, q_in, sign)


def derivatives_of_unique_variables(solved: VerifiedSolutions, w: Tensor, sign: int) -> list[Derivative]:
    """Return the functions of ``all_derivatives`` for decisions that need not be unique in all of their variables.

    A variable that can move at no cost has no derivative. An example is a slack of a scenario whose weight is zero. The
    loss still has derivatives if w is zero along all directions that cost nothing, because the system
    ``[H Jᵀ; J 0][p; q] = [w; 0]`` then has a solution. H is the curvature, and J has the active constraints as rows.
    This function solves the system, checks the solution, and computes the derivatives from it.

    Args:
        solved: the verified solutions. The derivatives of failed samples are zero.
        w: (B, n) upstream gradients, zero for variables that can move at no cost.
        sign: 1 for minimisation, −1 for maximisation.

    Raises:
        NotUniqueError: the system has no solution, because w is not zero for a variable that is not unique.
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
    """Return the functions of ``all_derivatives``, given a solution of ``[H Jᵀ; J 0][p; q] = [w; 0]``.

    H is the curvature, and J has the active constraints as rows.

    Args:
        point: the decisions.
        w: (B, n) upstream gradients.
        p: (B, n) the part p of the solution, which belongs to the decisions.
        q_eq: the entries of q for the equalities, with one row per sample.
        q_in: the entries of q for the inequalities, with one row per sample; zero if an inequality is not tight.
        sign: 1 for minimisation, −1 for maximisation.
    """
    qp, z, duals, active = point

    def at_bound(where: Tensor) -> Tensor:
        slope = w - matvec(qp.H, p) - tmatvec(qp.A, q_eq) - tmatvec(qp.G, q_in)
        return torch.where(where, slope, torch.zeros_like(slope))

    # if both bounds of a variable coincide, the sign of the multiplier decides which bound the variable follows
    pinned = qp.lb == qp.ub
    upper = active.upper | (active.lower & pinned & (duals.bound > 0))
    return [
        *objective_derivatives(p, z, sign),
        lambda: -(_derivative_products(duals.equality, p) + _derivative_products(q_eq, z)),
        lambda: q_eq,
        lambda: (
            -(_derivative_products(torch.where(active.rows, duals.inequality, 0.0), p) + _derivative_products(q_in, z))
        ),
        lambda: q_in,
        lambda: at_bound(active.lower & ~upper),
        lambda: at_bound(upper),
    ]


def _derivative_products(a: Tensor, c: Tensor) -> Tensor:
    """Compute the outer products of the rows of a (B, r) and c (B, n). Shape (B, r, n)."""
    return a[:, :, None] * c[:, None, :]
