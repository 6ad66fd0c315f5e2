"""``RecourseOutcome``: what decisions lose whose recourse the truth decides, for predicted right-hand sides."""

from __future__ import annotations

from collections.abc import Hashable

from torch import Tensor

from pear.decisions.decision_device import follow_costs
from pear.decisions.failures import report_failures
from pear.decisions.recourse_decider import RecourseDecider, Values
from pear.problem import Model


class RecourseOutcome:
    """Scores predicted values by the regret of the decisions under them, with integers and without smoothing.

    Args:
        model: a model with a constraint map; integers stay integers.
        true: (B, k) true values; the constructor computes their best decisions.
        keys: B sample ids, which select rows of a problem or cost map with fields per sample.
        solver: "auto" or a name that ``pear solvers`` lists.

    Attributes:
        best: (B,) the value of the best decision, in the problem's own sense.
        best_decision: (B, n) the best decisions.

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

    def _solve_integers(self, decider: RecourseDecider, values: Values) -> Tensor:
        """Solve the elastic problem with its integers; returns (B, n + slacks)."""
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
        """Decide under predicted values (B, k); returns decisions (B, n).

        Raises:
            SolveError: a sample has no decision under the forecast.
        """
        decider = self._decider.copy()  # without warm starts, which could decide a tie in another way
        forecast = decider.values(predicted.detach(), self.keys)
        if self.model.problem.is_integer:
            x = self._solve_integers(decider, forecast)
        else:
            solved = decider.decide(forecast, self.keys).solved
            report_failures(solved.status, "raise", "the forecast")
            x = solved.x
        return x[:, : self.model.elastic.n]

    def regret(self, z: Tensor) -> Tensor:
        """Compute the regret (B,) of decisions z (B, n); rounding below 0 is cut off."""
        return (self.model.problem.sign * (self.value(z) - self.best)).clamp(min=0)

    def __call__(self, predicted: Tensor) -> Tensor:
        """Compute the regret (B,) of the decisions under predicted values (B, k)."""
        return self.regret(self.decide(predicted))


@follow_costs
def best_recourse_status(model: Model, true: Tensor, keys: list[Hashable] | None) -> Tensor:
    """Solve the continuous relaxation under true values (B, k); returns statuses (B,), int8 of ``Status``."""
    decider = RecourseDecider(model)
    return decider.best(decider.values(true.detach(), keys), keys)[1]
