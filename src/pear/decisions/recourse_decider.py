"""Decisions of a model that predicts right-hand sides: under a forecast, under the truth, and after recourse.

Under a forecast the elastic problem is solved. It has a solution wherever the rows that are not predicted can be
satisfied. A ``Penalty`` gives the prices of its slacks. For a ``Projection`` the prices are raised until the slacks are
the least that the forecast allows. They are zero where the forecast is feasible, so that the decision is then that of
the problem itself.
"""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from pear.decisions.decider import Decider
from pear.decisions.smoothing import Smoothing, settle
from pear.decisions.solution import Solution
from pear.decisions.solve import OnFailure, as_solution, check_smoothing, fail, logger, solve, solve_verified
from pear.optimality.point import ActiveSet, Status
from pear.optimality.rule import OPTIMAL
from pear.problem import Model, Projection
from pear.problem.canonical import QuadraticProgram
from pear.problem.constraint_map import own_sides
from pear.problem.elastic import curved, nearest
from pear.problem.keys import rows_of
from pear.problem.matrix import matvec
from pear.sensitivity.verified_solutions import VerifiedSolutions
from pear.solvers.base import Start

_FIRST, _RAISED, _TRIES = 100.0, 100.0, 4  # prices of a projection, in costs; what they are raised by, and how often
_TIES = 0.01  # of "auto", where no cost is predicted and smoothing has only ties to break


class Values(NamedTuple):
    """The costs (B, n) and the right-hand sides b, h, lb and ub, (r,) or (B, r), of predicted or true values (B, k)."""

    cost: Tensor
    sides: dict[str, Tensor]

    def size(self) -> Tensor:
        """(B,) the largest finite right-hand side in absolute value, at least 1."""
        sizes = [side.expand(len(self.cost), -1).abs() for side in self.sides.values() if side.shape[-1]]
        entries = torch.cat([torch.ones_like(self.cost[:, :1]), *sizes], 1)
        return torch.where(entries.isfinite(), entries, 0.0).amax(1)

    def only(self, rows: Tensor) -> Values:
        """The values of some samples."""
        return Values(self.cost[rows], {name: s[rows] if s.ndim == 2 else s for name, s in self.sides.items()})


class Violation(NamedTuple):
    """The price of the violations (B,), and its derivatives by b and h of the elastic problem."""

    value: Tensor
    by_b: Tensor
    by_h: Tensor


@dataclass(frozen=True)
class Forecast:
    """The decision under a forecast.

    Attributes:
        solved: the solutions of the elastic problem.
        cost, fields: the costs and fields that it was solved with.
        least: the least violation that the forecast allows; 0 where it is feasible.
    """

    solved: VerifiedSolutions
    cost: Tensor
    fields: dict[str, Tensor]
    least: Violation


@dataclass(frozen=True)
class RealisedCosts:
    """The outcome of decisions under the truth, after recourse.

    Attributes:
        x: (B, n) decisions after recourse, with their violations behind them where these have a price.
        program: the true programs, whose objective at ``x`` is the realised cost.
        upstream: (B, n) derivative of that objective by the decision under the forecast; zeros where not asked for.
        status: (B,) int8 of ``Status``.
    """

    x: Tensor
    program: QuadraticProgram
    upstream: Tensor
    status: Tensor


