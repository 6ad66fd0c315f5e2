"""Regret as a custom objective and as a metric of gradient boosting.

Let e = ŷ − y be the error of the forecast and g the gradient of the loss. The curvature of the loss along its gradient
is ``h = Σ gᵀg / Σ eᵀg``; for a linear program with smoothing λ it is 1/λ. The objective returns ``g / h`` with a second
derivative of 1. A leaf's step then has the unit of the costs, as under the squared error, and settings such as the
learning rate, ``lambda_l2`` or ``min_child_weight`` have the same meaning.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch

from pear.decisions.failures import OnFailure
from pear.errors import ProblemError
from pear.losses.defaults import BOOSTING
from pear.losses.pear_loss import PEARLoss
from pear.problem import Model, Problem
from pear.problem.model import model_input_count
from pear.problem.pandas_data import check_pandas_rows
from pear.problem.sample_keys import count_keyed_samples
from pear.setting_checks import check_number_setting, check_share_setting
from pear.train.base_forecast import FOLDS, held_out_forecast, is_refittable
from pear.train.long_table import group_long_table
from pear.train.validation_score import RegretMetric

Array = np.ndarray[Any, Any]


class _BoosterCallReader:
    """The base class of objective and metric, which reads the arguments of LightGBM's and XGBoost's calls."""

    def __init__(self, problem: Problem | Model, true: Any, groups: Any) -> None:
        self.problem, self.inputs = problem, model_input_count(problem)
        check_pandas_rows({"true": true, "groups": groups})
        self.groups = None if groups is None else group_long_table(groups, np.size(groups), self.inputs)
        self.true = None if true is None else self._rows(true, "true")

    def _rows(self, values: Any, name: str) -> Array:
        """Return values as an array (N, k); a flat array of N·k entries is read sample by sample, or by groups."""
        array = np.asarray(values, dtype=float)
        if self.groups is not None:
            if array.size != self.groups.rows.size:
                raise ProblemError(
                    f"{name} must have a value for each of the {self.groups.rows.size} rows that groups names; got "
                    f"{np.shape(values)}"
                )
            return self.groups.gather(array.ravel())
        if array.ndim == 1 and array.size % self.inputs == 0:
            array = array.reshape(-1, self.inputs)
        if array.ndim != 2 or array.shape[1] != self.inputs:
            raise ProblemError(
                f"{name} must have shape (N, {self.inputs}), or N·{self.inputs} entries sample by sample; got "
                f"{np.shape(values)}. With LightGBM, pass num_class={self.inputs} and the true values to the objective"
            )
        return array

    def _read_call(self, first: Any, second: Any) -> tuple[Array, Array]:
        """Return predicted and true values (N, k) of a call (predicted, data), or scikit-learn's (true, predicted)."""
        native = hasattr(second, "get_label")
        predicted = self._rows(first if native else second, "the forecasts")
        true = self.true
        if true is None:
            label = second.get_label() if native else first
            if np.size(label) != predicted.size:
                raise ProblemError(
                    f"{np.size(label)} labels came for {predicted.size} forecasts; LightGBM keeps one label a row: "
                    "pass the true values (N, k) as `true`"
                )
            true = self._rows(label, "the labels")
        if true.shape != predicted.shape:
            raise ProblemError(f"{len(true)} samples have true values, and forecasts came for {len(predicted)}")
        return predicted, true


class Objective(_BoosterCallReader):
    """The gradient and second derivative of PEAR's loss; ``objective`` makes one.

    Attributes:
        loss: the ``PEARLoss`` behind it, with warm starts of all rows.
        rounds: calls so far.
    """

    def __init__(
        self, problem: Problem | Model, true: Any, groups: Any, loss: PEARLoss, guidance: float, decay: float
    ) -> None:
        super().__init__(problem, true, groups)
        self.guidance = check_number_setting("guidance", guidance, least=0.0)
        self.decay = check_share_setting("decay", decay)
        self.loss, self.rounds = loss, 0

    def __call__(self, first: Any, second: Any, *_: Any) -> tuple[Array, Array]:
        """Return gradient and second derivative of this round, in the shape of the forecasts.

        Args:
            first, second: forecasts and a ``Dataset`` or ``DMatrix``; or true values and forecasts, the order of
                scikit-learn's interfaces.
        """
        predicted, true = self._read_call(first, second)
        shape = np.shape(first if hasattr(second, "get_label") else second)
        costs = torch.from_numpy(true)
        if not self.rounds:
            self.loss.calibrate(costs)
        self.loss.guidance = self.guidance * self.decay**self.rounds
        self.rounds += 1
        values = torch.from_numpy(predicted.copy()).requires_grad_()
        self.loss(values, costs, keys=range(len(true))).sum().backward()
        assert values.grad is not None
        gradient = values.grad.numpy()
        size = float((gradient * gradient).sum())
        step = float(((predicted - true) * gradient).sum()) / size if size > 0 else 0.0
        steps = step * gradient
        return (steps if self.groups is None else self.groups.scatter(steps)).reshape(shape), np.ones(shape)

    def __repr__(self) -> str:
        return f"objective({self.problem}, injection={self.loss.injection:g}, guidance={self.guidance:g})"


