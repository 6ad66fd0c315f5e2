"""The steps of a rollout. Each step plans from the present state, carries out the first periods, and pays for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from pear.errors import ProblemError, SolveError
from pear.optimality.status import Status
from pear.rolling.planner import Planner, PlanProgram, State
from pear.rolling.realised_cost import RealisedCost
from pear.rolling.timeline import Timeline

Transition = Callable[[State, dict[str, Tensor], dict[str, Tensor]], Mapping[str, Tensor]]
"""A function of the states, the part of a plan that is carried out, and the true values. It returns the next states."""

StepCost = Callable[[State, dict[str, Tensor], dict[str, Tensor]], Tensor]
"""A function with the arguments of ``Transition``, which returns the cost (B,) of a step."""


class RolloutStep(NamedTuple):
    """One step of B rollouts.

    Attributes:
        plan: (B, n) the plans.
        cost: (B,) the realised cost of the periods that were carried out, or the profit if the model maximises; zero
            for a sample without a plan.
        state: the states that the plans begin with.
        reached: the states after the periods that were carried out.
        status: (B,) int8 values of ``pear.Status``.
    """

    plan: Tensor
    cost: Tensor
    state: State
    reached: State
    status: Tensor


class StepWorld:
    """The world that plans are carried out in: it determines the realised cost of a step and the next states.

    Args:
        program: the optimisation problem of a plan.
        timeline: the periods of the model.
        step: the number of periods that are carried out in each step.
        transition: the user's function that returns the next states; None if the plan determines them.
        cost: the user's function that returns the cost of a step; None for the objective of the model.
    """

    def __init__(
        self, program: PlanProgram, timeline: Timeline, step: int, transition: Transition | None, cost: StepCost | None
    ) -> None:
        self.program, self.timeline, self.step = program, timeline, step
        self._transition, self._cost = transition, cost
        self._realised = RealisedCost(timeline, step) if cost is None else None

    def carry_out(
        self, plan: Tensor, truth: Tensor, state: State, known: Tensor | None, solved: Tensor
    ) -> tuple[Tensor, State]:
        """Return what the first periods of plans cost, and the states that they lead to.

        Args:
            plan: (B, n) plans.
            truth: (B, k) true values of the k predicted numbers.
            state: the states that the plans begin with.
            known: (B, q) the q known numbers, or None.
            solved: (B,) mask of the samples that have a plan. The states of the others do not change.

        Returns:
            The realised cost (B,), and the next states.
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
        """Return the part of plans (B, n) that is carried out: ``step`` periods of each array, (B, step, …)."""
        found = {}
        for name, at in self.timeline.arrays.items():
            first = len(at) - self.timeline.horizon
            found[name] = plan[:, at[first : first + self.step].to(plan.device)]
        return found

    def _true_part(self, truth: Tensor) -> dict[str, Tensor]:
        """Return the part of true values (B, k) that belongs to the periods carried out: (B, step, …) by series."""
        return {name: truth[:, at[: self.step].to(truth.device)] for name, at in self.timeline.series.items()}

    def _follow_plan(self, plan: Tensor) -> State:
        """Return the next states if the world follows plans (B, n)."""
        return {
            one.name: plan[:, one.after.to(plan.device)].reshape(-1, *one.shape)
            for one in self.program.states
            if one.after is not None
        }

    def _check_reached(self, reached: Mapping[str, Tensor], count: int) -> State:
        """Return the states ``reached`` of B = ``count`` samples, after a check of their shapes."""
        for one in self.program.states:
            value = reached.get(one.name)
            if not isinstance(value, Tensor) or tuple(value.shape) != (count, *one.shape):
                came = tuple(value.shape) if isinstance(value, Tensor) else value
                raise ProblemError(
                    f"transition must return a tensor of shape {(count, *one.shape)} for the state {one.name!r}; got "
                    f"{came}"
                )
        return {one.name: reached[one.name] for one in self.program.states}


class StepCommitment(NamedTuple):
    """The variables of a plan whose values the previous plan has decided.

    Attributes:
        at: (f,) the columns of these f variables.
        before: (f,) the columns of the previous plan that contain the values of these variables.
    """

    at: Tensor
    before: Tensor

    def held(self, plan: Tensor | None) -> dict[str, Tensor] | None:
        """Return what a plan (B, n) fixes for the next plan.

        Returns:
            A dictionary with the f columns "at" (f,), and their "values" (B, f); None if there is no plan, or if plans
            fix nothing.
        """
        if plan is None or not len(self.at):
            return None
        return {"at": self.at, "values": plan[:, self.before.to(plan.device)]}


def run_rollout_steps(
    world: StepWorld,
    planner: Planner,
    commitment: StepCommitment,
    forecasts: Tensor,
    truth: Tensor,
    known: Tensor | None,
    state: State,
    exact: bool = False,
) -> Iterator[RolloutStep]:
    """Run B rollouts of S steps, and yield one step at a time, differentiable with respect to forecasts and states.

    No solve starts from the working set of the previous plan. It would save no time, because all periods have shifted.

    Args:
        world: determines the cost of each step and the next states.
        planner: makes the plans.
        commitment: the variables that each plan fixes for the next plan.
        forecasts: (B, S, k) the k forecasts at each step.
        truth: (B, S, k) the true values of the same periods.
        known: (B, S, q) the q known numbers of each step, or None.
        state: the first states.
        exact: whether plans have no smoothing, keep the integers of the model, and are not differentiable.

    Raises:
        SolveError: a step has no plan, and ``exact`` is True or the planner has the setting ``on_failure="raise"``;
            the message names the step.
    """
    state = {name: value.to(forecasts) for name, value in state.items()}
    plan: Tensor | None = None
    for s in range(forecasts.shape[1]):
        now = None if known is None else known[:, s]
        data, held = world.program.data(forecasts[:, s], state, now), commitment.held(plan)
        try:
            plan, status = planner.solve_exactly(data, held) if exact else planner(data, held)
        except SolveError as error:
            raise _name_failed_step(error, s) from error
        cost, reached = world.carry_out(plan, truth[:, s], state, now, status == 0)
        yield RolloutStep(plan, cost, state, reached, status)
        state = reached


def _name_failed_step(error: SolveError, step: int) -> SolveError:
    """Return ``error`` with the number of the step in its message."""
    reasons = "; ".join(sorted({Status(status).sentence for status in error.statuses}))
    return SolveError(
        f"no plan was found at step {step} of the rollout for {{samples}}: {reasons}. The state that was reached may "
        "allow none: give the rows that the state can break a price (recourse=), or make on_failure='mask'",
        error.samples,
        error.statuses,
    )
