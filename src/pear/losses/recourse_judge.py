"""``RecourseJudge``: the regret of decisions with recourse, for models that predict right-hand sides."""

from __future__ import annotations

from collections.abc import Hashable

from torch import Tensor

from pear.decisions.decision_device import on_chosen_device
from pear.decisions.failures import report_failures
from pear.decisions.recourse_decider import RecourseDecider
from pear.decisions.recourse_values import RecourseValues
from pear.problem import Model


class RecourseJudge:
    """A judge of many forecasts of the same true values: a call returns the regrets, with recourse, of one forecast.

    The best decisions under the true values are computed once, in the constructor. Decisions respect integers and use
    no smoothing.

    Args:
        model: a model with a constraint map.
        true: (B, k) true values.
        keys: B sample ids, which select rows of a problem or cost map with fields per sample.
        solver: "auto" or a name that ``pear solvers`` lists.

    Attributes:
        best: (B,) the objective value of each sample's best decision, in the problem's own sense.
        best_decision: (B, n) the best decisions under the true values.

    Raises:
        SolveError: a sample has no best decision.
    """

    def __init__(self, model: Model, true: Tensor, keys: list[Hashable] | None = None, solver: str = "auto") -> None:
        self.model, self.keys = model, keys
        self._decider = RecourseDecider(model, solver)
        self._truth = self._decider.values(true.detach(), keys)
        if model.problem.is_integer:
            x = self._solve_integers(self._decider, self._truth)
        else:
            best, status = self._decider.best(self._truth, keys)
            report_failures(status, "raise", "the true values")
            x = best.x
        self.best_decision = x[:, : model.elastic.n]
        self.best = self.value(self.best_decision)

    def _solve_integers(self, decider: RecourseDecider, values: RecourseValues) -> Tensor:
        """Solve the elastic problem with its integers; return its solutions (B, n + s), which end with its s slacks."""
        solution = decider.solve_integers(values, self.keys)
        report_failures(solution.status, "raise", "the problem", gap=solution.gap, unchecked=solution.unchecked)
        return solution.x

    def value(self, z: Tensor) -> Tensor:
        """Compute the realised cost (B,) of decisions z (B, n) under the truth, in the problem's own sense.

        Raises:
            SolveError: recourse finds no feasible point.
        """
        realised = self._decider.realise(z, self._truth, self.keys, wanted=False)
        report_failures(realised.status, "raise", "the recourse")
        return self.model.problem.sign * realised.program.objective(realised.x)

    def decide(self, predicted: Tensor) -> Tensor:
        """Return the decisions (B, n) under predicted values (B, k).

        Raises:
            SolveError: a sample has no decision under the forecast.
        """
        decider = self._decider.copy()  # without warm starts, which could choose another of several best decisions
        forecast = decider.values(predicted.detach(), self.keys)
        if self.model.problem.is_integer:
            x = self._solve_integers(decider, forecast)
        else:
            solved = decider.decide(forecast, self.keys).solved
            report_failures(solved.status, "raise", "the forecast")
            x = solved.x
        return x[:, : self.model.elastic.n]

    def regret(self, z: Tensor) -> Tensor:
        """Compute the regret (B,) of decisions z (B, n); rounding errors below 0 become 0."""
        return (self.model.problem.sign * (self.value(z) - self.best)).clamp(min=0)

    def __call__(self, predicted: Tensor) -> Tensor:
        """Compute the regret (B,) of the decisions under predicted values (B, k)."""
        return self.regret(self.decide(predicted))


@on_chosen_device
def best_recourse_status(model: Model, true: Tensor, keys: list[Hashable] | None) -> Tensor:
    """Solve the continuous relaxation of a model under true values (B, k); return the statuses (B,), int8."""
    decider = RecourseDecider(model)
    return decider.best(decider.values(true.detach(), keys), keys)[1]
