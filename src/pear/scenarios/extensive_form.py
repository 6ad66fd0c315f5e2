"""``ExtensiveForm``: all scenarios of a two-stage program in one program, which shares the first stage."""

from __future__ import annotations

from collections.abc import Hashable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from pear.errors import ProblemError
from pear.problem import Problem
from pear.problem.constraint_map import constraint_sides
from pear.problem.sample_keys import select_by_keys
from pear.scenarios.blocks import Block, assemble, select
from pear.scenarios.risk import Risk
from pear.scenarios.two_stages import TwoStages

_INF = float("inf")


class ExtensiveForm:
    """``min risk over s of f(x, yₛ; cₛ)`` over the first stage x and the second stages y₁ … y_S, as one program.

    The variables are x, then y₁, …, y_S. A risk that is more than the mean has Rockafellar and Uryasev's η and the
    excesses tₛ ≥ 0 behind them: ``(1 − w) Σ pₛfₛ + w (η + Σ pₛtₛ / tail)`` with the rows ``fₛ − η − tₛ ≤ 0``, without
    t for the worst case. What the first stage costs in every scenario alike stands outside of these rows.

    Args:
        stages: the program in two stages.
        weights: (S,) weights of the scenarios, which sum to one.
        risk: the risk measure.

    Attributes:
        problem: the extensive program, minimised and continuous; its matrices are sparse where it is large.
        scenarios: S.
    """

    def __init__(self, stages: TwoStages, weights: Tensor, risk: Risk) -> None:
        self.stages, self.weights, self.risk, self.scenarios = stages, weights, risk, len(weights)
        self.first, self.second = len(stages.first), len(stages.second)
        self.has_rows = risk.weight > 0
        self.excesses = self.scenarios if self.has_rows and risk.tail > 0 else 0
        self.n = self.first + self.scenarios * self.second + self.excesses + int(self.has_rows)
        if self.has_rows:
            _check_linear_scenarios(stages)
        at = torch.empty(self.scenarios, stages.size, dtype=torch.long)
        at[:, stages.first] = torch.arange(self.first)
        own = self.first + torch.arange(self.scenarios * self.second)
        at[:, stages.second] = own.reshape(self.scenarios, self.second)
        self.columns = at
        """(S, N): the column of each of the program's variables in each scenario."""
        self.problem = self._build()

    # -- what depends on the structure -----------------------------------------------------------------------------

    def _build(self) -> Problem:
        """Build the program without costs; predicted entries of its right-hand sides are those of ŷ = 0."""
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
        if self.n < 500 or self.varying:
            fields = {name: _dense(value) for name, value in fields.items()}
        return Problem(**fields)

    def _rows(self, side: str, matrix: Any) -> Any:
        """The rows of the extensive A or G: the shared ones, those of every scenario, and those of the risk."""
        stages, blocks = self.stages, []
        shared, own = stages.shared[side], stages.own[side]
        everything = torch.arange(stages.size)
        if len(shared):
            blocks.append(
                Block(select(matrix, shared, stages.first), torch.arange(len(shared)), self.columns[0, stages.first])
            )
        part = select(matrix, own, everything) if len(own) else None
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
        return assemble(blocks, rows, self.n)

    def _curvature(self) -> Any:
        """The extensive Q: what the first stage has once, what reaches into a second stage with its weight."""
        Q = self.stages.problem.Q
        if Q is None:
            return None
        first, second = self.stages.first, self.stages.second
        blocks = [Block(select(Q, first, first), torch.arange(self.first), torch.arange(self.first))]
        parts = [
            (select(Q, i, j), i, j) for i, j in ((first, second), (second, first), (second, second)) if len(second)
        ]
        for s, weight in enumerate(self.weights.tolist()):
            blocks += [Block(part * weight, self.columns[s, i], self.columns[s, j]) for part, i, j in parts]
        return assemble(blocks, self.n, self.n)

    @cached_property
    def varying(self) -> bool:
        """Whether the rows of the risk hold costs that differ by sample, so that G comes with every call."""
        own = self.stages.model.cost_map
        return self.has_rows and (bool(self.stages.priced.any()) or (own is not None and own.batch is not None))

    def _known_costs(self) -> Tensor:
        """The costs (1, S, N) of the scenarios where none is predicted."""
        k = self.stages.model.inputs
        return self.stages.costs(torch.zeros(1, k, dtype=torch.float64), None)[:, None].expand(1, self.scenarios, -1)

    # -- what depends on the values --------------------------------------------------------------------------------

    def data(
        self, values: Tensor, keys: list[Hashable] | None = None, weights: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Any]]:
        """Compute the costs and the fields of the extensive program that values replace; differentiable.

        Args:
            values: (B, S, k) predicted values of the scenarios.
            keys: B sample ids, or None.
            weights: (B, S) weights of this call's scenarios; those of the program if omitted.

        Returns:
            The costs (B, n), and b, h, lb, ub and G by name, for those that are predicted or differ by sample.
        """
        count = len(values)
        flat, repeated = values.reshape(count * self.scenarios, -1), self._repeat(keys, count)
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

    def _repeat(self, keys: list[Hashable] | None, count: int) -> list[Hashable] | None:
        """Return the keys of all scenarios, sample by sample; row numbers where samples have data of their own."""
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
        """The costs (B, n) of the extensive program from those of the scenarios (B, S, N) and their weights (B, S)."""
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
        """The costs (B, S, N) of the rows of the risk: without what the first stage costs in all scenarios alike."""
        common = torch.zeros(self.stages.size, dtype=torch.bool)
        common[self.stages.first] = ~self.stages.priced[self.stages.first]
        return torch.where(common, 0.0, costs)

    def _side(self, name: str, sides: Tensor) -> Tensor:
        """The extensive b or h (B, ·) from those of the scenarios (B, S, r)."""
        shared, own = self.stages.shared[name], self.stages.own[name]
        parts = [sides[:, 0, shared], sides[:, :, own].flatten(1)]
        if name == "h" and self.has_rows:
            parts.append(sides.new_zeros(len(sides), self.scenarios))
        return torch.cat(parts, 1)

    def _bound(self, name: str, bounds: Tensor) -> Tensor:
        """The extensive lb or ub (B, n) from those of the scenarios (B, S, N)."""
        parts = [bounds[:, 0, self.stages.first], bounds[:, :, self.stages.second].flatten(1)]
        if self.has_rows:
            free, excess = (-_INF, 0.0) if name == "lb" else (_INF, _INF)
            parts.append(bounds.new_full((len(bounds), 1), free))
            parts.append(bounds.new_full((len(bounds), self.excesses), excess))
        return torch.cat(parts, 1)

    def _varying_rows(self, costs: Tensor, keys: list[Hashable] | None) -> Tensor:
        """G (B, m, n) with the costs (B, S, N) of this call in the rows of the risk."""
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
        """The extensive program with the model's integers and without added curvature."""
        whole = self.stages.exact.integer
        if whole is None:
            return self.problem
        integer = torch.zeros(self.n, dtype=torch.bool)
        integer[self.columns.flatten()] = whole.repeat(self.scenarios)
        return self.problem._with(integer=integer)

    def scenario_costs(self, each: Tensor, values: Tensor, keys: list[Hashable] | None) -> Tensor:
        """Compute what the decisions (B, S, N) cost in each scenario (B, S), minimised and without added curvature."""
        flat, repeated = values.reshape(len(values) * self.scenarios, -1), self._repeat(keys, len(values))
        z = each.flatten(0, 1)
        exact = select_by_keys(self.stages.exact, repeated)
        return exact.objective(z, self.stages.costs(flat, repeated)).reshape(len(values), self.scenarios)

    def scenario_decisions(self, x: Tensor) -> Tensor:
        """The decisions (B, S, N) of all scenarios, slacks included, from a solution (B, n)."""
        return x[:, self.columns]


def _check_linear_scenarios(stages: TwoStages) -> None:
    """Raise ProblemError where the cost of a scenario is not linear in its second stage."""
    if not stages.curved_first_alone:
        raise ProblemError(
            "the objective has a quadratic term in second-stage variables, and the risk of a quadratic cost is no "
            "quadratic program; take pear.Expectation(), or name these variables in first"
        )


def _dense(value: Any) -> Any:
    return value.toarray() if hasattr(value, "toarray") else value