class RecourseDecider:
    """Decides for a model with predicted right-hand sides: one ``Decider`` for each of its problems.

    Args:
        model: a model with a constraint map.
        solver: "auto" or a name that ``pear solvers`` lists.
        smoothing: the curvature added on the decision, not on slacks; None adds nothing.

    Attributes:
        forecasts: decides under a forecast.
        truths, guides: decide under true right-hand sides, by true costs and by predicted ones.
        plain: the model's problem, relaxed and smoothed.
        weights: the metric of a ``Projection``; None for a ``Penalty``.
    """

    def __init__(self, model: Model, solver: str = "auto", smoothing: Smoothing | None = None) -> None:
        self.model, self.elastic, self._made_with = model, model.elastic, (solver, smoothing)
        relaxed, curvature = model.problem.relaxed(), _curvature(model, smoothing)
        self.plain = relaxed if curvature is None else curved(relaxed, curvature)
        self.forecasts = Decider(self.elastic.smoothed(curvature), solver)
        self.weights = model.recourse.metric(relaxed) if isinstance(model.recourse, Projection) else None
        best = self.forecasts.problem if self.weights is None else self.plain
        self.truths, self.guides = Decider(best, solver), Decider(best, solver)
        self._side_guides = Decider(self.forecasts.problem, solver)
        self._nearest = None if self.weights is None else Decider(nearest(relaxed, self.weights), solver)

    def deciders(self) -> dict[str, Decider]:
        """All deciders, by name."""
        all_of_them = {
            "forecasts": self.forecasts,
            "truths": self.truths,
            "guides": self.guides,
            "side guides": self._side_guides,
            "nearest": self._nearest,
        }
        return {name: decider for name, decider in all_of_them.items() if decider is not None}

    def copy(self) -> RecourseDecider:
        """The same deciders without warm starts."""
        return RecourseDecider(self.model, *self._made_with)

    def values(self, values: Tensor, keys: list[Hashable] | None) -> Values:
        """Costs and right-hand sides of values (B, k), in float64, differentiable."""
        values = values.double()
        own = own_sides(rows_of(self.model.problem, keys))
        return Values(self.model.cost(values, keys), own | self.model.right_hand_sides(values, keys))

    def locked(self, keys: list[Hashable] | None) -> AbstractContextManager[Any]:
        """A lock to hold while samples with keys are decided."""
        return self.forecasts.locked(keys)

    def decide(self, forecast: Values, keys: list[Hashable] | None, known: Tensor | None = None) -> Forecast:
        """Decide under a forecast.

        Args:
            forecast: detached costs and right-hand sides.
            keys: sample ids, or None.
            known: (B,) int8 statuses of samples that are known to fail, or None.
        """
        fields, size = self.elastic.fields(forecast.sides), forecast.cost.abs().amax(1)
        times = None if self.weights is None else _FIRST * torch.where(size > 0, size, 1.0)
        for _ in range(_TRIES):
            cost = self.elastic.cost(forecast.cost, times)
            solved = self.forecasts.solve(cost, 0.0, keys, known=known, **fields)
            violated, negligible = self.elastic.charge(solved.x), OPTIMAL * forecast.size() * self.elastic.price.amax()
            least = self.least_violation(forecast, keys, solved.solved & (violated > negligible))
            more = solved.solved & (violated > least.value + negligible)
            if times is None or not bool(more.any()):
                break
            times = torch.where(more, _RAISED * times, times)
        else:  # more than the least violation, at any price that was tried
            solved.status = torch.where(more, int(Status.INACCURATE), solved.status).to(torch.int8)
        return Forecast(solved, cost, fields, least)

    def least_violation(self, values: Values, keys: list[Hashable] | None, where: Tensor) -> Violation:
        """The least violation of the samples marked in ``where`` (B,), and 0 for the others.

        Its derivatives are minus the multipliers of a linear program.
        """
        problem, rows = rows_of(self.elastic.violations, keys), where.nonzero()[:, 0]
        p, m = (0 if side is None else side.shape[-1] for side in (problem.b, problem.h))
        found = Violation(*(values.cost.new_zeros(len(where), size) for size in (1, p, m)))
        if len(rows):
            some = values.only(rows)
            nothing, fields = self.elastic.cost(torch.zeros_like(some.cost)), self.elastic.fields(some.sides)
            solved = solve_verified(problem[rows], nothing, 0.0, "auto", **fields)
            known = solved.solved[:, None]
            each = self.elastic.charge(solved.x)[:, None], -solved.duals.equality, -solved.duals.inequality
            for into, one in zip(found, each, strict=True):
                into[rows] = torch.where(known, one, 0.0)
        return found._replace(value=found.value[:, 0])

    def solve_integers(
        self,
        values: Values,
        keys: list[Hashable] | None,
        smoothing: float | Literal["auto"] = 0.0,
        on_failure: OnFailure = "raise",
    ) -> Solution:
        """Solve the elastic problem with its integers, under a forecast or under the truth."""
        problem, fields = rows_of(self.elastic.problem, keys), self.elastic.fields(values.sides)
        return solve(problem, self.elastic.cost(values.cost), smoothing, self._made_with[0], on_failure, **fields)

    def true_fields(self, truth: Values) -> dict[str, Any]:
        """The fields of the true problem that the truth replaces."""
        if self.weights is None:
            return self.elastic.fields(truth.sides)
        assert self.model.constraint_map is not None
        return {name: truth.sides[name] for name in self.model.constraint_map.sides}

    def true_cost(self, cost: Tensor) -> Tensor:
        """The costs of the true problem from costs (B, n)."""
        return self.elastic.cost(cost) if self.weights is None else cost

    def best(self, truth: Values, keys: list[Hashable] | None) -> tuple[Start, Tensor]:
        """The best solutions under the truth, and their statuses."""
        return self.truths.solve_true(self.true_cost(truth.cost), 0.0, keys, **self.true_fields(truth))

    def known_failures(self, forecast: Values, keys: list[Hashable] | None) -> Tensor | None:
        """(B,) int8: failures under the forecast that are known before a solver is asked; None where there are none."""
        cost, fields = self.elastic.cost(forecast.cost), self.elastic.fields(forecast.sides)
        return self.forecasts.known_failures("predicted", cost, 0.0, keys, fields)

    def known_true_failures(self, truth: Values, keys: list[Hashable] | None) -> Tensor | None:
        """The same under the truth."""
        return self.truths.known_failures("true", self.true_cost(truth.cost), 0.0, keys, self.true_fields(truth))

    def guide(self, cost: Tensor, truth: Values, keys: list[Hashable] | None) -> VerifiedSolutions:
        """The best solutions under other costs (B, n) and the true right-hand sides."""
        return self.guides.solve(self.true_cost(cost), 0.0, keys, **self.true_fields(truth))

    def guide_sides(self, cost: Tensor, found: Forecast, keys: list[Hashable] | None) -> VerifiedSolutions:
        """The elastic solutions under other costs (B, n) and predicted right-hand sides."""
        cost = torch.cat([cost, found.cost[:, self.elastic.n :]], 1)
        return self._side_guides.solve(cost, 0.0, keys, **found.fields)

    def multipliers(self, best: Start) -> tuple[Tensor, Tensor]:
        """Multipliers of the true problem, by b and h of the elastic problem."""
        duals = best.duals
        if self.weights is None:
            return duals.equality, duals.inequality
        return duals.equality, self.elastic.as_rows(duals.inequality, duals.bound)

    def realise(self, z: Tensor, truth: Values, keys: list[Hashable] | None, wanted: bool) -> RealisedCosts:
        """Realise decisions z (B, n) under the truth, with the derivative of their cost where it is ``wanted``."""
        problem, fields = self.truths.problem_of(keys), self.true_fields(truth)
        program = problem.canonical(self.true_cost(truth.cost), 0.0, **fields)
        if self._nearest is None or self.weights is None:
            violation = self.elastic.violation(z, program)
            x, status = torch.cat([z, violation], 1), torch.zeros(len(z), dtype=torch.int8, device=z.device)
            upstream = _slope(program, x)[:, : self.elastic.n] + self.elastic.slope(violation > 0, program)
            return RealisedCosts(x, program, upstream, status)
        near = self._nearest.decide(-self.weights * z, 0.0, keys, fields, by_rows=False)
        upstream = torch.zeros_like(z)
        if wanted:
            slope = _slope(program, near.x)
            upstream = self.weights * near.project(torch.where(slope.isfinite(), slope, 0.0))
        return RealisedCosts(near.x, program, upstream, near.status)


