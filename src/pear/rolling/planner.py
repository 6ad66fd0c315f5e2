"""``Planner``: the plan of every step, from forecasts and the states that were reached."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Literal, NamedTuple, cast

import torch
from torch import Tensor, nn

from pear.decisions.failures import OnFailure
from pear.decisions.solve import solve
from pear.errors import SolveError
from pear.losses import DecisionLayer
from pear.optimality.status import Status
from pear.problem import Model
from pear.problem.constraint_map import SIDES, constraint_sides
from pear.problem.derived_problems import problem_without_bounds
from pear.problem.elastic_problem import ElasticProblem
from pear.rolling.states import StateEntry

State = dict[str, Tensor]
"""The states by name, each (B, …)."""


class PlanData(NamedTuple):
    """What the plans of a batch are made from.

    Attributes:
        cost: (B, n) costs.
        fields: the fields of the problem that samples have of their own, by name.
    """

    cost: Tensor
    fields: dict[str, Tensor]


class Program:
    """A model as a function of values, states and known data.

    Args:
        model: the model of a plan.
        states: where the states enter it.

    Attributes:
        problem: the model's problem, in which variables that hold a state have no bounds: a state is what it is.
        elastic: the problem with slacks where right-hand sides are predicted, else None.
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
        """The costs and fields of a batch, differentiable.

        Args:
            values: (B, k) forecasts or true values.
            state: the states; None leaves the model's own in place.
            known: (B, q) known numbers in the order of the model; None where there are none.
        """
        model, problem, found = self.model, self.problem, dict[str, Tensor]()
        cost = model.cost(values)
        if model.known_map is not None:
            known = values.new_zeros(len(values), len(model.known_map.names)) if known is None else known.to(values)
            for one in self.states if state is not None else ():
                if one.field == "known":
                    known = known.index_copy(1, one.at.to(values.device), _flat(state, one))
            found = model.known_map.fields(problem, known)
            if "cost" in model.known_map.targets:
                cost = cost + model.known_map.change("cost", known)
        own = {name: side.to(values) for name, side in constraint_sides(problem).items()}
        if model.constraint_map is not None:
            found |= model.constraint_map(values, {**own, **found})
        for one in self.states if state is not None else ():
            if one.field != "known":
                entries = one.factor.to(values) * _flat(state, one)
                for name in (one.field,) if one.field != "bounds" else ("lb", "ub"):
                    side = found.get(name, own[name]).expand(len(values), -1)
                    found[name] = side.index_copy(1, one.at.to(values.device), entries)
        return PlanData(cost, found)


class Planner(nn.Module):
    """Makes the plans of a batch; their derivatives with respect to forecasts and states are exact.

    Args:
        program: the model as a function of its data.
        smoothing, solver, on_failure: as for ``DecisionLayer``.

    Attributes:
        layer: the layer that decides.
    """

    def __init__(
        self, program: Program, smoothing: float | Literal["auto"], solver: str, on_failure: OnFailure
    ) -> None:
        super().__init__()
        self.program, self._solver = program, solver
        problem = program.problem if program.elastic is None else program.elastic.problem
        self.layer = DecisionLayer(problem, smoothing, solver, on_failure)

    def forward(
        self, data: PlanData, held: dict[str, Tensor] | None, keys: list[Hashable] | None
    ) -> tuple[Tensor, Tensor]:
        """Plan for a batch; returns plans (B, n), zero where none was found, and statuses (B,).

        Args:
            data: costs and fields.
            held: columns ``at`` (f,) of the variables that are decided already, and their values (B, f); or None.
            keys: sample ids; a plan starts from the last plan of its sample.
        """
        cost, fields = self._as_call(data, held)
        plan = self.layer(cost, keys=keys, **fields)[:, : self.program.problem.n]
        assert self.layer.status is not None
        return plan, self.layer.status.to(plan.device)

    def settle(self, data: PlanData) -> None:
        """Choose λ where it is "auto", from plans under true values."""
        cost, fields = self._as_call(data, None)
        self.layer.settle_smoothing(cost, None, **{name: field.detach() for name, field in fields.items()})

    def solve_exactly(self, data: PlanData, held: dict[str, Tensor] | None) -> tuple[Tensor, Tensor]:
        """Plan without smoothing and in integers where the model has them; returns plans (B, n) and statuses (B,)."""
        cost, fields = self._as_call(data, held)
        problem = self.program.problem if self.program.elastic is None else self.program.elastic.problem
        found = solve(problem, cost, solver=self._solver, **cast(dict[str, Any], fields))
        return found.x[:, : self.program.problem.n], found.status

    def _as_call(self, data: PlanData, held: dict[str, Tensor] | None) -> tuple[Tensor, dict[str, Tensor]]:
        """The costs and fields of the problem to solve; bounds fix the variables that are decided already."""
        cost, fields, elastic = data.cost, dict(data.fields), self.program.elastic
        own = constraint_sides(self.program.problem)
        if held is not None:
            at = held["at"].to(cost.device)
            for name in ("lb", "ub"):
                side = fields.get(name, own[name].to(cost)).expand(len(cost), -1)
                fields[name] = side.index_copy(1, at, held["values"])
        if elastic is None:
            return cost, fields
        sides = {name: fields.get(name, own[name].to(cost)) for name in SIDES}
        matrices = {name: field for name, field in fields.items() if name not in SIDES}
        return elastic.cost(cost), matrices | elastic.fields(sides)


def name_step(error: SolveError, step: int) -> SolveError:
    """An error of a plan as one that names its step."""
    reasons = "; ".join(sorted({Status(status).sentence for status in error.statuses}))
    return SolveError(
        f"no plan was found at step {step} of the rollout for {{samples}}: {reasons}. The state that was reached may "
        "allow none: give the rows that the state can break a price (recourse=), or make on_failure='mask'",
        error.samples,
        error.statuses,
    )


def _flat(state: State | None, entry: StateEntry) -> Tensor:
    """The numbers of a state, (B, q)."""
    assert state is not None
    return state[entry.name].reshape(-1, entry.size)
