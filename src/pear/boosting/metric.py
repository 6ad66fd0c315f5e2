"""Regret as a metric of LightGBM and XGBoost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from pear.boosting.booster_calls import Array, BoosterCallReader
from pear.problem import Model, Problem
from pear.problem.sample_keys import count_keyed_samples
from pear.train.validation_score import RegretMetric


class Metric(BoosterCallReader):
    """A metric of LightGBM or XGBoost: the normalised regret. ``metric`` makes one."""

    _kept: tuple[Array, Callable[..., float]] | None = None

    def __call__(self, first: Any, second: Any, *_: Any) -> Any:
        """Return ("regret", value), and for LightGBM a third entry, False, which says that lower is better.

        Args:
            first, second: the forecasts and a ``Dataset`` or ``DMatrix``; or, from the interfaces of scikit-learn, the
                true values and the forecasts.
        """
        predicted, true = self._read_call(first, second)
        if self._kept is None or not np.array_equal(self._kept[0], true):  # the best decisions are found once
            keys: Any = None if count_keyed_samples(self.problem) is None else list(range(len(true)))
            self._kept = true, RegretMetric(self.problem, torch.from_numpy(true), keys)
        values = torch.from_numpy(predicted.copy())
        value = self._kept[1](values, values)
        xgboost = type(second).__module__.startswith("xgboost")
        return ("regret", value) if xgboost else ("regret", value, False)


def metric(problem: Problem | Model, true: Any = None, *, groups: Any = None) -> Metric:
    """Return the normalised regret as a metric for early stopping: ``feval`` of LightGBM, ``custom_metric`` of XGBoost.

    Args:
        problem: the decision problem, with its integers.
        true: (N, k), k true values of each validation row, in the order of the rows. By default the labels.
        groups: (N·k,) ids of the samples that the rows of a long table belong to, as in ``objective``.

    Example:
        >>> import numpy as np, pear
        >>> choose_one = pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0)
        >>> name, value, _ = pear.boosting.metric(choose_one)(np.array([[1.0, 3.0]]), np.array([[2.0, 1.0]]))
        >>> name, round(value, 6)
        ('regret', 2.0)
    """
    return Metric(problem, true, groups)
