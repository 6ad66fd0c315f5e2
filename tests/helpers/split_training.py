"""A training on the split of a task of the laboratory."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from pear.losses.methods import make_loss
from pear.train import FitConfig, fit


def regret_on_test_part(split: Any, model: nn.Module) -> float:
    """Return the regret of a model on the test part of a split."""
    with torch.no_grad():
        predicted = model(split.test.samples.features)
    return split.test.task.normalized_regret(predicted, split.test.samples.costs)


def train_on_split(split: Any, model: nn.Module, method: str, options: dict[str, float], config: FitConfig) -> None:
    """Train a model with the loss of a method on a split, by its validation regret."""
    loss, validation = make_loss(method, split.train.task, **options), split.validation
    fit(model, loss, split.train.samples, validation.samples, validation.task.normalized_regret, config)
