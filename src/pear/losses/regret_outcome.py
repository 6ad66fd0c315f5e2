"""``RegretOutcome``: the regret of every sample under a forecast, and the value of the sample's best decision."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from torch import Tensor

from pear.decisions.decision_device import on_chosen_device
from pear.decisions.solve import solve
from pear.errors import ProblemError
from pear.losses.cost_pairs import check_cost_pair, detach_cost_pair, true_curvature_of_pair
from pear.losses.recourse_judge import RecourseJudge
from pear.optimality.rule import ROUNDOFF
from pear.problem import Model, Problem
from pear.problem.curvature_map import split_curvature_map
from pear.problem.known_samples import fill_known_samples
from pear.problem.model import model_with_predicted_rows
from pear.problem.pandas_data import check_pandas_order, series_as_sample_row
from pear.problem.tensor_conversion import to_batch_tensor
from pear.solvers.time_limit import limit_time


class RegretOutcome(NamedTuple):
    """The regrets of decisions and the values of the best decisions, both under the true costs, in float64.

    Attributes:
        regret: (B,) the regret of each sample.
        best: (B,) the objective value of each sample's best decision, in the problem's own sense.
    """

    regret: Tensor
    best: Tensor

    @classmethod
    def of_decisions(
        cls, problem: Problem, chosen: Tensor, best: Tensor, true: Tensor, true_Q: Any = None
    ) -> RegretOutcome:
        """Return the regrets of given decisions, from the best decisions under the true costs.

        Args:
            problem: the decision problem.
            chosen: (B, n) decisions.
            best: (B, n) best decisions under the true costs.
            true: (B, n) true costs.
            true_Q: (n, n) or (B, n, n) true curvature; the problem's own if omitted.
        """
        paid, ideal = (problem.objective(z.double(), true.double(), Q=true_Q) for z in (chosen, best))
        return cls(problem.sign * (paid - ideal), ideal)

    def weighted(self, weight: Tensor | None) -> RegretOutcome:
        """Multiply regrets and best values by weights (B,) over the mean weight; None changes nothing.

        ``normalized`` of the result is the weighted normalised regret, ``Σ w regret / Σ w |best|``.
        """
        if weight is None:
            return self
        shares = weight.to(self.regret) / weight.to(self.regret).mean()
        return RegretOutcome(shares * self.regret, shares * self.best)

    @property
    def normalized(self) -> float:
        """The normalised regret ``Σ regret / Σ |best|``; see ``share_of_best`` for best values of 0."""
        return self.share_of_best(float(self.regret.sum()), float(self.best.abs().sum()))

    @property
    def score(self) -> float:
        """A finite number by which forecasts are compared.

        It is the normalised regret, or the mean regret if the normalised one is infinite or all best values are 0.
        """
        mean = float(self.regret.sum() / max(len(self.regret), 1))
        return self.normalized if bool(self.best.any()) and math.isfinite(self.normalized) else mean

    @staticmethod
    def share_of_best(lost: float, best: float) -> float:
        """Return lost / best; if the best value is 0, return 0 if nothing is lost and infinity otherwise.

        A best value that is tiny compared with the loss, as a rounding error is, counts as 0.

        Example:
            >>> share = RegretOutcome.share_of_best
            >>> share(1.0, 4.0), share(0.0, 0.0), share(1.0, 0.0), share(1.0, 1e-17)
            (0.25, 0.0, inf, inf)
        """
        if abs(best) > ROUNDOFF * abs(lost):
            return lost / best
        return 0.0 if lost <= 0 else lost * math.inf


@on_chosen_device
def regret_outcome_of_forecast(
    problem: Problem | Model,
    predicted: Any,
    true: Any,
    solver: str = "auto",
    Q: Any = None,
    true_Q: Any = None,
    time_limit: float | None = None,
    known: Any = None,
) -> RegretOutcome:
    """Return the regrets of a forecast and the values of the best decisions.

    The arguments are those of ``pear.regret``.
    """
    problem = fill_known_samples(problem, known, predicted)
    model = model_with_predicted_rows(problem)
    if model is not None:
        return _regret_outcome_with_recourse(
            model, predicted, true, solver, Q if true_Q is None else true_Q, time_limit
        )
    plain, weighted, true_weighted = split_curvature_map(problem, predicted, true)
    Q, true_Q = (weighted, true_weighted) if weighted is not None else (Q, true_Q)
    problem, _, predicted, true = detach_cost_pair(plain, predicted, true)
    predicted, true = predicted.double(), true.double()
    true_Q = true_curvature_of_pair(problem, Q, true_Q, len(predicted))
    with limit_time(time_limit):
        chosen = solve(problem, predicted, solver=solver, Q=Q).x
        best = solve(problem, true, solver=solver, Q=true_Q).x
    return RegretOutcome.of_decisions(problem, chosen, best, true, true_Q)


def _regret_outcome_with_recourse(
    model: Model, predicted: Any, true: Any, solver: str, Q: Any, time_limit: float | None
) -> RegretOutcome:
    """Return the outcome for a model that predicts right-hand sides, whose regret includes the cost of recourse."""
    if Q is not None:
        raise ProblemError("Q came with a model that predicts right-hand sides; predict the one or the other")
    check_pandas_order(model, series_as_sample_row(predicted), series_as_sample_row(true))
    values, came_true = to_batch_tensor(predicted).detach().double(), to_batch_tensor(true).detach().double()
    check_cost_pair(values, came_true)
    with limit_time(time_limit):
        judged = RecourseJudge(model, came_true, solver=solver)
        return RegretOutcome(judged(values), judged.best)
