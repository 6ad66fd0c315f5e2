"""``ForecastJudge``: the regret of every sample, for many forecasts of the same true costs."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

from torch import Tensor

from pear.decisions.decision_device import bring_to_decision_device
from pear.decisions.solve import solve
from pear.losses.cost_pairs import check_cost_pair
from pear.losses.recourse_judge import RecourseJudge
from pear.losses.regret_outcome import RegretOutcome
from pear.problem import Model, Problem
from pear.problem.curvature_map import split_curvature_map
from pear.problem.model import model_with_predicted_rows, split_cost_model
from pear.problem.sample_keys import select_by_keys
from pear.problem.tensor_conversion import to_batch_tensor


class ForecastJudge:
    """A judge of many forecasts of the same true costs: a call returns the regrets of one forecast.

    The regrets are those of ``pear.regret``. The best decisions under the true costs are computed once, in the
    constructor.

    Args:
        problem: the decision problem; it may have integers, recourse and fields per sample.
        true: (B, k) true costs, or the true values that the cost map maps to costs.
        keys: B sample ids, which select rows of a problem or cost map with fields per sample; None if sample i
            belongs to row i.

    Attributes:
        best: (B,) the objective value of each sample's best decision, in the problem's own sense.

    Raises:
        SolveError: a sample has no best decision.

    Example:
        >>> import pear
        >>> choose_one = pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0)
        >>> judge = ForecastJudge(choose_one, [[1.0, 3.0], [1.0, 3.0]])
        >>> judge([[2.0, 1.0], [1.0, 2.0]]).regret
        tensor([2., 0.], dtype=torch.float64)
    """

    def __init__(self, problem: Problem | Model, true: Any, keys: list[Hashable] | None = None) -> None:
        problem, came_true = bring_to_decision_device(problem, to_batch_tensor(true).detach().double())
        self._true, self._device, model = came_true, came_true.device, model_with_predicted_rows(problem)
        self._with_recourse = None if model is None else RecourseJudge(model, came_true, keys)
        if self._with_recourse is not None:
            self.best: Tensor = self._with_recourse.best
            return
        self._curvature_of = partial(problem.curvature, keys=keys) if isinstance(problem, Model) else None
        self._problem, self._costs_of = self.rows_and_costs(split_curvature_map(problem)[0], keys)
        self._cost, self._Q = self._costs_of(came_true), self._predicted_curvature(came_true)
        self._best = solve(self._problem, self._cost, Q=self._Q).x
        self.best = self._problem.objective(self._best.double(), self._cost, Q=self._Q)

    def __call__(self, predicted: Any) -> RegretOutcome:
        """Compute the regrets of the decisions under predicted costs or values (B, k).

        Raises:
            SolveError: a sample has no decision under the forecast, or none that is feasible under the truth.
        """
        values = to_batch_tensor(predicted).detach().double().to(self._device)
        check_cost_pair(values, self._true)
        if self._with_recourse is not None:
            return RegretOutcome(self._with_recourse(values), self.best)
        chosen = solve(self._problem, self._costs_of(values), Q=self._predicted_curvature(values)).x
        return RegretOutcome.of_decisions(self._problem, chosen, self._best, self._cost, self._Q)

    def _predicted_curvature(self, values: Tensor) -> Tensor | None:
        """Return the curvature (B, n, n) under values (B, k); None if the problem has no predicted curvature."""
        return None if self._curvature_of is None else self._curvature_of(values)

    @staticmethod
    def rows_and_costs(
        problem: Problem | Model, keys: list[Hashable] | None
    ) -> tuple[Problem, Callable[[Tensor], Tensor]]:
        """Return the plain problem of the samples with these ids, and a function that maps values to float64 costs."""
        plain, cost_map = split_cost_model(problem)
        if cost_map is None:
            return select_by_keys(plain, keys), Tensor.double
        return select_by_keys(plain, keys), lambda values: cost_map(values.double(), keys)
