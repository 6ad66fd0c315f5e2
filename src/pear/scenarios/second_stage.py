"""``SecondStage``: the best recourse of first-stage decisions under known values, and what both cost together."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pear.decisions.decider import Decider
from pear.decisions.integer_programs import solve_integer_programs
from pear.problem import Problem
from pear.problem.constraint_map import constraint_sides
from pear.problem.matrix import Matrix, SparseMatrix, matvec, tmatvec
from pear.problem.sample_keys import select_by_keys
from pear.scenarios.blocks import select
from pear.scenarios.two_stages import TwoStages


@dataclass(frozen=True)
class RealisedPlans:
    """First-stage decisions with their best recourse; all is zero where a sample failed.

    Attributes:
        z: (B, N) all decisions, slacks included.
        cost: (B,) what they cost, minimised.
        slope: (B, n₁) the derivative of the cost by the first-stage decisions, by the second stage's multipliers.
        status: (B,) int8 of ``Status``, of the second stage.
    """

    z: Tensor
    cost: Tensor
    slope: Tensor
    status: Tensor


class SecondStage:
    """Decides ``min f(x, y; c)`` over the second stage y, for first-stage decisions x that stand.

    Args:
        stages: the program in two stages.
        solver: "auto" or a name that ``pear solvers`` lists.
        exact: whether integers are kept and the added curvature is left out.

    Attributes:
        problem: the program of the second stage, with the rows that hold it; None where there is no second stage.
    """

    def __init__(self, stages: TwoStages, solver: str = "auto", exact: bool = False) -> None:
        self.stages, self.solver = stages, solver
        self.whole = whole = stages.exact if exact else stages.problem
        first, second = stages.first, stages.second
        self._linking: dict[str, Matrix] = {}
        fields: dict[str, Any] = {}
        for side, name in (("b", "A"), ("h", "G")):
            matrix, own = getattr(whole, name), stages.own[side]
            if len(own):
                self._linking[side] = _in_program(select(matrix, own, first))
                fields |= {name: select(matrix, own, second), side: torch.zeros(len(own)).double()}
        self._Q_first = None if whole.Q is None else _in_program(select(whole.Q, first, first))
        self._Q_mixed = None if whole.Q is None else _in_program(select(whole.Q, second, first))
        self.problem: Problem | None = None
        if len(second):
            bounds = constraint_sides(whole)
            fields |= {name: bounds[name][..., second] for name in ("lb", "ub")}
            if whole.Q is not None:
                fields["Q"] = select(whole.Q, second, second)
            if whole.integer is not None and bool(whole.integer[second].any()):
                fields["integer"] = whole.integer[second]
            self.problem = Problem(n=len(second), **fields)
            self.decider = Decider(self.problem.relaxed(), solver)

    def realise(self, x: Tensor, values: Tensor, keys: list[Hashable] | None = None) -> RealisedPlans:
        """Decide the second stage for first-stage decisions, detached.

        Args:
            x: (B, n₁) first-stage decisions.
            values: (B, k) true values.
            keys: B sample ids, or None.
        """
        first, second = self.stages.first, self.stages.second
        cost, sides = self.stages.costs(values, keys), self._sides(values, keys)
        c1, c2 = cost[:, first], cost[:, second]
        fixed = (c1 * x).sum(1)
        slope = c1.clone()
        if self._Q_first is not None:
            bent = matvec(_rows_of(self._Q_first, keys), x)
            fixed, slope = fixed + 0.5 * (bent * x).sum(1), slope + bent
        z = torch.zeros_like(cost)
        z[:, first] = x
        if self.problem is None:
            return RealisedPlans(z, fixed, slope, torch.zeros(len(x), dtype=torch.int8))
        if self._Q_mixed is not None:
            c2 = c2 + matvec(_rows_of(self._Q_mixed, keys), x)
        fields: dict[str, Any] = {
            name: bound[..., second] for name, bound in sides.items() if name in ("lb", "ub") and bound.ndim == 2
        }
        for side, linking in self._linking.items():
            fields[side] = sides[side][..., self.stages.own[side]] - matvec(_rows_of(linking, keys), x)
        if self.problem.is_integer:
            found = solve_integer_programs(select_by_keys(self.problem, keys), c2, solver=self.solver, **fields)
            good, y, status = found.solved, found.x, found.status
        else:
            solved = self.decider.solve(c2, 0.0, keys, **fields)
            good, y, status = solved.solved, solved.x, solved.status
            multipliers = {"b": solved.duals.equality, "h": solved.duals.inequality}
            for side, linking in self._linking.items():
                slope = slope + tmatvec(_rows_of(linking, keys), multipliers[side])
            if self._Q_mixed is not None:
                slope = slope + tmatvec(_rows_of(self._Q_mixed, keys), y)
        y = torch.where(good[:, None], y, 0.0)
        value = fixed + (c2 * y).sum(1)
        if self.problem.Q is not None:
            value = value + 0.5 * (matvec(_in_program(select_by_keys(self.problem, keys).Q), y) * y).sum(1)
        z[:, second] = y
        keep = good[:, None]
        return RealisedPlans(
            torch.where(keep, z, 0.0), torch.where(good, value, 0.0), torch.where(keep, slope, 0.0), status
        )

    def _sides(self, values: Tensor, keys: list[Hashable] | None) -> dict[str, Tensor]:
        """Return the right-hand sides and bounds of the program, (r,) or (B, r)."""
        return constraint_sides(select_by_keys(self.whole, keys)) | self.stages.sides(values, keys)


def _in_program(matrix: Any) -> Matrix:
    """A matrix (r, c) or (N, r, c) of any kind in the form that a program has."""
    if isinstance(matrix, Tensor):
        return matrix if matrix.ndim == 3 else matrix[None]
    return SparseMatrix(matrix.csr if isinstance(matrix, SparseMatrix) else matrix, shared=True)


def _rows_of(matrix: Matrix, keys: list[Hashable] | None) -> Matrix:
    """The matrices of the samples with these keys; one that all share is returned as it is."""
    return matrix if keys is None or matrix.shape[0] == 1 else matrix[torch.tensor(keys)]
