"""The constraints of a problem by name: how often they bind, and their shadow prices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from pear.decisions.continuous_programs import solve_continuous_programs
from pear.decisions.failures import report_failures
from pear.optimality.duals_and_active_sets import ActiveSet, Duals
from pear.problem import Model, Problem
from pear.problem.quadratic_program import QuadraticProgram

Array = NDArray[Any]


@dataclass(frozen=True)
class Constraints:
    """The constraints of a problem in one order: equalities, rows, lower bounds, upper bounds.

    Attributes:
        names: names of the m constraints.
        kinds: kind of each constraint: "equality", "row", "lower bound" or "upper bound".
        lower, upper: (n,) masks of the variables that have a lower or an upper bound in some sample.
    """

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    lower: Tensor
    upper: Tensor

    def columns(self, equalities: Tensor, rows: Tensor, lower: Tensor, upper: Tensor) -> Array:
        """Concatenate values of equalities (B, p), rows (B, r) and bounds (B, n) to one column per constraint: (B, m).

        Variables without a bound get no column for it.
        """
        parts = [equalities, rows, lower[:, self.lower], upper[:, self.upper]]
        return torch.cat([part.double() for part in parts], 1).cpu().numpy()

    def active(self, active: ActiveSet, p: int) -> Array:
        """Return a mask (B, m) of the tight constraints."""
        equalities = torch.ones(len(active.lower), p, device=active.lower.device)
        return self.columns(equalities, active.rows, active.lower, active.upper).astype(bool)

    def prices(self, duals: Duals) -> Array:
        """Return shadow prices (B, m): the gain from relaxing a limit, or raising an equality's b, by one unit."""
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
    """Measure how often each constraint binds under given costs, and its mean shadow price.

    Args:
        problem: the decision problem, continuous.
        cost: (B, n) costs.
        solver: name of the solver, as in ``pear.solve``.
        constraints: the constraints of the problem, from ``name_constraints``.

    Returns:
        For each constraint, the share of samples in which it is tight, (m,), and its mean shadow price, (m,).
    """
    solved = solve_continuous_programs(problem, cost, 0.0, solver)
    report_failures(solved.status, "raise", "the continuous problem")
    binding = constraints.active(solved.active, solved.qp.p).mean(0)
    return binding, constraints.prices(solved.duals).mean(0)
