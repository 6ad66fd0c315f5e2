"""``SecondStage``: the best second-stage decisions for a given first stage and true values, and the total cost."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pear.decisions.decider import Decider
from pear.decisions.integer_programs import solve_integer_programs
from pear.optimality.natural_sizes import decision_sizes, finite_size, positive_size, smallest_limit
from pear.optimality.rule import FEASIBLE
from pear.problem import Problem
from pear.problem.constraint_map import constraint_sides
from pear.problem.matrix import Matrix, SparseMatrix, matrix_row_squares, matvec, tmatvec
from pear.problem.sample_keys import select_by_keys
from pear.scenarios.blocks import select_block
from pear.scenarios.two_stages import TwoStages


@dataclass(frozen=True)
class RealisedPlans:
    """First-stage decisions with their best second stage. A failed sample has zeros in ``z``, ``cost`` and ``slope``.

    Attributes:
        z: (B, N) the decisions of both stages in N columns, slacks included.
        cost: (B,) the cost, negated if the problem maximises.
        slope: (B, n₁) the derivative of the cost with respect to the n₁ first-stage variables. With integers in the
            second stage, only terms without second-stage variables are differentiated.
        status: (B,) int8 values of ``Status``, of the second stage.
    """

    z: Tensor
    cost: Tensor
    slope: Tensor
    status: Tensor


class SecondStage:
    """The program that minimises the cost ``f(x, y; c)`` over the second stage y, for a first stage x and values c.

    Args:
        stages: the program in two stages.
        solver: "auto" or a name that ``pear solvers`` lists.
        exact: whether to use the program with its integers and without added curvature.

    Attributes:
        whole: the program of both stages.
        problem: the program of the second stage; None if all variables belong to the first stage.
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
                self._linking[side] = _second_stage_matrix(select_block(matrix, own, first))
                fields |= {name: select_block(matrix, own, second), side: torch.zeros(len(own)).double()}
        self._Q_first = None if whole.Q is None else _second_stage_matrix(select_block(whole.Q, first, first))
        self._Q_mixed = None if whole.Q is None else _second_stage_matrix(select_block(whole.Q, second, first))
        self._row_norms: Tensor | None = None
        if whole.G is not None:
            self._row_norms = positive_size(matrix_row_squares(_second_stage_matrix(whole.G)).sqrt())
        self.problem: Problem | None = None
        if len(second):
            bounds = constraint_sides(whole)
            fields |= {name: bounds[name][..., second] for name in ("lb", "ub")}
            if whole.Q is not None:
                fields["Q"] = select_block(whole.Q, second, second)
            if whole.integer is not None and bool(whole.integer[second].any()):
                fields["integer"] = whole.integer[second]
            self.problem = Problem(n=len(second), **fields)
            self.decider = Decider(self.problem.relaxed(), solver)

    def realise(self, x: Tensor, values: Tensor, keys: list[Hashable] | None = None) -> RealisedPlans:
        """Return first-stage decisions with the best second stage under true values.

        The results are detached from autograd.

        Args:
            x: (B, n₁) decisions of the n₁ first-stage variables. Entries that violate a bound by rounding are moved to
                the bound.
            values: (B, k) true values of k predicted numbers.
            keys: B sample ids, or None.
        """
        first, second = self.stages.first, self.stages.second
        cost, sides = self.stages.costs(values, keys), self._sides(values, keys)
        x = self._without_rounding(x, sides, keys)
        c1, c2 = cost[:, first], cost[:, second]
        fixed = (c1 * x).sum(1)
        slope = c1.clone()
        if self._Q_first is not None:
            bent = matvec(_second_stage_samples(self._Q_first, keys), x)
            fixed, slope = fixed + 0.5 * (bent * x).sum(1), slope + bent
        z = torch.zeros_like(cost)
        z[:, first] = x
        if self.problem is None:
            return RealisedPlans(z, fixed, slope, torch.zeros(len(x), dtype=torch.int8))
        if self._Q_mixed is not None:
            c2 = c2 + matvec(_second_stage_samples(self._Q_mixed, keys), x)
        fields: dict[str, Any] = {
            name: bound[..., second] for name, bound in sides.items() if name in ("lb", "ub") and bound.ndim == 2
        }
        for side, linking in self._linking.items():
            fields[side] = sides[side][..., self.stages.own[side]] - matvec(_second_stage_samples(linking, keys), x)
        if self.problem.is_integer:
            found = solve_integer_programs(select_by_keys(self.problem, keys), c2, solver=self.solver, **fields)
            good, y, status = found.solved, found.x, found.status
        else:
            solved = self.decider.solve(c2, 0.0, keys, **fields)
            good, y, status = solved.solved, solved.x, solved.status
            multipliers = {"b": solved.duals.equality, "h": solved.duals.inequality}
            for side, linking in self._linking.items():
                slope = slope + tmatvec(_second_stage_samples(linking, keys), multipliers[side])
            if self._Q_mixed is not None:
                slope = slope + tmatvec(_second_stage_samples(self._Q_mixed, keys), y)
        y = torch.where(good[:, None], y, 0.0)
        value = fixed + (c2 * y).sum(1)
        if self.problem.Q is not None:
            value = value + 0.5 * (matvec(_second_stage_matrix(select_by_keys(self.problem, keys).Q), y) * y).sum(1)
        z[:, second] = y
        keep = good[:, None]
        return RealisedPlans(
            torch.where(keep, z, 0.0), torch.where(good, value, 0.0), torch.where(keep, slope, 0.0), status
        )

    def _without_rounding(self, x: Tensor, sides: dict[str, Tensor], keys: list[Hashable] | None) -> Tensor:
        """Return first-stage decisions without violations of bounds that are due to rounding. Larger violations stay.

        An entry of −1e-20 that stands for 0 would leave no point to a second stage with the row ``y ≤ 4x`` and
        ``y ≥ 0``. Rounding is relative to the natural sizes of the decisions. If all decisions are close to zero, the
        bounds and limits of both stages determine these sizes.

        Args:
            x: (B, n₁) decisions of the n₁ first-stage variables.
            sides: limits and bounds of both stages, from ``_sides``.
            keys: B sample ids, or None.
        """
        lower, upper = (sides[name][..., self.stages.first] for name in ("lb", "ub"))
        limits = [sides["lb"], sides["ub"]]
        if self._row_norms is not None:
            norms = self._row_norms
            limits.append(sides["h"] / (norms if keys is None or len(norms) == 1 else norms[torch.tensor(keys)]))
        limit = smallest_limit(limits)
        largest = torch.maximum(x.abs().amax(1, keepdim=True), torch.where(limit < torch.inf, limit, 0.0))
        inside = torch.minimum(torch.maximum(x, lower), upper)
        size = decision_sizes(x.abs(), largest, upper - lower) + finite_size(inside)
        return torch.where((x - inside).abs() <= FEASIBLE * size, inside, x)

    def _sides(self, values: Tensor, keys: list[Hashable] | None) -> dict[str, Tensor]:
        """Return b, h, lb and ub of the program of both stages. Fields that differ by sample have a row for each."""
        return constraint_sides(select_by_keys(self.whole, keys)) | self.stages.sides(values, keys)


def _second_stage_matrix(matrix: Any) -> Matrix:
    """Return a dense or sparse matrix (r, c) as (1, r, c). Matrices (N, r, c) of N samples stay as they are."""
    if isinstance(matrix, Tensor):
        return matrix if matrix.ndim == 3 else matrix[None]
    return SparseMatrix(matrix.csr if isinstance(matrix, SparseMatrix) else matrix, shared=True)


def _second_stage_samples(matrix: Matrix, keys: list[Hashable] | None) -> Matrix:
    """Return the matrices (B, r, c) of the samples ``keys``, or (1, r, c) if all samples share one matrix."""
    return matrix if keys is None or matrix.shape[0] == 1 else matrix[torch.tensor(keys)]
