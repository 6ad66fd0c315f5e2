"""``Planner``: makes the plan of every step, from forecasts and the present states."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, cast

import torch
from torch import Tensor, nn

from pear.decisions.failures import OnFailure
from pear.decisions.solve import solve
from pear.losses import DecisionLayer
from pear.problem import Model
from pear.problem.constraint_map import SIDES, constraint_sides
from pear.problem.derived_problems import problem_without_bounds
from pear.problem.elastic_problem import ElasticProblem
from pear.rolling.states import StateEntry

State = dict[str, Tensor]
"""The values (B, …) of each state, such as the level of a battery in B samples, by the name of the state."""


class PlanData(NamedTuple):
    """The costs and fields of B programs, whose solutions are plans.

    Attributes:
        cost: (B, n) costs.
        fields: the fields of the problem that differ by sample, by name.
    """

    cost: Tensor
    fields: dict[str, Tensor]


class PlanProgram:
    """The optimisation problem of a plan, as a function of predicted values, states and known data.

    Args:
        model: the model that a plan solves.
        states: where the states enter the model.

    Attributes:
        problem: the problem of the model. Variables that a row fixes to a state have no bounds, because a real state
            may lie outside the bounds.
        elastic: the problem with slacks if the model predicts right-hand sides and has a recourse, else None.
    """

    def __init__(self, model: Model, states: tuple[StateEntry, ...]) -> None:
        self.model, self.states = model, states
        by_rows = [one.fixed for one in states if one.field != "bounds"]
        self.problem = problem_without_bounds(model.problem, torch.cat(by_rows)) if by_rows else model.problem
        self.elastic: ElasticProblem | None = None
        if model.constraint_map is not None and model.recourse is not None:
            prices = model.recourse.prices(self.problem, model.constraint_map)
            self.elastic = ElasticProblem(self.problem, prices)

    def data(self, values: Tensor, state: State | None, known: Tensor | None) -> PlanData:
        """Return the costs and fields of a batch of plans, differentiably.

        Args:
            values: (B, k) forecasts or true values of the k numbers that the model predicts.
            state: the states by name; None keeps the right-hand sides and bounds of the model.
            known: (B, q) the q known numbers in the order of the model; None for zeros.
        """
        model, problem, found = self.model, self.problem, dict[str, Tensor]()
        cost = model.cost(values)
        if model.known_map is not None:
            known = values.new_zeros(len(values), len(model.known_map.names)) if known is None else known.to(values)
            for one in self.states if state is not None else ():
                if one.field == "known":
                    known = known.index_copy(1, one.at.to(values.device), one.flatten(state))
            found = model.known_map.fields(problem, known)
            if "cost" in model.known_map.targets:
                cost = cost + model.known_map.change("cost", known)
        own = {name: side.to(values) for name, side in constraint_sides(problem).items()}
        if model.constraint_map is not None:
            found |= model.constraint_map(values, {**own, **found})
        for one in self.states if state is not None else ():
            if one.field != "known":
                entries = one.factor.to(values) * one.flatten(state)
                for name in (one.field,) if one.field != "bounds" else ("lb", "ub"):
                    side = found.get(name, own[name]).expand(len(values), -1)
                    found[name] = side.index_copy(1, one.at.to(values.device), entries)
        return PlanData(cost, found)


class Planner(nn.Module):
    """The solver of a batch of plans, with exact derivatives with respect to forecasts and states.

    Args:
        program: the optimisation problem of a plan.
        smoothing, solver, on_failure: as for ``DecisionLayer``.

    Attributes:
        layer: the layer that makes the plans.
    """

    def __init__(
        self, program: PlanProgram, smoothing: float | Literal["auto"], solver: str, on_failure: OnFailure
    ) -> None:
        super().__init__()
        self.program, self._solver = program, solver
        problem = program.problem if program.elastic is None else program.elastic.problem
        self.layer = DecisionLayer(problem, smoothing, solver, on_failure)

    def forward(self, data: PlanData, held: dict[str, Tensor] | None) -> tuple[Tensor, Tensor]:
        """Return the plans for a batch of data.

        Args:
            data: the costs and fields.
            held: a dictionary with the columns "at" (f,) and the "values" (B, f) of the f variables that the previous
                plan has decided, or None.

        Returns:
            Plans (B, n), zero for a sample without a plan, and statuses (B,).
        """
        cost, fields = self._as_call(data, held)
        plan = self.layer(cost, **fields)[:, : self.program.problem.n]
        assert self.layer.status is not None
        return plan, self.layer.status.to(plan.device)

    def settle(self, data: PlanData) -> None:
        """Choose the smoothing λ from plans for the given data, if λ is "auto"."""
        cost, fields = self._as_call(data, None)
        self.layer.settle_smoothing(cost, None, **{name: field.detach() for name, field in fields.items()})

    def solve_exactly(self, data: PlanData, held: dict[str, Tensor] | None) -> tuple[Tensor, Tensor]:
        """Return plans without smoothing and with the integers of the model. They are not differentiable.

        Args:
            data, held: as for ``forward``.

        Returns:
            Plans (B, n) and statuses (B,).
        """
        cost, fields = self._as_call(data, held)
        problem = self.program.problem if self.program.elastic is None else self.program.elastic.problem
        found = solve(problem, cost, solver=self._solver, **cast(dict[str, Any], fields))
        return found.x[:, : self.program.problem.n], found.status

    def _as_call(self, data: PlanData, held: dict[str, Tensor] | None) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the costs and fields of the problem to solve.

        Bounds fix the variables that the previous plan has decided. The arguments are those of ``forward``.
        """
        cost, fields, elastic = data.cost, dict(data.fields), self.program.elastic
        own = constraint_sides(self.program.problem)
        if elastic is not None:
            sides = {name: fields.get(name, own[name].to(cost)) for name in SIDES}
            matrices = {name: field for name, field in fields.items() if name not in SIDES}
            bounds = elastic.bounds({name: fields[name] for name in ("lb", "ub") if name in fields})
            cost, fields = elastic.cost(cost), elastic.fields(sides, matrices) | bounds
            own = constraint_sides(elastic.problem)
        if held is not None:
            at = held["at"].to(cost.device)
            for name in ("lb", "ub"):
                side = fields.get(name, own[name].to(cost)).expand(len(cost), -1)
                fields[name] = side.index_copy(1, at, held["values"])
        return cost, fields
