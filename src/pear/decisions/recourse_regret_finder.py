"""``RecourseRegretFinder``: regrets with recourse, and their exact gradients, for predicted right-hand sides.

Let ĉ be the predicted costs, ẑ the decision under the forecast, and C(z) the realised cost of a decision z under the
true values, recourse included. The regret is ``R = C(ẑ) − min C``. With w = ∇C(ẑ), the curvature H and the active rows
J, let p and q solve ``[H Jᵀ; J 0][p; q] = [w; 0]``. Then ``∂R/∂ĉ = −p`` and ``∂R/∂(right-hand sides) = q``. With the
multipliers v of the active rows, ``∂R/∂(coefficients) = −(v pᵀ + q ẑᵀ)``.

The gradient of R is often zero. The loss therefore has three further terms, which are convex and never negative. z° is
the best decision under the true values, b are all true right-hand sides, b̂ the predicted ones, and L(b) is the least
true cost as a function of the right-hand sides.

* F is the suboptimality of z° under the predicted costs and the true right-hand sides. Its derivative with respect to
  the costs is z° − z, where z is the best decision under these costs and right-hand sides.
* ``D = L(b̂) − L(b) + y°ᵀ(b̂ − b)`` is the distance of L(b̂) from the tangent of L at b. The multipliers under b and b̂
  are y° and y, and the slope of the tangent is −y°. The derivative of D with respect to b̂ is y° − y. If coefficients
  are predicted, too, Â instead of the true A, ``b̂ − (Â − A) z°`` replaces b̂ in D.
* V is the least violation that an infeasible forecast allows, minus the least violation that the true values allow. Its
  derivative with respect to b̂ is −y, where y are the multipliers of the linear program for the least violation.

F and D are multiplied by the guidance α, which falls to zero during training.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from pear.clock import Stopwatch
from pear.decisions.recourse_decider import ForecastDecisions, RealisedCosts, RecourseDecider
from pear.decisions.recourse_values import RecourseValues
from pear.decisions.regret_finder import RegretFinder
from pear.optimality.rule import OPTIMAL
from pear.optimality.status import Status
from pear.problem.quadratic_program import QuadraticProgram
from pear.problem.sample_keys import select_by_keys
from pear.sensitivity.convexity import lacks_strict_convexity
from pear.sensitivity.derivatives import all_derivatives
from pear.sensitivity.inverse_curvature import apply_inverse_curvature
from pear.sensitivity.projection import inject_into_projection, project
from pear.sensitivity.verified_solutions import VerifiedSolutions
from pear.solvers.candidate import Start
from pear.solvers.normal_component import add_normal_component
from pear.solvers.regret_call import RegretCall, RegretCallResults


class _RecourseSlopes(NamedTuple):
    """Derivatives of one function with respect to the data of the elastic problem.

    Attributes:
        cost: (B, n) derivative with respect to the costs.
        b: (B, p) derivative with respect to b.
        h: (B, m) derivative with respect to h.
        A: (B, p, n) derivative with respect to the coefficients of equalities; 0 if none is predicted.
        G: (B, m, n) derivative with respect to the coefficients of inequalities; 0 if none is predicted.
    """

    cost: Tensor
    b: Tensor
    h: Tensor
    A: Tensor | float = 0.0
    G: Tensor | float = 0.0

    def plus(self, other: _RecourseSlopes) -> _RecourseSlopes:
        """Return the sum of these derivatives and ``other``."""
        cost, b, h = self.cost + other.cost, self.b + other.b, self.h + other.h
        return _RecourseSlopes(cost, b, h, self.A + other.A, self.G + other.G)


class RecourseRegretFinder(RegretFinder):
    """A ``RegretFinder`` for models that predict right-hand sides. Its calls have values (B, k) in place of costs.

    Args:
        decider: the ``RecourseDecider`` of the model.
    """

    def __init__(self, decider: RecourseDecider) -> None:
        self.decider = decider

    def known_failures(self, call: RegretCall) -> tuple[Tensor | None, Tensor | None]:
        """Return the statuses (B,) of samples that are known to fail, first under the forecast, then under the truth.

        A result is None if no failure is known.
        """
        if call.keys is None:
            return None, None
        forecast, truth = self._forecast_and_truth(call)
        cost, fields = self.decider.true_data(truth)
        true = self.decider.truths.known_failures("true", cost, 0.0, call.keys, fields)
        return self.decider.known_failures(forecast, call.keys), true

    def regrets_of_failures(self, status: Tensor, true_status: Tensor) -> RegretCallResults:
        """Return regrets of zero, with the given statuses (B,) under the forecast and under the true values."""
        wide = torch.zeros(len(status), self.decider.model.inputs, dtype=torch.float64, device=status.device)
        zeros = RegretCallResults.of_failures(status, true_status, self.decider.elastic.n)
        return replace(zeros, exact=wide, injected=wide.clone(), extra=wide[:, 0].clone(), gradient=wide.clone())

    def solve_again(self, call: RegretCall) -> VerifiedSolutions:
        """Solve the elastic problem under the forecast again, without using or changing stored solutions."""
        fresh = self.decider.copy()
        return fresh.decide(fresh.values(call.predicted, call.keys), call.keys).solved

    def solve_regrets(
        self, call: RegretCall, wanted: bool, seconds: dict[str, float]
    ) -> tuple[RegretCallResults, bool]:
        """Compute the regrets of a batch. Arguments and results are those of ``RegretFinder.solve_regrets``.

        ``extra`` of the regrets is α F + α D + V, and ``gradient`` is the gradient of the regret plus ``extra``, with
        the normal component that ``call.injection`` adds. The module defines F, D and V.
        """
        decider, ids = self.decider, call.keys
        forecast, truth = self._forecast_and_truth(call)
        with Stopwatch(seconds, "solve"):
            ideal, ideal_status = decider.best(truth, ids)
            found = decider.decide(forecast, ids, near=ideal if decider.weights is None else None)
            n, solved = decider.elastic.n, found.solved
            realised = decider.realise(solved.x[:, :n], truth, ids, wanted)
            true_status = torch.where(ideal_status == Status.SOLVED, realised.status, ideal_status)
            good = solved.solved & (true_status == Status.SOLVED)
            value = self.regret_of_decisions(decider.truths.problem, realised.x, ideal, realised.program)
            cost_gap, by_cost = self._cost_gap(call, (forecast, truth), ideal)
            side_gap, by_sides = self._side_gap(call, (forecast, truth), found, (ideal, realised.program))
            excess, by_excess, least_at = self._excess_violation(found, truth, ids)
        exact = injected = gradient = value.new_zeros(len(value), decider.model.inputs)
        if wanted:
            with Stopwatch(seconds, "gradient"):
                slopes = self._regret_slopes(found, realised)
                exact = self._by_values(slopes, good)
                normal = self._normal_component(call, found, forecast.cost - truth.cost)
                slopes = slopes._replace(cost=slopes.cost + normal)
                injected = self._by_values(slopes, good)
                pull = self._slopes_of_limits(by_cost, *by_excess, least_at)
                pull = pull.plus(self._slopes_of_limits(torch.zeros_like(by_cost), *by_sides, ideal.x[:, :n]))
                gradient = self._by_values(slopes.plus(pull), good)
        decisions, extra = (solved.x[:, :n], ideal.x[:, :n]), torch.where(good, cost_gap + side_gap + excess, 0.0)
        gradients = {"exact": exact, "injected": injected, "extra": extra, "gradient": gradient}
        return self.assemble_regrets(good, value, decisions, solved, true_status, **gradients), False

    def _forecast_and_truth(self, call: RegretCall) -> tuple[RecourseValues, RecourseValues]:
        """Compute the costs and right-hand sides of the forecast and of the true values."""
        return self.decider.values(call.predicted, call.keys), self.decider.values(call.true, call.keys)

    def _by_values(self, slopes: _RecourseSlopes, where: Tensor) -> Tensor:
        """Compute the gradient (B, k) with respect to the predicted values from ``slopes``, by the chain rule.

        The gradient is zero for samples at which ``where`` (B,) is False.
        """
        model = self.decider.model
        assert model.cost_map is not None
        assert model.constraint_map is not None
        limits = self.decider.elastic.by_sides(slopes.b, slopes.h)
        for name, by_rows in (("A", slopes.A), ("G", slopes.G)):
            if name in model.constraint_map.matrices:
                assert isinstance(by_rows, Tensor)
                limits[name] = by_rows[:, : limits["b" if name == "A" else "h"].shape[1]]
        slope = model.cost_map.pull_back(slopes.cost) + model.constraint_map.pull_back(limits)
        return torch.where(where[:, None], slope, 0.0)

    def _regret_slopes(self, found: ForecastDecisions, realised: RealisedCosts) -> _RecourseSlopes:
        """Compute the exact derivatives of the regret with respect to the predicted data of the elastic problem.

        Args:
            found: the decisions under the forecast.
            realised: the outcome of these decisions under the true values, with the derivative of the realised cost.
        """
        upstream = self._with_zero_slacks(torch.where(realised.upstream.isfinite(), realised.upstream, 0.0))
        by_cost, _, by_A, by_b, by_G, by_h, *_ = all_derivatives(found.solved, upstream, self.decider.plain.sign)
        assert self.decider.model.constraint_map is not None
        n, predicted = self.decider.elastic.n, self.decider.model.constraint_map.matrices
        A, G = (by()[:, :, :n] if name in predicted else 0.0 for name, by in (("A", by_A), ("G", by_G)))
        return _RecourseSlopes(by_cost()[:, :n], by_b(), by_h(), A, G)

    def _slopes_of_limits(self, by_cost: Tensor, by_b: Tensor, by_h: Tensor, z: Tensor) -> _RecourseSlopes:
        """Compute the derivatives, with respect to all data, of a function of the costs, b − Az and h − Gz.

        The decisions z (B, n) are constant. The derivative of the function with respect to the costs is ``by_cost``
        (B, n), with respect to b − Az ``by_b`` (B, p), and with respect to h − Gz ``by_h`` (B, m).
        """
        predicted = self.decider.model.constraint_map
        assert predicted is not None
        by_A, by_G = (
            -by_rows[:, :, None] * z[:, None, :] if name in predicted.matrices else 0.0
            for name, by_rows in (("A", by_b), ("G", by_h))
        )
        return _RecourseSlopes(by_cost, by_b, by_h, by_A, by_G)

    def _normal_component(self, call: RegretCall, found: ForecastDecisions, error: Tensor) -> Tensor:
        """Compute the term (B, n) that injection adds to the gradient with respect to the costs.

        The term is the normal component of the error of the costs ``error`` (B, n), scaled as in
        ``add_normal_component``. It is zero if ``call.injection`` is 0.
        """
        decider = self.decider
        if call.injection == 0 or not decider.model.predicts_costs:
            return torch.zeros_like(error)
        error = torch.where(found.solved.solved[:, None] & error.isfinite(), error, 0.0)
        whole, n = self._with_zero_slacks(error), decider.elastic.n
        tangent = project(found.solved, whole)
        program = select_by_keys(decider.plain, call.keys).canonical(error)
        if bool(lacks_strict_convexity(program).any()):
            return (inject_into_projection(found.solved, whole, tangent, call.injection) - tangent)[:, :n]
        tangent = tangent[:, :n]
        return add_normal_component(apply_inverse_curvature(program, error), tangent, call.injection) - tangent

    def _cost_gap(
        self, call: RegretCall, pair: tuple[RecourseValues, RecourseValues], best: Start
    ) -> tuple[Tensor, Tensor]:
        """Compute α F (B,) and its derivative with respect to the costs (B, n).

        α is ``call.guidance``, and the module defines F. Both results are zero if no cost is predicted. ``pair`` are
        the forecast and the true values, and ``best`` the solutions under the true values.
        """
        decider, (forecast, truth), strength = self.decider, pair, call.guidance
        if strength == 0 or not decider.model.predicts_costs:
            return torch.zeros_like(best.x[:, 0]), torch.zeros_like(forecast.cost)
        cost, fields = decider.true_data(truth._replace(cost=forecast.cost))
        solved = decider.guides.solve(cost, 0.0, call.keys, near=best, **fields)
        gap = self.regret_of_decisions(decider.truths.problem, best.x, solved.as_start(), solved.qp)
        pull = decider.plain.sign * (best.x - solved.x)[:, : decider.elastic.n]
        keep = solved.solved
        return strength * torch.where(keep, gap, 0.0), strength * torch.where(keep[:, None], pull, 0.0)

    def _side_gap(
        self,
        call: RegretCall,
        pair: tuple[RecourseValues, RecourseValues],
        found: ForecastDecisions,
        ideal: tuple[Start, QuadraticProgram],
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Compute α D (B,) and its derivatives with respect to b and h of the elastic problem.

        α is ``call.guidance``, and the module defines D. The results are zero if the model has a ``Projection`` and the
        forecast is infeasible.

        Args:
            call: the inputs.
            pair: the forecast and the true values.
            found: the decisions under the forecast.
            ideal: the solutions under the true values, and the true programs.
        """
        decider, (forecast, truth), (best, program), strength = self.decider, pair, ideal, call.guidance
        solved = found.solved
        if strength == 0:
            duals = solved.duals
            return torch.zeros_like(found.least.value), (
                torch.zeros_like(duals.equality),
                torch.zeros_like(duals.inequality),
            )
        limits = self._effective_limits(pair, best.x[:, : decider.elastic.n])
        sides, true_sides = decider.elastic.fields(limits), decider.elastic.fields(truth.sides)
        if decider.model.predicts_costs or truth.matrices:
            cost = torch.cat([truth.cost, found.cost[:, decider.elastic.n :]], 1)
            fields = decider.elastic.fields(limits, truth.matrices)
            solved = decider.side_guides.solve(cost, 0.0, call.keys, near=solved.as_start(), **fields)
        by_b, by_h = best.duals.equality, best.duals.inequality
        if decider.weights is not None:  # the true problem is not elastic, so that its bounds must become rows
            by_h = decider.elastic.as_rows(by_h, best.duals.bound)
        value = solved.qp.objective(solved.x) - program.objective(best.x)
        for name, multiplier in (("b", by_b), ("h", by_h)):
            if name in sides:
                change = sides[name] - true_sides[name]
                value = value + (multiplier * torch.where(change.isfinite(), change, 0.0)).sum(1)
        usable = solved.solved & ((found.least.value == 0) | (decider.weights is None))
        if (
            truth.matrices and decider.weights is not None
        ):  # these limits may be infeasible although the forecast is feasible
            negligible = OPTIMAL * forecast.size() * decider.elastic.price.amax()
            usable &= decider.elastic.charge(solved.x) <= negligible
        slopes = by_b - solved.duals.equality, by_h - solved.duals.inequality
        pulls = tuple(strength * torch.where(usable[:, None], slope, 0.0) for slope in slopes)
        return strength * torch.where(usable, value.clamp(min=0), 0.0), (pulls[0], pulls[1])

    def _excess_violation(
        self, found: ForecastDecisions, truth: RecourseValues, ids: list[Hashable] | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor], Tensor]:
        """Compute V, the least violation that the forecast allows, minus the least that the true values allow.

        Returns:
            V (B,), its derivatives with respect to b and h, and the decisions (B, n) with the least violation.
        """
        least = found.least
        allowed = self.decider.least_violation(truth, ids, least.value > 0).value
        value = (least.value - allowed).clamp(min=0)
        more = (value > 0)[:, None]
        return value, (torch.where(more, least.by_b, 0.0), torch.where(more, least.by_h, 0.0)), least.z

    def _with_zero_slacks(self, values: Tensor) -> Tensor:
        """Append zeros for the slacks to values (B, n)."""
        return torch.cat([values, values.new_zeros(len(values), len(self.decider.elastic.price))], 1)

    @staticmethod
    def _effective_limits(pair: tuple[RecourseValues, RecourseValues], z: Tensor) -> dict[str, Tensor]:
        """Return the right-hand sides of a forecast by name, with ``b − (Â − A) z`` for b and ``h − (Ĝ − G) z`` for h.

        Â and Ĝ are predicted coefficients, A and G the true ones, and z (B, n) decisions. ``pair`` are the forecast and
        the true values.
        """
        forecast, truth = pair
        limits = dict(forecast.sides)
        for name, side in (("A", "b"), ("G", "h")):
            if name in truth.matrices:
                error = forecast.matrices[name] - truth.matrices[name]
                limits[side] = limits[side] - (error * z[:, None, :]).sum(-1)
        return limits
