"""``FeatureUnits``: a model in standardised features, so that its training does not depend on their units."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from pear.train.samples.memory_samples import MemorySamples
from pear.train.samples.sample_source import SampleSource

ALIKE = 1e-3
"""Features with means this close to 0 and deviations this close to 1 count as standardised already, for a network."""


@dataclass(frozen=True)
class FeatureUnits:
    """The mean and the deviation of each feature, and the layer of the model that gets the features.

    Attributes:
        mean: (p,).
        deviation: (p,); 1 for a constant feature.
        layer: the prefix of the names of the layer's weights.
    """

    mean: Tensor
    deviation: Tensor
    layer: str = ""

    @classmethod
    def of(cls, model: nn.Module, samples: SampleSource) -> FeatureUnits | None:
        """Compute the units for an ``nn.Linear``, or an ``nn.Sequential`` that begins with one, on samples in memory.

        The result is None for other models: their features stay as they are. For a layer without a bias the features
        are scaled but not centred, because only a bias can undo the centring.
        """
        first = model[0] if type(model) is nn.Sequential and len(model) > 1 else model
        if type(first) is not nn.Linear or not isinstance(samples, MemorySamples):
            return None
        if not all(part.requires_grad for part in first.parameters()) or "weight" not in dict(first.named_parameters()):
            return None
        features = samples.finite().features
        if not isinstance(features, Tensor) or features.dim() != 2 or not len(features):
            return None
        rows = features.double()
        mean = rows.mean(0) if first.bias is not None else torch.zeros_like(rows[0])
        spread = (rows - mean).square().mean(0).sqrt()
        rounding = 8 * torch.finfo(features.dtype).eps * rows.abs().amax(0)
        deviation = torch.where(spread > rounding, spread, 1.0)
        if first is not model and bool(((mean.abs() < ALIKE) & ((deviation - 1).abs() < ALIKE)).all()):
            return None
        return cls(mean, deviation, "" if first is model else "0.")

    def standardise(self, samples: SampleSource) -> SampleSource:
        """The samples with standardised features, where they are in memory."""
        if not isinstance(samples, MemorySamples):
            raise TypeError("only samples in memory can be standardised")
        features = samples.features
        assert isinstance(features, Tensor)
        scaled = ((features.double() - self.mean) / self.deviation).to(features.dtype)
        return replace(samples, all=samples.all._replace(features=scaled))

    def enter(self, weights: dict[str, Any]) -> dict[str, Any]:
        """Convert weights for features in their own units to weights for standardised features.

        Forecasts are the same.
        """
        weight = weights[f"{self.layer}weight"].double()
        return self._with_layer(weights, weight * self.deviation, weight @ self.mean)

    def leave(self, weights: dict[str, Any]) -> dict[str, Any]:
        """Convert weights for standardised features to weights for features in their own units."""
        weight = weights[f"{self.layer}weight"].double() / self.deviation
        return self._with_layer(weights, weight, -(weight @ self.mean))

    def _with_layer(self, weights: dict[str, Any], weight: Tensor, shift: Tensor) -> dict[str, Any]:
        """Return the weights with the layer's matrix replaced, and ``shift`` added to its bias if it has one."""
        names = f"{self.layer}weight", f"{self.layer}bias"
        found = {**weights, names[0]: weight.to(weights[names[0]].dtype)}
        if names[1] in weights:
            found[names[1]] = (weights[names[1]].double() + shift).to(weights[names[1]].dtype)
        return found
