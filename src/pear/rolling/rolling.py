"""``Rolling``: decisions over time, with a new plan from the present state at every step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pear.errors import ProblemError
from pear.problem import Model
from pear.problem.constraint_map import refuse_constraint_coefficients
from pear.problem.tensor_conversion import to_float64_tensor
from pear.rolling.planner import Planner, PlanProgram, State
from pear.rolling.rollout import Rollout
from pear.rolling.rollout_steps import RolloutStep, StepCommitment, StepCost, StepWorld, Transition, run_rollout_steps
from pear.rolling.states import read_states
from pear.rolling.time_series import TimeSeries, read_forecast_series, read_known_series, select_series_rows
from pear.rolling.timeline import Timeline
from pear.wording import list_names


class Rolling:
    """A model that plans again at every step: forecast, plan, carry out the first periods, and continue from there.

    A sequence of such steps is a rollout.

    Args:
        model: the model of a plan. Its predicted values have a name for each period, such as ``price[0]`` and
            ``price[1]``, and its arrays of variables have a row for each period. An array may have one more row at the
            beginning for the initial state, such as ``level[0]``.
        state: a dictionary from each state, an array of the plan, to the place where its value enters the next plan.
            ``{"level": "level[0]"}`` carries ``level[step]`` over to ``level[0]``, which the model must fix by a row or
            by its bounds. ``{"level": "start"}`` names a known value of the model, or a row, whose right-hand side
            becomes the state. If the array has no row for the initial state, its row for the last period that is
            carried out is the next state. With ``transition``, a state may have any name.
        step: the number of periods that are carried out before the next plan.
        horizon: the number of periods of a plan; that of the predicted values if omitted.
        fixed: the number of periods at the beginning of a plan whose decisions the previous plan has fixed: one number
            for all arrays that have a row for each period, or a dictionary by name. No period of the first plan of a
            rollout is fixed.
        transition: a function ``(state, done, true) → state`` for a world that does not follow the plan. Its arguments
            are dictionaries of tensors (B, …): the states, the rows of the plan's arrays that are carried out, and the
            true values of these periods. It returns the next states, and must be differentiable for training.
        cost: a function of the same arguments, which returns the realised cost (B,) of a step. By default this is the
            part of the model's objective that belongs to the periods carried out, at the true values, as
            ``RealisedCost`` computes it.
        initial: the states that a rollout begins with, by name; those of the model if omitted.
        solver: "auto" or a name that ``pear solvers`` lists.

    Attributes:
        timeline: the periods of variables, rows and predicted values.
        states: where each state enters the plan.
        program: the optimisation problem of a plan, as a function of forecasts, states and known values.
        world: determines the cost of a step and the next states.
        commitment: the variables that each plan fixes for the next plan.

    Example:
        >>> import pear
        >>> names = ["sell[0]", "sell[1]", "stock[0]", "stock[1]", "stock[2]"]
        >>> rows = [[0, 0, 1.0, 0, 0], [1.0, 0, -1, 1, 0], [0, 1.0, 0, -1, 1]]
        >>> price = pear.CostMap([[1.0, 0], [0, 1.0], [0, 0], [0, 0], [0, 0]], names=["price[0]", "price[1]"])
        >>> p = pear.Problem(A=rows, b=[2.0, 0, 0], lb=0.0, ub=[1.0, 1.0, 9, 9, 9], sense="max")
        >>> rolling = Rolling(pear.Model(p, variables=names, cost_map=price), state={"stock": "stock[0]"})
        >>> done = rolling.simulate("perfect", [3.0, 1.0, 5.0, 4.0])
        >>> done.cost.tolist(), done.states["stock"].tolist()
        ([3.0, 0.0, 5.0], [2.0, 1.0, 1.0, 0.0])
    """

    def __init__(
        self,
        model: Model,
        state: Mapping[str, str],
        step: int = 1,
        horizon: int | None = None,
        *,
        fixed: int | Mapping[str, int] = 0,
        transition: Transition | None = None,
        cost: StepCost | None = None,
        initial: Mapping[str, Any] | None = None,
        solver: str = "auto",
    ) -> None:
        _check_rolling_model(model)
        self.model, self.step, self.solver = model, step, solver
        self.timeline = Timeline(model, horizon)
        if not isinstance(step, int) or not 1 <= step <= self.timeline.horizon:
            raise ProblemError(f"step must be a number of periods from 1 to {self.timeline.horizon}; got {step!r}")
        self.states = read_states(self.timeline, state, step, transition is None)
        self.program = PlanProgram(model, self.states)
        self.world = StepWorld(self.program, self.timeline, step, transition, cost)
        self._initial = dict(initial or {})
        if stray := [name for name in self._initial if name not in state]:
            raise ProblemError(f"initial holds {stray[0]!r}, which is no state; expected {list_names(list(state))}")
        self.commitment = self._read_fixed(fixed)

    @property
    def horizon(self) -> int:
        """The number of periods of a plan."""
        return self.timeline.horizon

    @cached_property
    def known_states(self) -> tuple[str, ...]:
        """The names of the model's known values that are states."""
        names = (
            []
            if self.model.known_map is None
            else [one.name for one in self.model.known_map.values for _ in one.labels]
        )
        return tuple({names[int(one.at[0])] for one in self.states if one.field == "known"})

    def initial_state(self, count: int, initial: Mapping[str, Any] | None = None) -> State:
        """Return the states that rollouts begin with, (B, …) each, in float64.

        Args:
            count: B, the number of rollouts.
            initial: states (…) or (B, …) by name. A missing state comes from the argument ``initial`` of the class, or
                else from the model.

        Raises:
            ProblemError: a state is missing, or has a wrong shape.
        """
        given, found = {**self._initial, **(initial or {})}, {}
        for one in self.states:
            value = given.get(one.name, None if one.own is None else one.own.reshape(one.shape))
            if value is None:
                raise ProblemError(
                    f"a rollout must begin with a state {one.name!r}, and the model has no value of its own; pass "
                    f"initial={{{one.name!r}: …}}"
                )
            tensor = to_float64_tensor(f"initial {one.name}", value).cpu()
            if tuple(tensor.shape) not in (one.shape, (count, *one.shape)):
                raise ProblemError(
                    f"initial {one.name} has shape {tuple(tensor.shape)}; expected {one.shape} or {(count, *one.shape)}"
                )
            found[one.name] = tensor.expand(count, *one.shape).clone()
        return found

    def simulate(
        self,
        forecaster: Any,
        data: Any,
        features: Any = None,
        *,
        known: Any = None,
        initial: Mapping[str, Any] | None = None,
        start: int = 0,
        steps: int | None = None,
        progress: Callable[[int, int], Any] | None = None,
    ) -> Rollout:
        """Simulate one rollout through the data, and return its realised costs, decisions and states.

        Args:
            forecaster: an object with ``predict``, a torch module or a function, which is called with all rows of
                features at once; or a table of forecasts with a row for each period or for each plan; or "perfect",
                for the true values as forecasts.
            data: the true values of N periods: a dictionary from the names of the predicted series to arrays (N, …), a
                DataFrame with a column for each series, or an array if there is one series.
            features: the features, with a row for each period or for each plan.
            known: the known values of the model that are not states: arrays (N, …) by name, with a row for each period,
                or (…) for a value that all periods share; an array if there is one such value.
            initial: the first states by name, as for ``initial_state``.
            start: the period at which the first plan begins.
            steps: the number of steps. If omitted, plans are made as long as they end within the data.
            progress: a function that is called after each step with the number of steps done and the number of all
                steps.

        Raises:
            SolveError: a step has no plan; the message names the step.
            ProblemError: the arguments do not fit each other.
        """
        series = TimeSeries(self.timeline, data)
        starts = series.starts(self.step, start, steps)
        forecasts, truth = read_forecast_series(forecaster, features, series, starts), series.values(starts)
        given = read_known_series(self.model, known, series.length - self.horizon + 1, self.known_states)
        if given is not None:
            given = given[starts] if given.ndim == 2 else given.expand(len(starts), -1)
        planner, found = Planner(self.program, 0.0, self.solver, "raise"), []
        with torch.no_grad():
            rollout = run_rollout_steps(
                self.world,
                planner,
                self.commitment,
                forecasts[None],
                truth[None],
                None if given is None else given[None],
                self.initial_state(1, initial),
                exact=self.model.problem.is_integer,
            )
            for one in rollout:
                found.append(one)
                if progress is not None:
                    progress(len(found), len(starts))
        return self._as_rollout(found, starts, series.labels)

    def samples(self, features: Any, data: Any, steps: int, starts: Any = None) -> tuple[Tensor, Tensor, Tensor]:
        """Return W rollouts of S steps as training samples.

        Args:
            features: the features, with a row for each period.
            data: the true values, as for ``simulate``.
            steps: S, the number of steps of a rollout.
            starts: (W,) the periods at which rollouts begin. If omitted, a rollout begins every S steps, so that the
                steps of two rollouts do not overlap.

        Returns:
            Features (W, S, …); the k true values of each step, (W, S, k); and the first period of each rollout, (W,),
            which can be passed to ``RollingLoss`` as ``keys``.
        """
        series = TimeSeries(self.timeline, data)
        every = series.starts(self.step)
        if starts is None:
            starts = every[: len(every) - steps + 1 : steps]
        starts = torch.as_tensor(np.asarray(starts)).long()
        if not len(starts) or int(starts.max()) + (steps - 1) * self.step > int(every[-1]) or int(starts.min()) < 0:
            raise ProblemError(
                f"a rollout of {steps} steps must begin between 0 and {int(every[-1]) - (steps - 1) * self.step}, so "
                f"that its last plan ends within the {series.length} periods; got {starts.tolist()[:5]}"
            )
        when = starts[:, None] + self.step * torch.arange(steps)
        rows = torch.as_tensor(features if isinstance(features, Tensor) else np.asarray(features))
        return select_series_rows(rows, when, "features"), series.values(when), starts

    def _read_fixed(self, fixed: int | Mapping[str, int]) -> StepCommitment:
        """Return the variables that each plan fixes for the next plan; ``fixed`` is the argument of the class."""
        inner = {name: at for name, at in self.timeline.arrays.items() if len(at) == self.horizon}
        chosen = dict(fixed) if isinstance(fixed, Mapping) else dict.fromkeys(inner, fixed)
        now, before = [torch.zeros(0, dtype=torch.int64)], [torch.zeros(0, dtype=torch.int64)]
        for name, count in chosen.items():
            if name not in inner:
                raise ProblemError(
                    f"fixed names {name!r}, which is no array of {self.horizon} rows; expected one of "
                    f"{list_names(list(inner))}"
                )
            if not isinstance(count, int) or not 0 <= count <= self.horizon - self.step:
                raise ProblemError(
                    f"fixed must be a number of periods from 0 to {self.horizon - self.step}, those that the plan "
                    f"before has decided; got {count!r}"
                )
            now.append(inner[name][:count].flatten())
            before.append(inner[name][self.step : self.step + count].flatten())
        return StepCommitment(torch.cat(now), torch.cat(before))

    def _as_rollout(self, found: list[RolloutStep], starts: Tensor, labels: Any) -> Rollout:
        """Return the steps of a single rollout as arrays.

        Args:
            found: the steps.
            starts: (S,) the periods at which the S plans begin.
            labels: (N,) the labels of all N periods.
        """
        parts = [self.world.done_part(one.plan) for one in found]
        decisions = {name: torch.cat([part[name][0] for part in parts]).numpy() for name in self.timeline.arrays}
        states = {
            one.name: torch.stack([found[0].state[one.name][0], *(step.reached[one.name][0] for step in found)]).numpy()
            for one in self.states
        }
        when = (starts[:, None] + torch.arange(self.step)).flatten()
        return Rollout(
            cost=torch.cat([one.cost for one in found]).numpy(),
            decisions=decisions,
            states=states,
            status=torch.cat([one.status for one in found]).numpy(),
            start=starts.numpy(),
            period=when.numpy(),
            label=labels[when.numpy()],
            step=self.step,
            sense=self.model.problem.sense,
        )

    def __repr__(self) -> str:
        entries = ", ".join(f"{one.name} ({one.field})" for one in self.states)
        return f"Rolling({self.horizon} periods, step {self.step}, state {entries}, {self.model})"


def _check_rolling_model(model: Any) -> None:
    """Raise ProblemError if a model cannot plan step by step."""
    if not isinstance(model, Model):
        raise ProblemError(
            f"Rolling takes a pear.Model, whose variables and predicted values have names; got {type(model).__name__}"
        )
    if not model.problem.has_program:
        raise ProblemError(
            "Rolling takes a model with constraints, and an Oracle has none; pass a model of its relaxation"
        )
    if model.problem.batch is not None or model.known.ndim == 2:
        raise ProblemError("the plans of all steps share one model; import what differs by step as known=[…]")
    if model.curvature_map is not None:
        raise ProblemError(
            "Rolling takes no predicted weights of quadratic terms; give them a value, or name them known=[…]"
        )
    refuse_constraint_coefficients(model.constraint_map, "Rolling")
    if model.constraint_map is not None and model.recourse is None:
        raise ProblemError(
            "the model predicts right-hand sides; say what their violation costs: model.with_recourse(…)"
        )
