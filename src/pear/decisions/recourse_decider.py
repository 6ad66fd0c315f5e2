"""``RecourseDecider``: decisions of a model that predicts right-hand sides.

The decision under a forecast is a solution of the elastic problem. Its slack variables let the decision violate the
predicted rows at a price. If the model's recourse is a ``Penalty``, it gives these prices. If it is a ``Projection``,
the prices are raised until the violation is the least that the forecast allows. If the forecast is feasible, this
violation is zero, and the decision solves the problem itself.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pear.decisions.continuous_programs import solve_continuous_programs
from pear.decisions.decider import Decider
from pear.decisions.integer_programs import solve_integer_programs
from pear.decisions.recourse_values import RecourseValues
from pear.decisions.smoothing import Smoothing
from pear.decisions.solution import Solution
from pear.errors import ProblemError
from pear.optimality.rule import OPTIMAL
from pear.optimality.status import Status
from pear.problem import Model, Projection
from pear.problem.constraint_map import constraint_sides
from pear.problem.derived_problems import nearest_point_problem, problem_with_curvature
from pear.problem.matrix import matvec
from pear.problem.quadratic_program import QuadraticProgram
from pear.problem.sample_keys import select_by_keys
from pear.sensitivity.verified_solutions import VerifiedSolutions
from pear.solvers.candidate import Start

_FIRST_PRICE = 100.0  # of a projection's violations, relative to the largest cost
_PRICE_FACTOR, _PRICES = 100.0, 4  # the factor that raises the price, and the largest number of prices


class LeastViolation(NamedTuple):
    """The least total price that a decision must pay for violating the right-hand sides, with its derivatives.

    Attributes:
        value: (B,) the least total price.
        by_b: (B, p) the derivative of ``value`` with respect to b of the elastic problem.
        by_h: (B, m) the derivative of ``value`` with respect to h of the elastic problem.
        z: (B, n) the decisions with this price. The derivative with respect to a row of A or G is minus z times the
            derivative with respect to the right-hand side of the row.
    """

    value: Tensor
    by_b: Tensor
    by_h: Tensor
    z: Tensor


@dataclass(frozen=True)
class ForecastDecisions:
    """The decisions under a forecast.

    Attributes:
        solved: the solutions of the elastic problem.
        cost: (B, n + slacks) the costs of the elastic problem, with the prices of its slacks.
        fields: the fields of the elastic problem that the forecast replaces, by name.
        least: the least violation that the forecast allows; 0 for feasible forecasts.
    """

    solved: VerifiedSolutions
    cost: Tensor
    fields: dict[str, Tensor]
    least: LeastViolation


@dataclass(frozen=True)
class RealisedCosts:
    """The outcome of decisions under the true values, after recourse.

    Attributes:
        x: (B, n) decisions after recourse; with a ``Penalty``, decisions and violations (B, n + slacks).
        program: the true programs, whose objective at ``x`` is the realised cost.
        upstream: (B, n) derivative of the realised cost with respect to the decision under the forecast; zeros if it
            was not computed.
        status: (B,) int8 of ``Status``.
    """

    x: Tensor
    program: QuadraticProgram
    upstream: Tensor
    status: Tensor


class RecourseDecider:
    """A model that predicts right-hand sides, with one ``Decider`` for each problem that its decisions involve.

    Args:
        model: a model with a constraint map.
        solver: "auto" or a name that ``pear solvers`` lists.
        smoothing: the curvature that is added for the decision variables, not for slacks; None adds none.

    Attributes:
        forecasts: the ``Decider`` for forecasts, on the elastic problem.
        truths: the ``Decider`` for true right-hand sides and true costs.
        guides: the ``Decider`` for true right-hand sides and predicted costs. The guidance terms of
            ``RecourseRegretFinder`` need it.
        side_guides: the ``Decider`` for predicted right-hand sides and true costs, on the elastic problem. The guidance
            terms need it, too.
        deciders: all deciders in use, by name.
        plain: the model's problem, relaxed and smoothed.
        weights: (n,) the weights of the distance of a ``Projection``; None for a ``Penalty``.
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
        """Return a ``RecourseDecider`` with the same settings and without stored solutions."""
        return RecourseDecider(self.model, *self._made_with)

    def values(self, values: Tensor, keys: list[Hashable] | None) -> RecourseValues:
        """Compute costs, right-hand sides and coefficients from values (B, k), in float64 and differentiable."""
        values = values.double()
        own = constraint_sides(select_by_keys(self.model.problem, keys))
        sides = own | self.model.right_hand_sides(values, keys)
        return RecourseValues(self.model.cost(values, keys), sides, self.model.coefficients(values, keys))

    def decide(
        self,
        forecast: RecourseValues,
        keys: list[Hashable] | None,
        known: Tensor | None = None,
        near: Start | None = None,
    ) -> ForecastDecisions:
        """Return the decisions under a forecast, and the least violation that the forecast allows.

        With a ``Projection``, a sample whose violation exceeds the least one at every price that is tried becomes
        INACCURATE.

        Args:
            forecast: detached costs and right-hand sides.
            keys: sample ids, or None.
            known: (B,) int8 of ``Status``, the statuses of samples that are known to fail and SOLVED for all other
                samples; None if no sample is known to fail.
            near: solutions of the elastic problem under other values, from which samples without a stored solution may
                start; or None.
        """
        fields, size = self.elastic.fields(forecast.sides, forecast.matrices), forecast.cost.abs().amax(1)
        times = None if self.weights is None else _FIRST_PRICE * torch.where(size > 0, size, 1.0)
        for _ in range(_PRICES):
            cost = self.elastic.cost(forecast.cost, times)
            solved = self.forecasts.solve(cost, 0.0, keys, known=known, near=near, **fields)
            violated, negligible = self.elastic.charge(solved.x), OPTIMAL * forecast.size() * self.elastic.price.amax()
            least = self.least_violation(forecast, keys, solved.solved & (violated > negligible))
            more = solved.solved & (violated > least.value + negligible)
            if times is None or not bool(more.any()):
                break
            times = torch.where(more, _PRICE_FACTOR * times, times)
        else:  # the violation is still too large at the highest price
            solved.status = torch.where(more, int(Status.INACCURATE), solved.status).to(torch.int8)
        return ForecastDecisions(solved, cost, fields, least)

    def least_violation(self, values: RecourseValues, keys: list[Hashable] | None, where: Tensor) -> LeastViolation:
        """Compute the least violation that the right-hand sides allow, by linear programs.

        The derivatives are minus the multipliers of these programs.

        Args:
            values: costs and right-hand sides.
            keys: sample ids, or None.
            where: (B,) bool, the samples to compute. The result is 0 for all other samples, and for samples whose
                linear program is not solved.
        """
        problem, rows = select_by_keys(self.elastic.violation_problem, keys), where.nonzero()[:, 0]
        p, m = (0 if side is None else side.shape[-1] for side in (problem.b, problem.h))
        found = LeastViolation(*(values.cost.new_zeros(len(where), size) for size in (1, p, m, self.elastic.n)))
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

    def solve_integers(
        self, values: RecourseValues, keys: list[Hashable] | None, smoothing: float | str = 0.0
    ) -> Solution:
        """Solve the elastic problem with its integers, under forecast or true values."""
        problem, (cost, fields) = select_by_keys(self.elastic.problem, keys), self.elastic_data(values)
        return solve_integer_programs(problem, cost, smoothing, self._made_with[0], **fields)

    def elastic_data(self, values: RecourseValues) -> tuple[Tensor, dict[str, Any]]:
        """Return the costs (B, n + slacks) of the elastic problem, and the fields of it that the values replace."""
        return self.elastic.cost(values.cost), self.elastic.fields(values.sides, values.matrices)

    def true_data(self, truth: RecourseValues) -> tuple[Tensor, dict[str, Any]]:
        """Return the costs of the true problem, and the fields of it that the true values replace.

        The true problem is the elastic problem for a ``Penalty``, and the model's own problem for a ``Projection``.
        """
        if self.weights is None:
            return self.elastic_data(truth)
        assert self.model.constraint_map is not None
        return truth.cost, {name: truth.sides[name] for name in self.model.constraint_map.sides} | {**truth.matrices}

    def best(self, truth: RecourseValues, keys: list[Hashable] | None) -> tuple[Start, Tensor]:
        """Solve the true problem (see ``true_data``); return the solutions and their statuses (B,)."""
        cost, fields = self.true_data(truth)
        return self.truths.solve_true(cost, 0.0, keys, **fields)

    def known_failures(self, forecast: RecourseValues, keys: list[Hashable] | None) -> Tensor | None:
        """Return the statuses (B,) of samples that failed before under the same forecast; None if none failed."""
        cost, fields = self.elastic_data(forecast)
        return self.forecasts.known_failures("predicted", cost, 0.0, keys, fields)

    def realise(self, z: Tensor, truth: RecourseValues, keys: list[Hashable] | None, wanted: bool) -> RealisedCosts:
        """Return the outcome of decisions under the true values, after recourse.

        Args:
            z: (B, n) decisions.
            truth: true costs and right-hand sides.
            keys: sample ids, or None.
            wanted: whether a ``Projection`` computes the derivative of the realised cost; a ``Penalty`` always does.
        """
        cost, fields = self.true_data(truth)
        program = self.truths.problem_of(keys).canonical(cost, 0.0, **fields)
        if self.weights is None:
            violation = self.elastic.violation(z, program)
            x, status = torch.cat([z, violation], 1), torch.zeros(len(z), dtype=torch.int8, device=z.device)
            slope = self._objective_gradient(program, x)[:, : self.elastic.n]
            upstream = slope + self.elastic.slope(violation > 0, program)
            return RealisedCosts(x, program, upstream, status)
        near = self.deciders["nearest"].decide(-self.weights * z, 0.0, keys, fields, by_rows=False)
        upstream = torch.zeros_like(z)
        if wanted:
            slope = self._objective_gradient(program, near.x)
            upstream = self.weights * near.project(torch.where(slope.isfinite(), slope, 0.0))
        return RealisedCosts(near.x, program, upstream, near.status)

    @staticmethod
    def refuse_fields(fields: Mapping[str, Any]) -> None:
        """Raise ProblemError if a call replaces fields of the problem, because the model predicts right-hand sides."""
        if fields:
            raise ProblemError(
                f"{', '.join(fields)} came with a model that predicts right-hand sides; put them into its problem"
            )

    @staticmethod
    def _objective_gradient(program: QuadraticProgram, x: Tensor) -> Tensor:
        """Compute the gradient (B, n) of the programs' objectives at x (B, n)."""
        return matvec(program.H, x) + program.c
