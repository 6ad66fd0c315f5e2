"""``partial_fit`` of ``DecisionRegressor``: updates of a fitted estimator, or the training of a new one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from pear.errors import ProblemError
from pear.problem.pandas_data import check_pandas_rows
from pear.problem.sample_keys import count_keyed_samples
from pear.train.estimator.daily_updates import DailyUpdates, daily_update_scale
from pear.train.estimator.loss_and_config import config_seed, estimator_config, make_estimator_loss
from pear.train.estimator.networks import build_network
from pear.train.estimator.training_rows import read_training_rows
from pear.train.optimizer import make_optimizer
from pear.train.sample_order import shuffled
from pear.train.samples.features import call_on_features
from pear.train.samples.sample_batch import SampleBatch
from pear.train.training_loss import loss_with_keys, step_training_loss

if TYPE_CHECKING:
    from pear.train.estimator.regressor import DecisionRegressor


def partial_fit_estimator(estimator: DecisionRegressor, given: Mapping[str, Any]) -> None:
    """Train an estimator on new rows, in place.

    Args:
        estimator: the estimator. If ``fit`` was called before, its weights are updated with ``DailyUpdates``;
            otherwise every call trains it for one epoch.
        given: X, y, groups and base_forecast by name, as in ``fit``.

    Raises:
        ProblemError: the rows do not have the required form, or the problem has fields or known values for each sample.
    """
    problem = estimator.problem
    if count_keyed_samples(problem) is not None or getattr(problem, "known_map", None) is not None:
        raise ProblemError(
            "partial_fit takes a problem that all samples share; this one has fields or known values per sample: "
            "call fit with all rows"
        )
    fresh = not hasattr(estimator, "model_")
    check_pandas_rows(given)
    rows = read_training_rows(estimator, given, dtype=None if fresh else next(estimator.model_.parameters()).dtype)
    if not hasattr(estimator, "loss_"):  # a model file does not hold a loss that was an object
        estimator.loss_ = make_estimator_loss(estimator, problem, rows.costs)
    if fresh:
        estimator.model_, estimator._scale = build_network(estimator, rows), daily_update_scale(rows.costs)
    done = getattr(estimator, "n_iter_", 0)
    new, generator = (
        rows.batch(estimator.model_[0]),
        torch.Generator().manual_seed(config_seed(estimator.random_state) + done),
    )
    if fresh or hasattr(estimator, "_optimizer"):
        _partial_fit_one_epoch(estimator, new, generator, fresh)
    else:
        if not hasattr(estimator, "updates_"):
            estimator.updates_ = DailyUpdates.of_estimator(estimator)
        estimator.updates_.update(new, estimator.batch_size, generator)
    estimator.n_iter_ = done + 1
    estimator.smoothing_ = getattr(estimator.loss_, "chosen_smoothing", None)


def _partial_fit_one_epoch(
    estimator: DecisionRegressor, new: SampleBatch, generator: torch.Generator, fresh: bool
) -> None:
    """Train on every new sample once, at the full learning rate.

    Args:
        estimator: the estimator.
        new: the new samples, with the features that the network gets.
        generator: the generator that draws the order of the samples.
        fresh: whether the network is untrained.
    """
    network, loss = estimator.model_[1], loss_with_keys(estimator.loss_)
    if not hasattr(estimator, "_optimizer"):
        decides = hasattr(estimator.loss_, "problem")
        samples = new.features, new.costs, estimator_config(estimator)
        estimator._optimizer = make_optimizer(network, *samples, keep=not fresh, typical=decides)
    network.train()
    for some in shuffled(len(new.costs), generator).split(estimator.batch_size):
        batch = new.only(some)
        estimator._optimizer.zero_grad()
        loss(call_on_features(network, batch.features), batch.costs, keys=None).backward()
        estimator._optimizer.step()
        step_training_loss(estimator.loss_)
    network.eval()
