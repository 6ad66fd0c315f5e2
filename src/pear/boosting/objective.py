"""Regret as a custom objective and as a metric of gradient boosting.

Let e = ŷ − y be the error of the forecast and g the gradient of the loss. The curvature of the loss along its gradient
is ``h = Σ gᵀg / Σ eᵀg``; for a linear program with smoothing λ it is 1/λ. The objective returns ``g / h`` with a second
derivative of 1. A leaf's step then has the unit of the costs, as under the squared error, and settings such as the
learning rate, ``lambda_l2`` or ``min_child_weight`` have the same meaning.
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
