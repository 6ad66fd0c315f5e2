"""The constraints of a problem: their names, how often each of them binds, and their shadow prices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pear.decisions.continuous_programs import solve_continuous_programs
from pear.decisions.failures import report_failures
from pear.optimality.duals_and_active_sets import ActiveSet, Duals
from pear.problem import Model, Problem
from pear.problem.quadratic_program import QuadraticProgram

if TYPE_CHECKING:
    from pear.diagnosis.diagnosis import Diagnosis

Array = NDArray[Any]


@dataclass(frozen=True)
class PricedConstraints:
    """The m constraints of a problem: equalities, inequality rows, finite lower bounds and finite upper bounds.

    Attributes:
        names: names of the constraints.
        kinds: kind of each constraint: "equality", "row", "lower bound" or "upper bound".
        lower, upper: (n,) masks of the variables that have a lower or an upper bound in some sample.
    """

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    lower: Tensor
    upper: Tensor

    @classmethod
    def of_program(
        cls, problem: Problem | Model, qp: QuadraticProgram, variables: tuple[str, ...]
    ) -> PricedConstraints:
        """Return the constraints of a problem, which are its rows and its finite bounds, with names.

        Args:
            problem: the user's problem. Rows of a ``Model`` have its names; rows of a ``Problem`` have numbers.
            qp: the continuous program of the problem.
            variables: names of the n variables, by which bounds are named.
        """
        lower, upper = qp.lb.isfinite().any(0), qp.ub.isfinite().any(0)
        rows = [*(f"equality {i}" for i in range(qp.p)), *(f"row {i}" for i in range(qp.m))]
        if isinstance(problem, Model) and len(problem.constraints) == len(rows):
            rows = list(problem.constraints)
        low, high = ([variables[i] for i in mask.nonzero()[:, 0].tolist()] for mask in (lower, upper))
        names = [
            *rows,
            *(f"{name} at its lower bound" for name in low),
            *(f"{name} at its upper bound" for name in high),
        ]
        counts = {"equality": qp.p, "row": qp.m, "lower bound": len(low), "upper bound": len(high)}
        return cls(tuple(names), tuple(kind for kind, count in counts.items() for _ in range(count)), lower, upper)

    def _columns(self, equalities: Tensor, rows: Tensor, lower: Tensor, upper: Tensor) -> Array:
        """Return a table (B, m) with a row for each sample and a column for each constraint.

        Args:
            equalities: (B, p) a number for each of the p equalities.
            rows: (B, r) a number for each of the r inequality rows.
            lower, upper: (B, n) a number for each bound of the n variables. Bounds that are infinite in all samples get
                no column.
        """
        parts = [equalities, rows, lower[:, self.lower], upper[:, self.upper]]
        return torch.cat([part.double() for part in parts], 1).cpu().numpy()

    def active(self, active: ActiveSet, p: int) -> Array:
        """Return which of the m constraints are tight in each of B samples, a mask (B, m).

        Args:
            active: the active set of each sample.
            p: the number of equalities, which are always tight.
        """
        equalities = torch.ones(len(active.lower), p, device=active.lower.device)
        return self._columns(equalities, active.rows, active.lower, active.upper).astype(bool)

    def prices(self, duals: Duals) -> Array:
        """Return the shadow prices (B, m) of the m constraints, from the multipliers of B samples.

        A shadow price is the gain if the limit is relaxed by one unit. For an equality, it is the gain if b rises by
        one unit.
        """
        bound = duals.bound
        return self._columns(duals.equality, duals.inequality, (-bound).clamp(min=0), bound.clamp(min=0))

    def shares_and_prices(self, problem: Problem, cost: Tensor, solver: str) -> tuple[Array, Array]:
        """Return how often each constraint binds under given costs, and its mean shadow price.

        Args:
            problem: the decision problem, continuous.
            cost: (B, n) costs.
            solver: name of the solver, as in ``pear.solve``.

        Returns:
            For each of m constraints, the share of samples in which it is tight (m,), and its mean shadow price (m,).
        """
        solved = solve_continuous_programs(problem, cost, 0.0, solver)
        report_failures(solved.status, "raise", "the continuous problem")
        return self.active(solved.active, solved.qp.p).mean(0), self.prices(solved.duals).mean(0)


def unknown_constraint_prices(count: int) -> dict[str, Any]:
    """Return empty values for the fields of a ``Diagnosis`` that describe constraints, for ``count`` samples."""
    nothing: dict[str, Any] = {name: np.zeros(0) for name in ("binding", "shadow_price", "best_binding")}
    nothing |= {"best_shadow_price": np.zeros(0), "constraint_names": (), "constraint_kinds": ()}
    return nothing | {name: np.zeros((count, 0), dtype=bool) for name in ("active", "best_active")}


def rank_constraint_prices(found: Diagnosis) -> Array:
    """Return the positions of the inequality rows and bounds that bind in some sample, under the forecast or the truth.

    The constraint with the highest mean shadow price, under the forecast or the truth, comes first.
    """
    price = np.maximum(np.abs(found.shadow_price), np.abs(found.best_shadow_price))
    binding = np.maximum(found.binding, found.best_binding)
    choice = np.array([kind != "equality" for kind in found.constraint_kinds], dtype=bool) & (binding > 0)
    order = np.lexsort((-binding, -price))
    return order[choice[order]]
