"""``FeatureUnits``: standardises the features of a model for a training, and converts the model's weights to match.

The units of the features then do not affect the training.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from pear.train.samples.memory_samples import MemorySamples
from pear.train.samples.sample_source import SampleSource

ALIKE = 1e-3
"""The features of a network count as standardised if all means and deviations differ from 0 and 1 by less than this."""


@dataclass(frozen=True)
class FeatureUnits:
    """The mean and the standard deviation of each feature, and the layer of a model whose inputs are the features.

    Attributes:
        mean: (p,) the means of the p features; 0 if the layer has no bias.
        deviation: (p,) the standard deviations, or the root mean squares if the layer has no bias; 1 for a constant
            feature.
        layer: the prefix of the names of the layer's weights in the model's ``state_dict``.
    """

    mean: Tensor
    deviation: Tensor
    layer: str = ""

    @classmethod
    def of(cls, model: nn.Module, samples: SampleSource) -> FeatureUnits | None:
        """Return the units of the features of a model; None if the features are not to be standardised.

        The result is None for samples that are not in memory, and for a network whose features are standardised
        already. The model must be an ``nn.Linear``, or an ``nn.Sequential`` that begins with one, and all parameters of
        this layer must be trained; the result is None for other models. If the layer has no bias, features are scaled
        but not centred, because a bias is needed to undo the centring.
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
        """Return the same samples, which must be in memory, with standardised features."""
        if not isinstance(samples, MemorySamples):
            raise TypeError("only samples in memory can be standardised")
        features = samples.features
        assert isinstance(features, Tensor)
        scaled = ((features.double() - self.mean) / self.deviation).to(features.dtype)
        return replace(samples, all=samples.all._replace(features=scaled))

    def enter(self, weights: dict[str, Any]) -> dict[str, Any]:
        """Return weights that forecast from standardised features what ``weights`` forecast from raw features."""
        weight = weights[f"{self.layer}weight"].double()
        return self._with_layer(weights, weight * self.deviation, weight @ self.mean)

    def leave(self, weights: dict[str, Any]) -> dict[str, Any]:
        """Return weights that forecast from raw features what ``weights`` forecast from standardised features."""
        weight = weights[f"{self.layer}weight"].double() / self.deviation
        return self._with_layer(weights, weight, -(weight @ self.mean))

    def _with_layer(self, weights: dict[str, Any], weight: Tensor, shift: Tensor) -> dict[str, Any]:
        """Return ``weights`` with the matrix ``weight`` in the layer, and with ``shift`` added to its bias, if any."""
        names = f"{self.layer}weight", f"{self.layer}bias"
        found = {**weights, names[0]: weight.to(weights[names[0]].dtype)}
        if names[1] in weights:
            found[names[1]] = (weights[names[1]].double() + shift).to(weights[names[1]].dtype)
        return found
