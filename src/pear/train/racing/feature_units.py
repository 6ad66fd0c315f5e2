"""``FeatureUnits``: a linear model in standardised features, so that its training does not depend on their units."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from pear.train.samples import SampleSource
from pear.train.samples.memory_samples import MemorySamples


@dataclass(frozen=True)
class FeatureUnits:
    """The mean and the deviation of each feature.

    Attributes:
        mean: (p,).
        deviation: (p,); 1 for a constant feature.
    """

    mean: Tensor
    deviation: Tensor

    @classmethod
    def of(cls, model: nn.Module, samples: SampleSource) -> FeatureUnits | None:
        """The units for an ``nn.Linear`` on samples in memory; None for another model, which sees features as they are.

        A model without a bias cannot take back a mean; its features are scaled alone.
        """
        if type(model) is not nn.Linear or not isinstance(samples, MemorySamples):
            return None
        features = samples.finite().features
        if not isinstance(features, Tensor) or features.dim() != 2 or not len(features):
            return None
        rows = features.double()
        mean = rows.mean(0) if model.bias is not None else torch.zeros_like(rows[0])
        spread = (rows - mean).square().mean(0).sqrt()
        rounding = 8 * torch.finfo(features.dtype).eps * rows.abs().amax(0)
        return cls(mean, torch.where(spread > rounding, spread, 1.0))

    def standardise(self, samples: SampleSource) -> SampleSource:
        """The samples with standardised features, where they are in memory."""
        if not isinstance(samples, MemorySamples):
            raise TypeError("only samples in memory can be standardised")
        features = samples.features
        assert isinstance(features, Tensor)
        scaled = ((features.double() - self.mean) / self.deviation).to(features.dtype)
        return replace(samples, all=samples.all._replace(features=scaled))

    def enter(self, weights: dict[str, Any]) -> dict[str, Any]:
        """Convert weights for the features themselves to weights for standardised features, with the same forecasts."""
        weight = weights["weight"].double()
        found = {"weight": (weight * self.deviation).to(weights["weight"].dtype)}
        if "bias" in weights:
            found["bias"] = (weights["bias"].double() + weight @ self.mean).to(weights["bias"].dtype)
        return found

    def leave(self, weights: dict[str, Any]) -> dict[str, Any]:
        """Convert weights for standardised features to weights for the features themselves, with the same forecasts."""
        weight = weights["weight"].double() / self.deviation
        found = {"weight": weight.to(weights["weight"].dtype)}
        if "bias" in weights:
            found["bias"] = (weights["bias"].double() - weight @ self.mean).to(weights["bias"].dtype)
        return found