def objective(
    problem: Problem | Model,
    true: Any = None,
    *,
    groups: Any = None,
    smoothing: float | Literal["auto"] = BOOSTING.smoothing,
    injection: float = BOOSTING.injection,
    guidance: float = BOOSTING.guidance,
    decay: float = 1.0,
    solver: str = "auto",
    on_failure: OnFailure = "raise",
) -> Objective:
    """Make PEAR's loss a custom objective of LightGBM or XGBoost.

    XGBoost takes labels (N, k). LightGBM takes one label a row, so that the true values come here, with
    ``num_class=k`` among its parameters. A long table, with one row for each pair of sample and value, works with both:
    forecasts and labels are then flat. Start from a forecaster that is trained on the squared error (``init_score``,
    ``base_margin``); ``out_of_fold`` gives its forecasts of training rows.

    Args:
        problem: the decision problem; a ``Model`` maps the k predicted values to costs.
        true: (N, k) true values of the training rows, in their order; if omitted, the labels. With groups (N·k,).
        groups: (N·k,) ids of the samples that the rows of a long table belong to. Every group has k rows, in the
            order of the problem's values. If omitted, the k rows of a sample follow each other.
        smoothing, injection: as for ``PEARLoss``.
        guidance: α of the first round; decay: what it is multiplied by after every round (1: α stays).
        solver, on_failure: as for ``PEARLoss``; a masked sample has a gradient of zero.

    Returns:
        A function of (forecasts, data) or (true, forecasts), for ``lightgbm.train``, ``xgboost.train`` and the
        regressors of both.

    Example:
        >>> import numpy as np, pear
        >>> choose_one = pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0)
        >>> regret = pear.boosting.objective(choose_one, smoothing=1.0, injection=0.0, guidance=0.0)
        >>> gradient, curvature = regret(np.array([[0.4, 0.2]]), np.array([[0.2, 0.4]]))
        >>> gradient.round(6).tolist(), curvature.tolist()
        ([[-0.2, 0.2]], [[1.0, 1.0]])
    """
    loss = PEARLoss(problem, smoothing, injection, 0.0, solver, on_failure, "none")
    return Objective(problem, true, groups, loss, guidance, decay)


class Metric(_BoosterCallReader):
    """The normalised regret as a metric; ``metric`` makes one."""

    _kept: tuple[Array, Callable[..., float]] | None = None

    def __call__(self, first: Any, second: Any, *_: Any) -> Any:
        """Return ("regret", value), and for LightGBM a third entry, False: lower is better."""
        predicted, true = self._read_call(first, second)
        if self._kept is None or not np.array_equal(self._kept[0], true):  # the best decisions are found once
            keys: Any = None if count_keyed_samples(self.problem) is None else list(range(len(true)))
            self._kept = true, RegretMetric(self.problem, torch.from_numpy(true), keys)
        values = torch.from_numpy(predicted.copy())
        value = self._kept[1](values, values)
        xgboost = type(second).__module__.startswith("xgboost")
        return ("regret", value) if xgboost else ("regret", value, False)


def metric(problem: Problem | Model, true: Any = None, *, groups: Any = None) -> Metric:
    """Make the normalised regret a metric to stop by: ``feval`` of LightGBM, ``custom_metric`` of XGBoost.

    Args:
        problem: the decision problem, with its integers.
        true: (N, k) true values of the validation rows, in their order; if omitted, the labels.
        groups: (N·k,) ids of the samples that the rows of a long table belong to, as in ``objective``.

    Example:
        >>> import numpy as np, pear
        >>> choose_one = pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0)
        >>> name, value, _ = pear.boosting.metric(choose_one)(np.array([[1.0, 3.0]]), np.array([[2.0, 1.0]]))
        >>> name, round(value, 6)
        ('regret', 2.0)
    """
    return Metric(problem, true, groups)


def out_of_fold(base: Any, X: Any, y: Any, *, groups: Any = None, folds: int = FOLDS) -> np.ndarray[Any, Any]:
    """Forecast each of several blocks of rows by a copy of ``base`` that is fitted to the other blocks.

    A forecaster predicts the rows that it was fitted to too well, so that trees on top of its forecasts would learn
    from errors that are too small. Use these forecasts as ``init_score`` or ``base_margin`` of the training rows, and
    those of the fitted base for all other rows.

    Args:
        base: an estimator of scikit-learn, such as ``LGBMRegressor``, fitted or not; it is not changed.
        X: rows, an array or a DataFrame.
        y: (N,) or (N, k) the true values.
        groups: (N,) ids of rows that stay together, as many rows in each; None where every row is a sample.
        folds: the number of blocks of consecutive samples.

    Raises:
        ProblemError: the base cannot be copied and fitted.

    Returns:
        Forecasts in the shape that ``base.predict`` gives.

    Example:
        >>> from sklearn.linear_model import Ridge
        >>> X, y = np.arange(10.0)[:, None], np.arange(10.0)
        >>> made, by_hand = out_of_fold(Ridge(), X, y), Ridge().fit(X[2:], y[2:]).predict(X[:2])
        >>> bool((made[:2] == by_hand).all())
        True
    """
    if not is_refittable(base):
        raise ProblemError(
            f"out_of_fold fits copies of an estimator of scikit-learn, as LGBMRegressor or XGBRegressor; a "
            f"{type(base).__name__} cannot be fitted again"
        )
    check_pandas_rows({"X": X, "y": y, "groups": groups})
    blocks = None
    if groups is not None:
        count = len(X)
        blocks = group_long_table(groups, count, count // max(len(set(groups)), 1))
    return held_out_forecast(base, X, y, blocks, folds)