def choose_recourse_smoothing(
    model: Model, values: Tensor, smoothing: float | Literal["auto"], keys: list[Hashable] | None
) -> Smoothing:
    """λ as it was given, or for "auto" by true values (B, k) and the decisions under them.

    Where no cost is predicted, smoothing only has to choose between equally good decisions, and "auto" is a hundredth
    of what it is otherwise.
    """
    check_smoothing(smoothing)
    if smoothing != "auto":
        return Smoothing.given(float(smoothing))
    if model.problem.is_curved:
        found = Smoothing(0.0, note="smoothing='auto' settled on λ = 0: the objective is curved by itself")
    else:
        decider = RecourseDecider(model)
        truth = decider.values(values.detach(), keys)
        best, status = decider.best(truth, None if keys is None else list(keys))
        x, n = best.x, model.problem.n
        costs, bounds = model.problem.sign * truth.cost, (truth.sides["lb"], truth.sides["ub"])
        found = settle(
            costs, x[:, :n], status == Status.SOLVED, bounds, lambda some: torch.full_like(x[0, some], torch.nan)
        )
        found = found if model.predicts_costs else found.times(_TIES)
    logger.info(found.note)
    return found


def solve_forecast(model: Model, values: Tensor, smoothing: float | Literal["auto"], solver: str) -> Solution:
    """``pear.solve`` for a model with predicted right-hand sides: the elastic decision, without its slacks.

    Args:
        model: with a constraint map.
        values: (B, k) predicted values.
        smoothing, solver: as for ``solve``.
    """
    n = model.problem.n
    if model.problem.is_integer:
        decider = RecourseDecider(model, solver)
        forecast = decider.values(values.detach(), None)
        return _without_slacks(model, decider.solve_integers(forecast, None, smoothing, "mask"))
    decider = RecourseDecider(model, solver, choose_recourse_smoothing(model, values, smoothing, None))
    found = decider.decide(decider.values(values.detach(), None), None)
    solution = as_solution(decider.forecasts.problem, found.solved)
    if decider.weights is not None:  # whose prices are no part of the objective
        charged = (solution.x * found.cost)[:, n:].sum(1)
        solution = replace(solution, value=solution.value - charged)
    return _without_slacks(model, solution)


