"""Derivatives of a loss L by the cost, matrices, right-hand sides and bounds of a problem, from w = ∂L/∂z."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from pear.problem.matrix import matvec, tmatvec
from pear.sensitivity.uniqueness import require_unique
from pear.sensitivity.verified_solutions import VerifiedSolutions

Derivative = Callable[[], Tensor]
"""A function without arguments that computes one derivative, so that only those that are needed are computed."""


def objective_derivatives(p: Tensor, z: Tensor, sign: int) -> list[Derivative]:
    """Functions that return the derivatives by cost (B, n) and by Q (B, n, n).

    Args:
        p: (B, n) projection P w of the upstream gradient w.
        z: (B, n) decisions.
        sign: 1 for minimisation, −1 for maximisation.
    """
    return [lambda: -sign * p, lambda: -0.5 * sign * (_outer(p, z) + _outer(z, p))]


def all_derivatives(solved: VerifiedSolutions, w: Tensor, sign: int) -> list[Derivative]:
    """Functions that return the derivatives by cost, Q, A, b, G, h, lb and ub, one row per sample.

    Args:
        solved: the verified solutions.
        w: (B, n) upstream gradient.
        sign: 1 for minimisation, −1 for maximisation.

    Raises:
        NotUniqueError: a decision is not unique.
    """
    qp, z, duals, active = solved.qp, solved.x, solved.duals, solved.active
    keep = solved.solved[:, None]
    w = torch.where(keep, w, torch.zeros_like(w))
    p, q_eq, q_in, unique = solved.systems.project(w, least_multipliers=True)
    require_unique(solved, unique)
    p, q_eq, q_in = (torch.where(keep, v, torch.zeros_like(v)) for v in (p, q_eq, q_in))

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
