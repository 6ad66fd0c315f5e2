"""The weights of a model: loading, averaging and mixing them."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn


def load_model_weights(model: nn.Module, weights: Mapping[str, Any]) -> None:
    """Load weights into a model; torch's version numbers of modules, which a file lacks, are the model's own."""
    own = model.state_dict()
    if set(own) != set(weights):
        raise KeyError(f"weights {sorted(set(own) ^ set(weights))}")
    own.update(weights)
    model.load_state_dict(own)


Weights = dict[str, Any]


class ModelWeightAverage:
    """A running average of a model's weights. Entries that are not floating-point tensors have their last value."""

    def __init__(self) -> None:
        self.total: Weights = {}
        self.count = 0

    def add(self, model: nn.Module) -> None:
        """Add the weights that the model has now."""
        now = model.state_dict()
        if not self.count:
            self.total = copy.deepcopy(dict(now))
        else:
            for name, value in now.items():
                self.total[name] = self.total[name] + value if _is_real_weight(value) else copy.copy(value)
        self.count += 1

    def weights(self) -> Weights:
        """The average so far."""
        return {name: value / self.count if _is_real_weight(value) else value for name, value in self.total.items()}


def mix_model_weights(start: Weights, end: Weights, share: float) -> Weights:
    """The weights at this share of the way from ``start`` to ``end``."""
    return {
        name: start[name] + share * (value - start[name]) if _is_real_weight(value) else value
        for name, value in end.items()
    }


def _is_real_weight(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()
