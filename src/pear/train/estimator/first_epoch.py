"""``train_one_epoch``: what ``partial_fit`` does before ``fit`` was ever called."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pear.train.loss_interface import accept_keys, step_guidance
from pear.train.sample_order import shuffled
from pear.train.samples.features import call_model
from pear.train.samples.memory_samples import SampleBatch
from pear.train.training_start import make_optimizer

if TYPE_CHECKING:
    from pear.train.estimator.regressor import DecisionRegressor


def train_one_epoch(estimator: DecisionRegressor, new: SampleBatch, generator: torch.Generator, fresh: bool) -> None:
    """Train on every sample once, at the full learning rate."""
    network, loss = estimator.model_[1], accept_keys(estimator.loss_)
    if not hasattr(estimator, "_optimizer"):
        decides = hasattr(estimator.loss_, "problem")
        samples = new.features, new.costs, estimator._config()
        estimator._optimizer = make_optimizer(network, *samples, keep=not fresh, typical=decides)
    network.train()
    for some in shuffled(len(new.costs), generator).split(estimator.batch_size):
        batch = new.only(some)
        estimator._optimizer.zero_grad()
        loss(call_model(network, batch.features), batch.costs, keys=None).backward()
        estimator._optimizer.step()
        step_guidance(estimator.loss_)
    network.eval()
