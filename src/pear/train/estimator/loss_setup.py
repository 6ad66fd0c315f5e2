"""The loss and the settings that the parameters of a ``DecisionRegressor`` ask for."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor, nn

from pear.errors import ProblemError
from pear.losses.methods import make_loss
from pear.problem import Model, Problem
from pear.train.successive_halving import multiple_of_auto

if TYPE_CHECKING:
    from pear.train.estimator.regressor import DecisionRegressor


def make_estimator_loss(estimator: DecisionRegressor, problem: Problem | Model, costs: Tensor | None = None) -> Any:
    """Make the loss; a smoothing that is a multiple of "auto" is calibrated where costs are given.

    Args:
        estimator: the estimator, whose parameters say which loss.
        problem: its problem, with the known values of the samples where it has some.
        costs: (N, k) true values, or None.

    Raises:
        ProblemError: there is no such loss, or its settings belong elsewhere.
    """
    names = ("smoothing", "injection", "guidance")
    options = {name: value for name in names if (value := getattr(estimator, name)) is not None}
    given = estimator.loss
    if isinstance(given, str):
        times = multiple_of_auto(options.get("smoothing"))
        options |= {} if times is None else {"smoothing": "auto"}
        loss: Any = make_loss(given, problem, **options)
        if times is not None and costs is not None:
            loss.calibrate(costs, times=times)
        return loss
    if options:
        raise ProblemError(f"{', '.join(options)} of a loss that is given as an object must be set on the object")
    if given is None:
        raise ProblemError("the loss was an object, which a model file does not hold; set_params(loss=…) first")
    if isinstance(given, nn.Module) and problem is not estimator.problem:
        raise ProblemError(
            "the loss came as an object, and known values come with fit; pass a function from the problem to the loss: "
            "loss=lambda problem: pear.PEARLoss(problem, …)"
        )
    loss = copy.deepcopy(given) if isinstance(given, nn.Module) else given(problem)
    if not callable(loss):
        raise ProblemError(f"loss must be a name, a loss, or a function from the problem to one; it gave {loss!r}")
    return loss


def seed_of(random_state: Any) -> int:
    """The seed: ``random_state`` where that is an int, otherwise a number drawn from it."""
    from sklearn.utils import check_random_state

    if isinstance(random_state, (int, np.integer)):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31))
