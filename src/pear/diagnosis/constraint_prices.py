"""The constraints of a problem by name: how often they bind, and their shadow prices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from pear.decisions.solve import fail, solve_verified
from pear.optimality.point import ActiveSet, Duals
from pear.problem import Model, Problem
from pear.problem.canonical import QuadraticProgram

Array = NDArray[Any]


@dataclass(frozen=True)
class Constraints:
    """The constraints of a problem in one order: equalities, rows, lower bounds, upper bounds.

    Attributes:
        names: the m names.
        kinds: "equality", "row", "lower bound" or "upper bound".
        lower, upper: (n,) bool, which variables have a bound in some sample.
    """

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    lower: Tensor
    upper: Tensor

    def columns(self, equalities: Tensor, rows: Tensor, lower: Tensor, upper: Tensor) -> Array:
        """Join numbers of equalities (B, p), rows (B, r) and bounds (B, n) to those of all constraints, (B, m)."""
        parts = [equalities, rows, lower[:, self.lower], upper[:, self.upper]]
        return torch.cat([part.double() for part in parts], 1).cpu().numpy()

    def active(self, active: ActiveSet, p: int) -> Array:
        """(B, m) bool: the constraints that are tight."""
        equalities = torch.ones(len(active.lower), p, device=active.lower.device)
        return self.columns(equalities, active.rows, active.lower, active.upper).astype(bool)

    def prices(self, duals: Duals) -> Array:
        """(B, m) shadow prices: the gain when a limit is relaxed by one unit, or the b of an equality raised by one."""
        bound = duals.bound
        return self.columns(duals.equality, duals.inequality, (-bound).clamp(min=0), bound.clamp(min=0))


def name_constraints(problem: Problem | Model, qp: QuadraticProgram, variables: tuple[str, ...]) -> Constraints:
    """Name the constraints of a problem by the names of its rows, or by numbers, and of its variables."""
    lower, upper = qp.lb.isfinite().any(0), qp.ub.isfinite().any(0)
    rows = [*(f"equality {i}" for i in range(qp.p)), *(f"row {i}" for i in range(qp.m))]
    if isinstance(problem, Model) and len(problem.constraints) == len(rows):
        rows = list(problem.constraints)
    bounded = [[variables[i] for i in mask.nonzero()[:, 0].tolist()] for mask in (lower, upper)]
    names = [*rows, *(f"{name} at its lower bound" for name in bounded[0])]
    names += [f"{name} at its upper bound" for name in bounded[1]]
    kinds = ["equality"] * qp.p + ["row"] * qp.m + ["lower bound"] * len(bounded[0]) + ["upper bound"] * len(bounded[1])
    return Constraints(tuple(names), tuple(kinds), lower, upper)


def price_constraints(problem: Problem, cost: Tensor, solver: str, constraints: Constraints) -> tuple[Array, Array]:
    """Find how often constraints bind under some costs, and at what price.

    Args:
        problem: what is decided, continuous.
        cost: (B, n).
        solver: as of ``pear.solve``.
        constraints: of the problem.

    Returns:
        For each constraint, the share of samples in which it is tight, (m,), and its mean shadow price, (m,).
    """
    solved = solve_verified(problem, cost, 0.0, solver)
    fail(solved.status, "raise", "the continuous problem")
    binding = constraints.active(solved.active, solved.qp.p).mean(0)
    return binding, constraints.prices(solved.duals).mean(0)
