"""``regret_scorer``: a scorer with which scikit-learn compares regressors by the regret of their decisions."""

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
    """Return minus the normalised regret of the decisions under predicted values.

    Args:
        problem: the decision problem, which needs k predicted values for each sample.
        predicted: (N, k) predicted values, or (N,) if k is 1.
        true: (N, k) true values, or (N,) if k is 1.
        weight: (N,) how much each sample counts; None weighs all samples alike.
    """
    values, came_true = (
        read_sample_values(problem, predicted, "the predictions"),
        read_sample_values(problem, true, "y"),
    )
    return -normalized_regret(
        problem, sample_rows_to_tensor(problem, values), sample_rows_to_tensor(problem, came_true), weight=weight
    )


class RegretScorer:
    """A scorer for scikit-learn: ``scorer(estimator, X, C)`` is minus the normalised regret.

    Args:
        problem: the decision problem, which all samples share. A ``Model`` maps predicted values to costs.

    Raises:
        ProblemError: the problem has its own data for each sample. scikit-learn does not tell a scorer which samples it
            gets.
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
        """Return minus the normalised regret of ``estimator.predict(X)``; the best score is 0."""
        check_pandas_rows({"X": X, "C": C})
        return score_regret(self.problem, estimator.predict(X), C)

    def __repr__(self) -> str:
        return f"regret_scorer({self.problem})"


def regret_scorer(problem: Problem | Model) -> RegretScorer:
    """Make a scorer for ``GridSearchCV`` and ``cross_val_score`` that scores a regressor by its decisions.

    Args:
        problem: the decision problem. A ``Model`` maps predicted values to costs.

    Returns:
        A function of (estimator, X, C) that returns minus the normalised regret; greater is better.

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
