"""``ExtensiveForm``: all scenarios of a two-stage program as one program, which has the first stage once."""

from __future__ import annotations

from collections.abc import Hashable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from pear.errors import ProblemError
from pear.problem import Problem
from pear.problem.constraint_map import constraint_sides
from pear.problem.quadratic_program import MIN_VARIABLES
from pear.problem.sample_keys import select_by_keys
from pear.scenarios.blocks import Block, assemble_blocks, select_block
from pear.scenarios.risk import Risk
from pear.scenarios.two_stages import TwoStages

_INF = float("inf")


class ExtensiveForm:
    """The program that minimises the risk over S scenarios, in the first stage x and the second stages y₁, …, y_S.

    The variables are x, then y₁, …, y_S. The cost of scenario s is fₛ(x, yₛ), and its weight is pₛ. If the risk measure
    has a weight w > 0, the variables η and t₁, …, t_S ≥ 0 of Rockafellar and Uryasev follow. The objective is then
    ``(1 − w) Σ pₛfₛ + w (η + Σ pₛtₛ / tail)``, where ``tail`` is the share of the worst scenarios. The *rows of the
    risk* are ``fₛ − η − tₛ ≤ 0`` for each s. For the worst case there are no variables tₛ. A cost of the first stage
    that is equal in all scenarios is no part of fₛ here. It is added to the objective.

    Args:
        stages: the program in two stages, with N columns.
        weights: (S,) weights of the scenarios, which sum to one.
        risk: the risk measure.

    Attributes:
        problem: the extensive program, minimised and continuous. Its matrices are passed in sparse form if it has at
            least ``MIN_VARIABLES`` variables, all samples share them, and ``varying`` is False.
        scenarios: S.
        n: the number of variables of the extensive program.
        columns: (S, N) for each scenario the column of each variable of the two-stage program.
    """

    def __init__(self, stages: TwoStages, weights: Tensor, risk: Risk) -> None:
        self.stages, self.weights, self.risk, self.scenarios = stages, weights, risk, len(weights)
        self.first, self.second = len(stages.first), len(stages.second)
        self.has_rows = risk.weight > 0
        self.excesses = self.scenarios if self.has_rows and risk.tail > 0 else 0
        self.n = self.first + self.scenarios * self.second + self.excesses + int(self.has_rows)
        if self.has_rows and not stages.curved_first_alone:
            raise ProblemError(
                "the objective has a quadratic term in second-stage variables, and the risk of a quadratic cost is no "
                "quadratic program; take pear.Expectation(), or name these variables in first"
            )
        at = torch.empty(self.scenarios, stages.size, dtype=torch.long)
        at[:, stages.first] = torch.arange(self.first)
        own = self.first + torch.arange(self.scenarios * self.second)
        at[:, stages.second] = own.reshape(self.scenarios, self.second)
        self.columns = at
        self.problem = self._build()

    def _build(self) -> Problem:
        """Return the extensive program without costs.

        Right-hand sides and bounds are those for predicted values of zero.
        """
        stages, sides = self.stages, constraint_sides(self.stages.problem)
        fields: dict[str, Any] = {"Q": self._curvature(), "n": self.n}
        for side, name in (("b", "A"), ("h", "G")):
            matrix = getattr(stages.problem, name)
            own = sides[side].expand(1, -1) if sides[side].ndim == 1 else sides[side][:1]
            fields[side] = self._side(side, own[:, None].expand(1, self.scenarios, -1))[0]
            fields[name] = None if not len(fields[side]) else self._rows(side, matrix)
        fields = {name: value for name, value in fields.items() if value is not None}
        fields = {name: value for name, value in fields.items() if name not in ("b", "h") or len(value)}
        for name in ("lb", "ub"):
            bound = sides[name] if sides[name].ndim == 1 else sides[name][0]
            fields[name] = self._bound(name, bound.expand(1, self.scenarios, -1))[0]
        if self.n < MIN_VARIABLES or self.varying:
            fields = {k: value.toarray() if hasattr(value, "toarray") else value for k, value in fields.items()}
        return Problem(**fields)

    def _rows(self, side: str, matrix: Any) -> Any:
        """Return the extensive A or G: the rows that scenarios share, the rows of each scenario, and those of the risk.

        If ``varying`` is True, the rows of the risk are without costs. ``_varying_rows`` adds the costs of a call.

        Args:
            side: "b" for A, "h" for G.
            matrix: A or G of the two-stage program.
        """
        stages, blocks = self.stages, []
        shared, own = stages.shared[side], stages.own[side]
        everything = torch.arange(stages.size)
        if len(shared):
            blocks.append(
                Block(
                    select_block(matrix, shared, stages.first), torch.arange(len(shared)), self.columns[0, stages.first]
                )
            )
        part = select_block(matrix, own, everything) if len(own) else None
        for s in range(self.scenarios if len(own) else 0):
            blocks.append(Block(part, len(shared) + s * len(own) + torch.arange(len(own)), self.columns[s]))
        rows = len(shared) + self.scenarios * len(own)
        if side == "h" and self.has_rows:
            known = None if self.varying else self._risk_costs(self._known_costs())[0]
            for s in range(self.scenarios):
                row = torch.tensor([rows + s])
                blocks.append(Block(torch.tensor([[-1.0]]).double(), row, torch.tensor([self.n - 1 - self.excesses])))
                if self.excesses:
                    blocks.append(
                        Block(torch.tensor([[-1.0]]).double(), row, torch.tensor([self.n - self.excesses + s]))
                    )
                if known is not None:
                    blocks.append(Block(known[s][None], row, self.columns[s]))
            rows += self.scenarios
        return assemble_blocks(blocks, rows, self.n)

    def _curvature(self) -> Any:
        """Return the extensive Q, or None.

        Entries of second-stage variables are multiplied by the weight of their scenario.
        """
        Q = self.stages.problem.Q
        if Q is None:
            return None
        first, second = self.stages.first, self.stages.second
        blocks = [Block(select_block(Q, first, first), torch.arange(self.first), torch.arange(self.first))]
        parts = [
            (select_block(Q, i, j), i, j)
            for i, j in ((first, second), (second, first), (second, second))
            if len(second)
        ]
        for s, weight in enumerate(self.weights.tolist()):
            blocks += [Block(part * weight, self.columns[s, i], self.columns[s, j]) for part, i, j in parts]
        return assemble_blocks(blocks, self.n, self.n)

    @cached_property
    def varying(self) -> bool:
        """Whether costs in the rows of the risk are predicted or differ by sample, so that every call has its own G."""
        own = self.stages.model.cost_map
        return self.has_rows and (bool(self.stages.varying_costs.any()) or (own is not None and own.batch is not None))

    def _known_costs(self) -> Tensor:
        """Return the costs (1, S, N) of the N columns in S scenarios if all predicted values are zero."""
        k = self.stages.model.inputs
        return self.stages.costs(torch.zeros(1, k, dtype=torch.float64), None)[:, None].expand(1, self.scenarios, -1)

    def data(
        self, values: Tensor, keys: list[Hashable] | None = None, weights: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Any]]:
        """Return the costs of the extensive program, and its fields that are not constant, differentiably.

        Args:
            values: (B, S, k) predicted values, k for each of S scenarios.
            keys: B sample ids, or None.
            weights: (B, S) weights of the scenarios in this call; those of the program if omitted.

        Returns:
            The costs (B, n), and those fields among b, h, lb, ub and G that are predicted or differ by sample.
        """
        count = len(values)
        flat, repeated = values.reshape(count * self.scenarios, -1), self.repeat_keys(keys, count)
        costs = self.stages.costs(flat, repeated).reshape(count, self.scenarios, -1)
        p = self.weights.expand(count, -1) if weights is None else weights
        sides = {
            name: side.reshape(count, self.scenarios, -1) for name, side in self.stages.sides(flat, repeated).items()
        }
        fields: dict[str, Any] = {name: self._side(name, sides[name]) for name in ("b", "h") if name in sides}
        fields |= {name: self._bound(name, sides[name]) for name in ("lb", "ub") if name in sides}
        if self.varying:
            fields["G"] = self._varying_rows(costs, keys)
        return self._cost(costs, p), fields

    def repeat_keys(self, keys: list[Hashable] | None, count: int) -> list[Hashable] | None:
        """Return the keys of the samples, each repeated for S scenarios, or None if all samples share the model's data.

        Raises:
            ProblemError: samples have their own data, and the keys that name them are missing.
        """
        model = self.stages.model
        own = model.problem.batch if model.cost_map is None else model.problem.batch or model.cost_map.batch
        if own is None:
            return None
        if keys is None and own != count:
            raise ProblemError(
                f"{own} samples have data of their own, and values of {count} came; pass keys, the row numbers of the "
                "samples"
            )
        ids: list[Hashable] = list(range(count)) if keys is None else keys
        return [key for key in ids for _ in range(self.scenarios)]

    def _cost(self, costs: Tensor, p: Tensor) -> Tensor:
        """Return the costs (B, n) of the extensive program.

        Args:
            costs: (B, S, N) costs of the N columns in S scenarios.
            p: (B, S) weights of the scenarios.
        """
        stages, share = self.stages, (1 - self.risk.weight) * p
        mean = (p[..., None] * costs)[:, :, stages.first].sum(1)
        if self.has_rows:
            inside = self._risk_costs(costs)[:, :, stages.first]
            mean = mean - self.risk.weight * (p[..., None] * inside).sum(1)
        parts = [mean, (share[..., None] * costs[:, :, stages.second]).flatten(1)]
        if self.has_rows:
            parts.append(torch.full_like(p[:, :1], self.risk.weight))
            parts.append(self.risk.weight * p[:, : self.excesses] / (self.risk.tail or 1.0))
        return torch.cat(parts, 1)

    def _risk_costs(self, costs: Tensor) -> Tensor:
        """Return ``costs`` (B, S, N) with zeros for the first-stage costs that are equal in all S scenarios."""
        common = torch.zeros(self.stages.size, dtype=torch.bool)
        common[self.stages.first] = ~self.stages.varying_costs[self.stages.first]
        return torch.where(common, 0.0, costs)

    def _side(self, name: str, sides: Tensor) -> Tensor:
        """Return the extensive b or h, with a row for each of B samples.

        Args:
            name: "b" or "h".
            sides: (B, S, r) b or h of the two-stage program, r entries in each of S scenarios.
        """
        shared, own = self.stages.shared[name], self.stages.own[name]
        parts = [sides[:, 0, shared], sides[:, :, own].flatten(1)]
        if name == "h" and self.has_rows:
            parts.append(sides.new_zeros(len(sides), self.scenarios))
        return torch.cat(parts, 1)

    def _bound(self, name: str, bounds: Tensor) -> Tensor:
        """Return the extensive lb or ub (B, n).

        Args:
            name: "lb" or "ub".
            bounds: (B, S, N) bounds of the N columns in S scenarios.
        """
        parts = [bounds[:, 0, self.stages.first], bounds[:, :, self.stages.second].flatten(1)]
        if self.has_rows:
            free, excess = (-_INF, 0.0) if name == "lb" else (_INF, _INF)
            parts.append(bounds.new_full((len(bounds), 1), free))
            parts.append(bounds.new_full((len(bounds), self.excesses), excess))
        return torch.cat(parts, 1)

    def _varying_rows(self, costs: Tensor, keys: list[Hashable] | None) -> Tensor:
        """Return the extensive G (B, m, n) of one call, which has the costs of the call in the rows of the risk.

        Args:
            costs: (B, S, N) costs of the N columns in S scenarios.
            keys: B sample ids, or None.
        """
        own = select_by_keys(self.problem, keys).G
        assert own is not None
        count, m = len(costs), own.shape[-2] - self.scenarios
        inside = self._risk_costs(costs)
        rows = m + torch.arange(self.scenarios)[:, None].expand_as(self.columns)
        empty = own.expand(count, *own.shape[-2:])
        where = (torch.arange(count)[:, None, None], rows[None], self.columns[None])
        return empty.index_put(where, inside, accumulate=True)

    @cached_property
    def integer_problem(self) -> Problem:
        """The extensive program with the integer variables of the model."""
        whole = self.stages.exact.integer
        if whole is None:
            return self.problem
        integer = torch.zeros(self.n, dtype=torch.bool)
        integer[self.columns.flatten()] = whole.repeat(self.scenarios)
        return self.problem._with(integer=integer)

    def scenario_costs(self, each: Tensor, values: Tensor, keys: list[Hashable] | None) -> Tensor:
        """Return the cost (B, S) of each scenario without the added curvature. It is negated if the problem maximises.

        Args:
            each: (B, S, N) the decisions of the S scenarios, in N columns.
            values: (B, S, k) the k values of each scenario.
            keys: B sample ids, or None.
        """
        flat, repeated = values.reshape(len(values) * self.scenarios, -1), self.repeat_keys(keys, len(values))
        z = each.flatten(0, 1)
        exact = select_by_keys(self.stages.exact, repeated)
        return exact.objective(z, self.stages.costs(flat, repeated)).reshape(len(values), self.scenarios)

    def scenario_decisions(self, x: Tensor) -> Tensor:
        """Return the decisions (B, S, N) of S scenarios in N columns, slacks included, for a solution x (B, n)."""
        return x[:, self.columns]
