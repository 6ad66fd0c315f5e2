"""Regret as a custom objective of LightGBM and XGBoost.

Let e = ŷ − y be the error of the forecast ŷ of true values y, and g the gradient of the loss with respect to ŷ. The
curvature of the loss along its gradient is estimated as ``h = Σ gᵀg / |Σ eᵀg|``, with sums over all samples. For a
linear program with smoothing λ, without injection and guidance, h is 1/λ. The objective returns ``g / h`` with a second
derivative of 1. The step of a leaf then has the unit of the costs, as under the squared error. Settings such as the
learning rate, ``lambda_l2`` or ``min_child_weight`` have the same meaning as under the squared error.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch

from pear.boosting.booster_calls import Array, BoosterCallReader
from pear.decisions.failures import OnFailure
from pear.losses.defaults import BOOSTING
from pear.losses.pear_loss import PEARLoss
from pear.problem import Model, Problem
from pear.setting_checks import check_number_setting, check_share_setting


class Objective(BoosterCallReader):
    """A custom objective, made from the gradient of PEAR's loss. ``objective`` makes one.

    Args:
        problem, true, groups: as in ``BoosterCallReader``.
        loss: the loss. Every call sets its guidance α.
        guidance: α in the first round: the weight of the guidance term of the loss.
        decay: the factor by which α is multiplied from round to round.

    Attributes:
        loss: the ``PEARLoss``, which stores warm starts of all rows.
        rounds: the number of calls so far.
    """

    def __init__(
        self, problem: Problem | Model, true: Any, groups: Any, loss: PEARLoss, guidance: float, decay: float
    ) -> None:
        super().__init__(problem, true, groups)
        self.guidance = check_number_setting("guidance", guidance, least=0.0)
        self.decay = check_share_setting("decay", decay)
        self.loss, self.rounds = loss, 0

    def __call__(self, first: Any, second: Any, *_: Any) -> tuple[Array, Array]:
        """Return the gradient of the loss divided by its curvature h, and second derivatives of 1.

        Both have the shape of the forecasts. The module defines h.

        Args:
            first, second: the forecasts and a ``Dataset`` or ``DMatrix``; or, from the interfaces of scikit-learn, the
                true values and the forecasts.
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
        step = abs(float(((predicted - true) * gradient).sum())) / size if size > 0 else 0.0
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
    """Return a custom objective of LightGBM or XGBoost, made from PEAR's loss.

    XGBoost accepts labels (N, k). LightGBM accepts one label for each row: pass the true values as ``true``, and
    ``num_class=k`` among the parameters of LightGBM. A long table, with a row for each value of each sample, works with
    both; forecasts and labels are then flat. Begin with a forecaster that is trained on the squared error
    (``init_score``, ``base_margin``); ``out_of_fold`` makes its forecasts of the training rows.

    Args:
        problem: the decision problem. A ``Model`` maps the k predicted values to costs.
        true: (N, k) true values of the training rows, in the order of the rows, or (N·k,) if ``groups`` is given. By
            default the labels.
        groups: (N·k,) ids of the samples that the rows of a long table belong to. Every group has k rows, in the order
            of the problem's values. By default the k rows of a sample are consecutive.
        smoothing, injection: as in ``PEARLoss``.
        guidance: the guidance α of the first round, as in ``PEARLoss``.
        decay: the factor by which α is multiplied from one round to the next; 1 keeps α constant.
        solver, on_failure: as in ``PEARLoss``. With "mask", a failed sample has a gradient of zero.

    Returns:
        A function of (forecasts, data) or (true, forecasts), for ``lightgbm.train``, ``xgboost.train`` and the
        regressors of both packages.

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
