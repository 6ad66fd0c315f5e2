"""The loss and the ``FitConfig`` that the parameters of a ``DecisionRegressor`` ask for."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor, nn

from pear.errors import ProblemError
from pear.losses.methods import make_loss
from pear.problem import Model, Oracle, Problem
from pear.problem.model import problem_of_model
from pear.problem.oracle import same_oracle
from pear.train.fit_config import FitConfig
from pear.train.training_loss import problem_of_loss, training_loss_smoothing_multiple

if TYPE_CHECKING:
    from pear.train.estimator.regressor import DecisionRegressor


def make_estimator_loss(estimator: DecisionRegressor, problem: Problem | Model, costs: Tensor | None = None) -> Any:
    """Make the loss that the parameters of an estimator describe.

    Args:
        estimator: the estimator.
        problem: the problem of the estimator, including known values of the samples.
        costs: (N, k) the k true values of each sample, or None. A smoothing that is a multiple of "auto" is calibrated
            on them.

    Raises:
        ProblemError: no loss has this name; a loss that is an object comes with settings; or the loss was made for
            another decision function than that of the problem.
    """
    names = ("smoothing", "injection", "guidance")
    options = {name: value for name in names if (value := getattr(estimator, name)) is not None}
    given = default_loss_method(problem) if estimator.loss == "auto" else estimator.loss
    if isinstance(given, str):
        times = training_loss_smoothing_multiple(options.get("smoothing"))
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
    _check_loss_decider(loss, problem)
    return loss


def default_loss_method(problem: Problem | Model) -> str:
    """Return the name of the method that the loss "auto" stands for.

    It is "spo+" for an ``Oracle`` without a relaxation, and "pear-guided" for every other problem.
    """
    plain = problem_of_model(problem)
    return "spo+" if isinstance(plain, Oracle) and plain.relaxation is None else "pear-guided"


def describe_loss_method(estimator: DecisionRegressor) -> str:
    """Return a sentence that names the method of an estimator whose loss is "auto".

    The sentence is "" if another loss was given, or if "auto" stands for PEAR's loss.
    """
    if estimator.loss != "auto" or default_loss_method(estimator.problem) == "pear-guided":
        return ""
    return "the loss is SPO+, because the oracle has no relaxation that PEAR could train on"


def _check_loss_decider(loss: Any, problem: Problem | Model) -> None:
    """Raise ProblemError if the problems of a loss and of its estimator decide by different functions.

    The model would be trained on the decisions of one function, and scored on the decisions of the other.
    """
    judged = problem_of_loss(loss)
    if isinstance(judged, (Problem, Model)) and not same_oracle(judged, problem):
        by_loss = not problem_of_model(judged).has_program
        came = "the loss decides by a function of its own" if by_loss else "the problem is an Oracle, the loss's is not"
        raise ProblemError(
            f"{came}, so that training and score would decide differently; pass the function once, "
            "oracle = pear.Oracle(decide, n=…), and make estimator and loss with it: "
            "DecisionRegressor(oracle, loss=SPOPlusLoss(oracle))"
        )


def config_seed(random_state: Any) -> int:
    """Return the random state if it is an int; otherwise a seed drawn from it, or from NumPy's global state if None."""
    from sklearn.utils import check_random_state

    if isinstance(random_state, (int, np.integer)):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31))


def estimator_config(estimator: DecisionRegressor) -> FitConfig:
    """Return the settings of ``pear.fit`` that the parameters of an estimator ask for."""
    names = ["learning_rate", "batch_size", "max_epochs", "check_every", "patience", "time_cap", "gap"]
    names += ["label_neighbours", "label_own_weight", "label_mixing", "normalise_costs"]
    return FitConfig(**{name: getattr(estimator, name) for name in names}, seed=config_seed(estimator.random_state))
