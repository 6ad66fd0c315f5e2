"""``RecourseOutcome``: realised cost and regret, with recourse, of decisions under predicted right-hand sides."""

from __future__ import annotations

from collections.abc import Hashable

from torch import Tensor

from pear.decisions.batch_regrets import objective_value
from pear.decisions.recourse_decider import RecourseDecider, decide_forecast
from pear.decisions.solve import report_failures
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

    Raises:
        SolveError: a sample has no best decision.
    """

    def __init__(self, model: Model, true: Tensor, keys: list[Hashable] | None = None, solver: str = "auto") -> None:
        self.model, self.keys, self.solver = model, keys, solver
        self._decider = RecourseDecider(model, solver)
        self._truth = self._decider.values(true.detach(), keys)
        if model.problem.is_integer:
            x = self._decider.solve_integers(self._truth, keys).x
        else:
            best, status = self._decider.best(self._truth, keys)
            report_failures(status, "raise", "the true values")
            x = best.x
        self.best = self.value(x[:, : model.elastic.n])

    def value(self, z: Tensor) -> Tensor:
        """Compute the realised cost (B,) of decisions z (B, n) under the truth, in the problem's own sense.

        Raises:
            SolveError: recourse finds no feasible point.
        """
        realised = self._decider.realise(z, self._truth, self.keys, wanted=False)
        report_failures(realised.status, "raise", "the recourse")
        x, program = realised.x, realised.program
        return self.model.problem.sign * objective_value(program, x)

    def __call__(self, predicted: Tensor) -> Tensor:
        """Compute the regret (B,) of the decisions under predicted values (B, k); rounding below 0 is cut off."""
        paid = self.value(decide_forecast(self.model, predicted, self.keys, self.solver))
        return (self.model.problem.sign * (paid - self.best)).clamp(min=0)


def best_status(model: Model, true: Tensor, keys: list[Hashable] | None) -> Tensor:
    """Solve the continuous relaxation under true values (B, k); returns statuses (B,), int8 of ``Status``."""
    decider = RecourseDecider(model)
    return decider.best(decider.values(true.detach(), keys), keys)[1]
