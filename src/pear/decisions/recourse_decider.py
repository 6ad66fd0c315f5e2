"""``RecourseDecider``: decisions of a model that predicts right-hand sides.

The decision under a forecast is a solution of the elastic problem, in which slacks may violate the predicted rows at a
price. A ``Penalty`` gives these prices. For a ``Projection`` the prices are raised until the violation is the least
that the forecast allows. Where the forecast is feasible, this violation is zero, and the decision solves the problem
itself.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pear.decisions.continuous_programs import solve_continuous_programs
from pear.decisions.decider import Decider
from pear.decisions.integer_programs import solve_integer_programs
from pear.decisions.smoothing import Smoothing, drop_idle_floor, given_or_auto, smoothing_from_decisions
from pear.decisions.solution import Solution, as_solution
from pear.errors import ProblemError
from pear.optimality.duals_and_active_sets import ActiveSet
from pear.optimality.rule import OPTIMAL
from pear.optimality.status import Status
from pear.problem import Model, Projection
from pear.problem.constraint_map import constraint_sides
from pear.problem.derived_problems import minimised_problem_curvature, nearest_point_problem, problem_with_curvature
from pear.problem.matrix import matvec
from pear.problem.quadratic_program import QuadraticProgram
from pear.problem.sample_keys import select_by_keys
from pear.sensitivity.verified_solutions import VerifiedSolutions
from pear.solvers.candidate import Start

_FIRST, _RAISED, _TRIES = 100.0, 100.0, 4  # first price of a projection, in costs; the factor that raises it; how often
_TIES = 0.01  # share of the "auto" smoothing where no cost is predicted and smoothing only breaks ties


class Values(NamedTuple):
    """The costs and right-hand sides that predicted or true values lead to.

    Attributes:
        cost: (B, n) costs.
        sides: the right-hand sides b, h, lb and ub by name, each (r,) or (B, r).
        matrices: A and G by name, (B, r, n), where their coefficients are predicted.
    """

    cost: Tensor
    sides: dict[str, Tensor]
    matrices: Mapping[str, Tensor] = MappingProxyType({})

    def detach(self) -> Values:
        """Return the values without a gradient."""
        sides, matrices = ({name: one.detach() for name, one in part.items()} for part in (self.sides, self.matrices))
        return Values(self.cost.detach(), sides, matrices)

    def size(self) -> Tensor:
        """Return the largest finite right-hand side in absolute value, at least 1; shape (B,)."""
        sizes = [side.expand(len(self.cost), -1).abs() for side in self.sides.values() if side.shape[-1]]
        entries = torch.cat([torch.ones_like(self.cost[:, :1]), *sizes], 1)
        return torch.where(entries.isfinite(), entries, 0.0).amax(1)

    def only(self, rows: Tensor) -> Values:
        """Return the values of the samples ``rows``."""
        sides = {name: s[rows] if s.ndim == 2 else s for name, s in self.sides.items()}
        return Values(self.cost[rows], sides, {name: matrix[rows] for name, matrix in self.matrices.items()})


class Violation(NamedTuple):
    """The price of violating constraints, with its derivatives.

    Attributes:
        value: (B,) the price of all violations of a sample.
        by_b: (B, p) its derivative with respect to b of the elastic problem.
        by_h: (B, m) its derivative with respect to h of the elastic problem.
        z: (B, n) the decisions that violate least. The derivative in a row of A or G is minus that in its limit, times
            z.
    """

    value: Tensor
    by_b: Tensor
    by_h: Tensor
    z: Tensor


@dataclass(frozen=True)
class Forecast:
    """The decision under a forecast.

    Attributes:
        solved: the solutions of the elastic problem.
        cost: (B, n + slacks) the costs of the elastic problem, with the prices of its slacks.
        fields: the fields of the elastic problem that the forecast replaces.
        least: the least violation that the forecast allows; 0 where the forecast is feasible.
    """

    solved: VerifiedSolutions
    cost: Tensor
    fields: dict[str, Tensor]
    least: Violation


@dataclass(frozen=True)
class RealisedCosts:
    """The outcome of decisions under the truth, after recourse.

    Attributes:
        x: (B, n) decisions after recourse; with a ``Penalty`` (B, n + slacks), the violations included.
        program: the true programs; their objective at ``x`` is the realised cost.
        upstream: (B, n) derivative of the realised cost by the decision under the forecast; zeros where not computed.
        status: (B,) int8 of ``Status``.
    """

    x: Tensor
    program: QuadraticProgram
    upstream: Tensor
    status: Tensor


class RecourseDecider:
    """Decides for a model that predicts right-hand sides, with one ``Decider`` for each problem involved.

    Args:
        model: a model with a constraint map.
        solver: "auto" or a name that ``pear solvers`` lists.
        smoothing: the curvature added for the decision variables, not for slacks; None adds none.

    Attributes:
        forecasts: the ``Decider`` for forecasts, on the elastic problem.
        truths: the ``Decider`` for true right-hand sides and true costs.
        guides: the ``Decider`` for true right-hand sides and predicted costs.
        side_guides: the ``Decider`` for predicted right-hand sides and true costs, on the elastic problem.
        deciders: all deciders in use, by name.
        plain: the model's problem, relaxed and smoothed.
        weights: (n,) the metric of a ``Projection``; None for a ``Penalty``.
    """

    def __init__(self, model: Model, solver: str = "auto", smoothing: Smoothing | None = None) -> None:
        self.model, self.elastic, self._made_with = model, model.elastic, (solver, smoothing)
        relaxed = model.problem.relaxed()
        curvature = None if smoothing is None else smoothing.curvature_for_user(model.problem)
        self.plain = relaxed if curvature is None else problem_with_curvature(relaxed, curvature)
        self.forecasts = Decider(self.elastic.smoothed(curvature), solver)
        self.weights = model.recourse.metric(relaxed) if isinstance(model.recourse, Projection) else None
        best = self.forecasts.problem if self.weights is None else self.plain
        self.truths, self.guides = Decider(best, solver), Decider(best, solver)
        self.side_guides = Decider(self.forecasts.problem, solver)
        self.deciders = {"forecasts": self.forecasts, "truths": self.truths, "guides": self.guides}
        self.deciders["side guides"] = self.side_guides
        if self.weights is not None:
            self.deciders["nearest"] = Decider(nearest_point_problem(relaxed, self.weights), solver)

    def copy(self) -> RecourseDecider:
        """Return a ``RecourseDecider`` with the same settings and no warm starts."""
        return RecourseDecider(self.model, *self._made_with)

    def values(self, values: Tensor, keys: list[Hashable] | None) -> Values:
        """Compute costs and right-hand sides from values (B, k), in float64, differentiable."""
        values = values.double()
        own = constraint_sides(select_by_keys(self.model.problem, keys))
        sides = own | self.model.right_hand_sides(values, keys)
        return Values(self.model.cost(values, keys), sides, self.model.coefficients(values, keys))

    def decide(self, forecast: Values, keys: list[Hashable] | None, known: Tensor | None = None) -> Forecast:
        """Decide under a forecast.

        Args:
            forecast: detached costs and right-hand sides.
            keys: sample ids, or None.
            known: (B,) int8 statuses of samples that are known to fail, or None.
        """
        fields, size = self.elastic.fields(forecast.sides, forecast.matrices), forecast.cost.abs().amax(1)
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
        else:  # no price that was tried brings the violation down to the least one
            solved.status = torch.where(more, int(Status.INACCURATE), solved.status).to(torch.int8)
        return Forecast(solved, cost, fields, least)

    def least_violation(self, values: Values, keys: list[Hashable] | None, where: Tensor) -> Violation:
        """Compute the least violation that the right-hand sides allow, by a linear program.

        The derivatives are minus the multipliers of this program.

        Args:
            values: costs and right-hand sides.
            keys: sample ids, or None.
            where: (B,) bool, the samples to compute; the violation of the others is 0.
        """
        problem, rows = select_by_keys(self.elastic.violations, keys), where.nonzero()[:, 0]
        p, m = (0 if side is None else side.shape[-1] for side in (problem.b, problem.h))
        found = Violation(*(values.cost.new_zeros(len(where), size) for size in (1, p, m, self.elastic.n)))
        if len(rows):
            some = values.only(rows)
            nothing, fields = self.elastic_data(some._replace(cost=torch.zeros_like(some.cost)))
            solved = solve_continuous_programs(problem[rows], nothing, 0.0, "auto", **fields)
            known = solved.solved[:, None]
            duals, z = solved.duals, solved.x[:, : self.elastic.n]
            each = self.elastic.charge(solved.x)[:, None], -duals.equality, -duals.inequality, z
            for into, one in zip(found, each, strict=True):
                into[rows] = torch.where(known, one, 0.0)
        return found._replace(value=found.value[:, 0])

    def solve_integers(self, values: Values, keys: list[Hashable] | None, smoothing: float | str = 0.0) -> Solution:
        """Solve the elastic problem with its integers, under a forecast or under the truth."""
        problem, (cost, fields) = select_by_keys(self.elastic.problem, keys), self.elastic_data(values)
        return solve_integer_programs(problem, cost, smoothing, self._made_with[0], **fields)

    def elastic_data(self, values: Values) -> tuple[Tensor, dict[str, Any]]:
        """Return the costs (B, n + slacks) of the elastic problem, and the fields of it that values replace."""
        return self.elastic.cost(values.cost), self.elastic.fields(values.sides, values.matrices)

    def true_data(self, truth: Values) -> tuple[Tensor, dict[str, Any]]:
        """Return the costs of the true problem, and the fields of it that the truth replaces.

        The true problem is the elastic problem with a ``Penalty``, and the model's own with a ``Projection``.
        """
        if self.weights is None:
            return self.elastic_data(truth)
        assert self.model.constraint_map is not None
        return truth.cost, {name: truth.sides[name] for name in self.model.constraint_map.sides} | {**truth.matrices}

    def best(self, truth: Values, keys: list[Hashable] | None) -> tuple[Start, Tensor]:
        """Solve the true problem; returns the solutions and their statuses (B,)."""
        cost, fields = self.true_data(truth)
        return self.truths.solve_true(cost, 0.0, keys, **fields)

    def known_failures(self, forecast: Values, keys: list[Hashable] | None) -> Tensor | None:
        """Return the statuses (B,) of samples that failed before under the same forecast; None where there are none."""
        cost, fields = self.elastic_data(forecast)
        return self.forecasts.known_failures("predicted", cost, 0.0, keys, fields)

    def realise(self, z: Tensor, truth: Values, keys: list[Hashable] | None, wanted: bool) -> RealisedCosts:
        """Apply recourse to decisions under the truth.

        Args:
            z: (B, n) decisions.
            truth: true costs and right-hand sides.
            keys: sample ids, or None.
            wanted: whether to compute the derivative of the realised cost.
        """
        cost, fields = self.true_data(truth)
        program = self.truths.problem_of(keys).canonical(cost, 0.0, **fields)
        if self.weights is None:
            violation = self.elastic.violation(z, program)
            x, status = torch.cat([z, violation], 1), torch.zeros(len(z), dtype=torch.int8, device=z.device)
            upstream = _objective_gradient(program, x)[:, : self.elastic.n] + self.elastic.slope(violation > 0, program)
            return RealisedCosts(x, program, upstream, status)
        near = self.deciders["nearest"].decide(-self.weights * z, 0.0, keys, fields, by_rows=False)
        upstream = torch.zeros_like(z)
        if wanted:
            slope = _objective_gradient(program, near.x)
            upstream = self.weights * near.project(torch.where(slope.isfinite(), slope, 0.0))
        return RealisedCosts(near.x, program, upstream, near.status)


def refuse_fields(fields: Mapping[str, Any]) -> None:
    """Raise ProblemError where fields of the problem came with a model that predicts right-hand sides."""
    if fields:
        raise ProblemError(
            f"{', '.join(fields)} came with a model that predicts right-hand sides; put them into its problem"
        )


def choose_recourse_smoothing(
    model: Model, values: Tensor, smoothing: float | str, keys: list[Hashable] | None
) -> Smoothing:
    """Return the given λ, or choose λ for "auto" from true values (B, k) and the decisions under them.

    Where no cost is predicted, smoothing only has to choose between equally good decisions. The λ of "auto" is then a
    hundredth of its usual size.
    """

    def choose() -> Smoothing:
        decider = RecourseDecider(model)
        truth = decider.values(values.detach(), keys)
        best, status = decider.best(truth, keys)
        x, n = best.x, model.problem.n
        costs, bounds = model.problem.sign * truth.cost, (truth.sides["lb"], truth.sides["ub"])
        own = select_by_keys(model.problem, keys)
        H = minimised_problem_curvature(own) if own.is_curved else None
        found = smoothing_from_decisions(
            costs,
            x[:, :n],
            status == Status.SOLVED,
            bounds,
            lambda some: torch.full_like(x[0, some], torch.nan),
            H,
            floor=H is not None,
        )
        return drop_idle_floor(found if model.predicts_costs else found.times(_TIES), model.problem.relaxed())

    return given_or_auto(smoothing, choose)


def solve_forecast(model: Model, values: Tensor, smoothing: float | str, solver: str) -> Solution:
    """Solve the elastic problem under predicted values, as ``pear.solve`` does for such a model.

    Args:
        model: a model with a constraint map.
        values: (B, k) predicted values.
        smoothing: λ or "auto", as in ``pear.solve``.
        solver: "auto" or a name that ``pear solvers`` lists.

    Returns:
        The solution in the variables and constraints of the user's problem, without slacks.
    """
    n = model.problem.n
    if model.problem.is_integer:
        decider = RecourseDecider(model, solver)
        forecast = decider.values(values.detach(), None)
        return _without_slacks(model, decider.solve_integers(forecast, None, smoothing))
    decider = RecourseDecider(model, solver, choose_recourse_smoothing(model, values, smoothing, None))
    found = decider.decide(decider.values(values.detach(), None), None)
    solution = as_solution(decider.forecasts.problem, found.solved)
    if decider.weights is not None:  # the prices of a projection are not part of the objective
        charged = (solution.x * found.cost)[:, n:].sum(1)
        solution = replace(solution, value=solution.value - charged)
    return _without_slacks(model, solution)


def _without_slacks(model: Model, solution: Solution) -> Solution:
    """Convert a solution of the elastic problem to the variables, rows and bounds of the user's problem."""
    elastic, n = model.elastic, model.problem.n

    def sets(active: ActiveSet) -> ActiveSet:
        rows, lower, upper = elastic.split_rows(active.rows.double())
        return ActiveSet(rows > 0, active.lower[:, :n] | (lower > 0), active.upper[:, :n] | (upper > 0))

    duals = solution.duals
    if duals is not None:
        rows, lower, upper = elastic.split_rows(duals.inequality)
        duals = replace(duals, inequality=rows, bound=duals.bound[:, :n] + upper - lower)
    return replace(solution, x=solution.x[:, :n], active=sets(solution.active), weak=sets(solution.weak), duals=duals)


def _objective_gradient(program: QuadraticProgram, x: Tensor) -> Tensor:
    """Compute the gradient (B, n) of the programs' objectives at x (B, n)."""
    return matvec(program.H, x) + program.c
