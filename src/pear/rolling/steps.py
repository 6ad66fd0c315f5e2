"""The steps of rollouts: plan from the state that was reached, do the first part, pay for it, and go on."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from pear.errors import ProblemError, SolveError
from pear.rolling.planner import Planner, Program, State, name_step
from pear.rolling.realised_cost import RealisedCost
from pear.rolling.timeline import Timeline

Transition = Callable[[State, dict[str, Tensor], dict[str, Tensor]], Mapping[str, Tensor]]
"""A function from states, the part of the plan that is done and the true values of its periods to the next states."""

StepCost = Callable[[State, dict[str, Tensor], dict[str, Tensor]], Tensor]
"""A function with the same arguments to what the step cost, (B,)."""


class RolloutStep(NamedTuple):
    """A step of B rollouts.

    Attributes:
        plan: (B, n) the plans.
        cost: (B,) what the periods done really cost, in the model's own sense; zero where no plan was found.
        state: the states that the plans began with.
        reached: the states after the periods that are done.
        status: (B,) int8 of ``pear.Status``.
    """

    plan: Tensor
    cost: Tensor
    state: State
    reached: State
    status: Tensor


class World:
    """What happens at a step: what the first part of a plan really costs, and which state it leads to.

    Args:
        program: the model as a function of its data.
        timeline: its periods.
        step: the number of periods that are done at each step.
        transition: the user's function to the next state; None where the plan says it.
        cost: the user's function to what a step cost; None for the model's own objective.
    """

    def __init__(
        self, program: Program, timeline: Timeline, step: int, transition: Transition | None, cost: StepCost | None
    ) -> None:
        self.program, self.timeline, self.step = program, timeline, step
        self._transition, self._cost = transition, cost
        self._realised = RealisedCost(timeline, step) if cost is None else None

    def realise(
        self, plan: Tensor, truth: Tensor, state: State, known: Tensor | None, solved: Tensor
    ) -> tuple[Tensor, State]:
        """Return what the periods done really cost (B,), and the states that they lead to.

        Args:
            plan: (B, n) plans.
            truth: (B, k) true values.
            state: the states that the plans began with; those of samples without a plan stay.
            known: (B, q) known numbers, or None.
            solved: (B,) bool, whether there is a plan.
        """
        done, true = self.done_part(plan), self._true_part(truth)
        if self._realised is not None:
            data = self.program.data(truth, state, known)
            cost = self._realised(plan, data.cost, data.fields)
        else:
            assert self._cost is not None
            cost = self._cost(state, done, true)
            if cost.shape != (len(plan),):
                raise ProblemError(
                    f"cost must return a number for each sample, ({len(plan)},); got {tuple(cost.shape)}"
                )
        reached = self._follow_plan(plan) if self._transition is None else self._transition(state, done, true)
        kept = {}
        for name, value in self._check_reached(reached, len(plan)).items():
            kept[name] = torch.where(solved.reshape(-1, *[1] * (value.ndim - 1)), value, state[name])
        return torch.where(solved, cost, 0.0), kept

    def done_part(self, plan: Tensor) -> dict[str, Tensor]:
        """The first ``step`` periods of plans (B, n), by the names of arrays: (B, step, …) each."""
        found = {}
        for name, at in self.timeline.arrays.items():
            first = len(at) - self.timeline.horizon
            found[name] = plan[:, at[first : first + self.step].to(plan.device)]
        return found

    def _true_part(self, truth: Tensor) -> dict[str, Tensor]:
        """The true values of the periods done, by series: (B, step, …) each."""
        return {name: truth[:, at[: self.step].to(truth.device)] for name, at in self.timeline.series.items()}

    def _follow_plan(self, plan: Tensor) -> State:
        """The states that the plan says for the end of the periods done."""
        return {
            one.name: plan[:, one.after.to(plan.device)].reshape(-1, *one.shape)
            for one in self.program.states
            if one.after is not None
        }

    def _check_reached(self, reached: Mapping[str, Tensor], count: int) -> State:
        """The next states, checked where a user's function returned them."""
        for one in self.program.states:
            value = reached.get(one.name)
            if not isinstance(value, Tensor) or tuple(value.shape) != (count, *one.shape):
                came = tuple(value.shape) if isinstance(value, Tensor) else value
                raise ProblemError(
                    f"transition must return a tensor of shape {(count, *one.shape)} for the state {one.name!r}; got "
                    f"{came}"
                )
        return {one.name: reached[one.name] for one in self.program.states}


class Commitment(NamedTuple):
    """The variables of a plan that the plan before has decided.

    Attributes:
        at: (f,) their columns.
        before: (f,) the columns of the plan before that hold their values.
    """

    at: Tensor
    before: Tensor

    def held(self, plan: Tensor | None) -> dict[str, Tensor] | None:
        """The columns and values that are decided after a plan (B, n); None where nothing is."""
        if plan is None or not len(self.at):
            return None
        return {"at": self.at, "values": plan[:, self.before.to(plan.device)]}


def roll(
    world: World,
    planner: Planner,
    commitment: Commitment,
    forecasts: Tensor,
    truth: Tensor,
    known: Tensor | None,
    state: State,
    keys: list[Hashable] | None,
    exact: bool = False,
) -> Iterator[RolloutStep]:
    """Go through B rollouts of S steps, one step at a time; all results are differentiable by forecasts and states.

    Args:
        world: what happens at a step.
        planner: makes the plans.
        commitment: what is decided one plan ahead.
        forecasts: (B, S, k) what is forecast at each step.
        truth: (B, S, k) the true values.
        known: (B, S, q) known numbers of each step, or None.
        state: the first states.
        keys: ids of the rollouts: each plan starts from the last plan of its rollout, and the first one from the last
            plan of an earlier call.
        exact: whether plans are without smoothing, in integers where the model has them, and not differentiable.
    """
    state = {name: value.to(forecasts) for name, value in state.items()}
    plan: Tensor | None = None
    for s in range(forecasts.shape[1]):
        now = None if known is None else known[:, s]
        data, held = world.program.data(forecasts[:, s], state, now), commitment.held(plan)
        try:
            plan, status = planner.solve_exactly(data, held) if exact else planner(data, held, keys)
        except SolveError as error:
            raise name_step(error, s) from error
        cost, reached = world.realise(plan, truth[:, s], state, now, status == 0)
        yield RolloutStep(plan, cost, state, reached, status)
        state = reached