def decide_forecast(model: Model, values: Tensor, keys: list[Hashable] | None, solver: str) -> Tensor:
    """Decide under predicted values (B, k) on the problem as it is, integers included; returns (B, n) decisions.

    Raises:
        SolveError: a sample is not solved.
    """
    decider = RecourseDecider(model, solver)
    forecast = decider.values(values.detach(), keys)
    if model.problem.is_integer:
        return decider.solve_integers(forecast, keys).x[:, : model.problem.n]
    solved = decider.decide(forecast, keys).solved
    fail(solved.status, "raise", "the forecast")
    return solved.x[:, : model.problem.n]


def _without_slacks(model: Model, solution: Solution) -> Solution:
    """The solution in the variables, rows and bounds of the user's own problem."""
    elastic, n = model.elastic, model.problem.n

    def sets(active: ActiveSet) -> ActiveSet:
        rows, lower, upper = elastic.split_rows(active.rows.double())
        return ActiveSet(rows > 0, active.lower[:, :n] | (lower > 0), active.upper[:, :n] | (upper > 0))

    duals = solution.duals
    if duals is not None:
        rows, lower, upper = elastic.split_rows(duals.inequality)
        duals = replace(duals, inequality=rows, bound=duals.bound[:, :n] + upper - lower)
    return replace(solution, x=solution.x[:, :n], active=sets(solution.active), weak=sets(solution.weak), duals=duals)


def _slope(program: QuadraticProgram, x: Tensor) -> Tensor:
    return matvec(program.H, x) + program.c


def _curvature(model: Model, smoothing: Smoothing | None) -> Tensor | None:
    """(n,) what a smoothing adds to each variable's curvature; None where that is nothing."""
    if smoothing is None or smoothing.value == 0:
        return None
    units = torch.ones(model.problem.n, dtype=torch.float64) if smoothing.units is None else smoothing.units.double()
    return (smoothing.value / units.square()).to(model.problem.device)
