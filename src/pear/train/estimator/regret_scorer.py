"""``regret_scorer``: scikit-learn's searches compare regressors by the regret of their forecasts."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from pear.errors import ProblemError
from pear.losses.regret_metrics import normalized_regret
from pear.problem import Model, Problem
from pear.problem.pandas_data import check_pandas_rows
from pear.problem.sample_keys import count_keyed_samples
from pear.train.samples.sample_rows import read_sample_values, sample_rows_to_tensor


def score_regret(problem: Problem | Model, predicted: Any, true: Any, weight: Tensor | None = None) -> float:
    """Minus the normalised regret of predicted values (N, k), or (N,) where k is 1; weighted by ``weight`` (N,)."""
    values, came_true = (
        read_sample_values(problem, predicted, "the predictions"),
        read_sample_values(problem, true, "y"),
    )
    return -normalized_regret(
        problem, sample_rows_to_tensor(problem, values), sample_rows_to_tensor(problem, came_true), weight=weight
    )


class RegretScorer:
    """A scorer for scikit-learn, called as ``scorer(estimator, X, C)``: minus the normalised regret.

    Args:
        problem: the decision problem, the same for all samples; with a ``Model`` values are predicted, not costs.

    Raises:
        ProblemError: the problem has fields per sample; a scorer does not know which rows it gets.
    """

    def __init__(self, problem: Problem | Model) -> None:
        own = count_keyed_samples(problem)
        if own is not None:
            raise ProblemError(
                f"the problem has fields of its own for {own} samples, and a scorer is not told which rows it gets; "
                "score by hand: pear.normalized_regret(problem[rows], model.predict(X[rows]), C[rows])"
            )
        self.problem = problem

    def __call__(self, estimator: Any, X: Any, C: Any) -> float:
        """Return minus the normalised regret of ``estimator.predict(X)``: at most 0, which is the best."""
        check_pandas_rows({"X": X, "C": C})
        return score_regret(self.problem, estimator.predict(X), C)

    def __repr__(self) -> str:
        return f"regret_scorer({self.problem})"


def regret_scorer(problem: Problem | Model) -> RegretScorer:
    """Make a scorer for ``GridSearchCV`` and ``cross_val_score`` that judges a regressor by its decisions.

    Args:
        problem: the decision problem; a ``Model`` maps predicted values to costs.

    Returns:
        A function of (estimator, X, C) that gives minus the normalised regret, on the problem as it is: greater is
        better.

    Example:
        >>> import numpy as np, pear
        >>> from sklearn.linear_model import LinearRegression
        >>> from sklearn.model_selection import cross_val_score
        >>> task = pear.tasks.shortest_path((3, 3))
        >>> X, C = map(np.asarray, task.samples(60, degree=2))
        >>> cross_val_score(LinearRegression(), X, C, scoring=pear.regret_scorer(task.problem), cv=3).shape
        (3,)
    """
    return RegretScorer(problem)
