"""``OutputLayer``: the last layer of a model, whose outputs are the forecasts."""

from __future__ import annotations

import copy
import logging
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pear.train.ridge import fit_ridge
from pear.train.samples.features import Features, call_on_features
from pear.train.samples.memory_samples import MemorySamples

logger = logging.getLogger("pear")

_LEARNT = 0.1
"""A model that explains more than this share of the costs' variance counts as trained."""


_NORMAL = 1.4826
"""The standard deviation of a normal variable, divided by its median distance from the median."""


SPREAD = 0.1
"""The deviation of the first forecasts, as a share of the deviation of the costs."""


def standardise_output_layer(model: nn.Module, look: MemorySamples, typical: bool = True) -> dict[str, Any]:
    """The weights of a fresh model whose last layer is on the scale of the costs of these samples.

    Args:
        model: a fresh model, which is not changed.
        look: the training samples, or as many of them as can be looked at.
        typical: as in ``make_optimizer``.
    """
    model = copy.deepcopy(model)
    end = find_output_layer(model, look.features, look.costs, typical)
    if end is not None:
        end.standardise()
    return model.state_dict()


def trains_output_layer_alone(model: nn.Module, features: Features, costs: Tensor) -> bool:
    """Whether all that the model trains is its last layer, so that the squared error has a closed form."""
    end = find_output_layer(model, features, costs)
    if end is None:
        return False
    own = {id(parameter) for parameter in end.layer.parameters()}
    return {id(parameter) for parameter in model.parameters() if parameter.requires_grad} == own


def fit_output_layer(model: nn.Module, features: Features, costs: Tensor, weight: Tensor | None = None) -> float:
    """Fit the last layer of the model to the costs by ridge regression; returns the strength of the ridge.

    Args:
        model: the model, which is changed.
        features: (N, …), or a tuple or dict of such tensors.
        costs: (N, n) true costs.
        weight: (N,) how much each sample counts; None weighs all alike.
    """
    end = find_output_layer(model, features, costs)
    assert end is not None
    if weight is not None:
        weight = weight[end.usable].repeat_interleave(len(end.inputs) // int(end.usable.sum()))
    found = fit_ridge(end.inputs, end.costs, intercept=end.layer.bias is not None, weight=weight)
    with torch.no_grad():
        end.layer.weight.copy_(found.weight)
        if end.layer.bias is not None:
            end.layer.bias.copy_(found.bias)
    return found.strength


def has_fresh_output_layer(model: nn.Module, features: Features, costs: Tensor) -> bool | None:
    """Whether the model is untrained, judged by its last layer; None where it has no last layer to judge by."""
    end = find_output_layer(model, features, costs)
    return None if end is None else end.is_fresh()


@dataclass(frozen=True)
class OutputLayer:
    """The layer whose outputs are the forecasts.

    Attributes:
        layer: the module.
        inputs: (M, in_features) what it is called with for the training samples.
        outputs: (M, out_features) its outputs for the training samples.
        costs: (M, out_features) the true costs that the outputs forecast.
        usable: (N,) which samples these rows come from: those with finite forecasts and costs.
        typical: whether the deviation is that of typical costs, see ``make_optimizer``.
    """

    layer: nn.Linear
    inputs: Tensor
    outputs: Tensor
    costs: Tensor
    usable: Tensor
    typical: bool = False

    def is_fresh(self) -> bool:
        """Whether the weights lie in the range that ``nn.Linear`` draws from, and the outputs do not explain the costs.

        Both tests are needed. A model trained on regret may forecast costs badly and decide well, but its weights have
        left that range. Random outputs explain a small share of large costs by chance, so that only a larger share
        counts.
        """
        bound = self.layer.in_features**-0.5 * 1.001  # rounding
        drawn = all(bool((parameter.abs() <= bound).all()) for parameter in self.layer.parameters())
        error = float(((self.outputs - self.costs) ** 2).mean())
        return drawn and error > (1 - _LEARNT) * _deviation_of_outputs(self.costs) ** 2

    @property
    def deviation(self) -> float:
        """The deviation of the costs; 1 where they are constant."""
        return self._spread(self.costs) or 1.0

    def _spread(self, rows: Tensor) -> float:
        """The deviation of (M, out_features) entries; without a bias their size, which includes the mean."""
        centred = self.layer.bias is not None
        if not self.typical:
            return _deviation_of_outputs(rows) if centred else float(rows.square().mean().sqrt())
        apart = (rows - rows.median(0).values).abs() if centred else rows.abs()
        return _NORMAL * float(apart.median()) or float(apart.mean())

    def standardise(self) -> float:
        """Rescale the layer: outputs get the costs' mean and a share of their deviation; returns that deviation."""
        layer, mean, spread = self.layer, self.costs.mean(0), self._spread(self.outputs)
        rounding = 8 * torch.finfo(layer.weight.dtype).eps * float(self.outputs.abs().max())
        factor = SPREAD * self._spread(self.costs) / spread if spread > rounding else 0.0
        with torch.no_grad():
            if layer.bias is not None:
                layer.bias.copy_(mean - factor * (self.outputs.mean(0) - layer.bias))
            layer.weight.mul_(factor)
        logger.info(
            "the last layer begins at the mean of the training costs, and its learning rate is "
            "multiplied by their deviation, %.3g",
            self.deviation,
        )
        return self.deviation


def find_output_layer(model: nn.Module, features: Features, costs: Tensor, typical: bool = False) -> OutputLayer | None:
    """The last ``nn.Linear`` that the model calls, if its outputs, in some shape, are the forecasts; else None."""
    called: list[tuple[nn.Linear, Tensor, Tensor]] = []

    def note(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        assert isinstance(layer, nn.Linear)
        called[:] = [(layer, inputs[0].detach(), output.detach())]

    hooks = [part.register_forward_hook(note) for part in model.modules() if isinstance(part, nn.Linear)]
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            forecast = call_on_features(model, features)
    finally:
        model.train(was_training)
        for hook in hooks:
            hook.remove()
    if not called or forecast.shape != costs.shape or called[0][2].numel() != costs.numel():
        return None
    layer, inputs, output = called[0]
    usable = (forecast.isfinite() & costs.isfinite()).flatten(1).all(1)
    if not usable.any() or not torch.equal(output.reshape(costs.shape)[usable], forecast[usable]):
        return None
    shape = (-1, layer.out_features)
    entering = inputs.reshape(len(costs), -1)[usable].double().reshape(-1, layer.in_features)
    predicted, true = (rows[usable].double().reshape(shape) for rows in (forecast, costs))
    return OutputLayer(layer, entering, predicted, true, usable, typical)


def _deviation_of_outputs(rows: Tensor) -> float:
    """The root mean square of (M, n) entries after their column's mean is subtracted."""
    return float((rows - rows.mean(0)).square().mean().sqrt())
