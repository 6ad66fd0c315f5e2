"""Functions that load, average and mix the weights of a model, and the type of such weights."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

Weights = dict[str, Any]
"""The ``state_dict`` of a model."""


def load_model_weights(model: nn.Module, weights: Mapping[str, Any]) -> None:
    """Load weights into a model.

    The weights may come from a file, which does not hold the version numbers that torch adds to a ``state_dict``.

    Raises:
        KeyError: the names of the weights are not those of the model.
    """
    own = model.state_dict()
    if set(own) != set(weights):
        raise KeyError(f"weights {sorted(set(own) ^ set(weights))}")
    own.update(weights)
    model.load_state_dict(own)


class ModelWeightAverage:
    """A running average of a model's weights. An entry that is no floating-point tensor keeps its latest value."""

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
        """Return the average of the weights that were added."""
        return {name: value / self.count if _is_real_weight(value) else value for name, value in self.total.items()}


def mix_model_weights(start: Weights, end: Weights, share: float) -> Weights:
    """Return the weights ``start + share · (end − start)``.

    An entry that is no floating-point tensor is taken from ``end``.
    """
    return {
        name: start[name] + share * (value - start[name]) if _is_real_weight(value) else value
        for name, value in end.items()
    }


def _is_real_weight(value: Any) -> bool:
    """Return whether an entry of a ``state_dict`` is a floating-point tensor."""
    return isinstance(value, Tensor) and value.is_floating_point()
