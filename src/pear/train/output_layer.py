"""``OutputLayer``: the last layer of a model, whose outputs are the forecasts."""

from __future__ import annotations

import copy
import logging
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pear.train.ridge import fit_ridge
from pear.train.samples.features import Features, call_on_features, evaluation_mode
from pear.train.samples.memory_samples import MemorySamples

logger = logging.getLogger("pear")

_LEARNT = 0.1
"""A model whose forecasts explain a larger share of the variance of the costs than this counts as trained."""

_NORMAL = 1.4826
"""The standard deviation of a normal variable divided by its median absolute deviation."""

SPREAD = 0.1
"""The standard deviation of the first forecasts of a rescaled layer, as a share of that of the costs."""


@dataclass(frozen=True)
class OutputLayer:
    """The last layer of a model, whose outputs are the forecasts, with its inputs and outputs for training samples.

    M is the number of rows that the layer gets for the usable samples; it may get several rows for each sample.

    Attributes:
        layer: the module.
        inputs: (M, in_features) the inputs of the layer for the usable training samples.
        outputs: (M, out_features) the outputs of the layer.
        costs: (M, out_features) the true costs that the outputs forecast.
        usable: (N,) bool, the training samples whose forecasts and costs are finite.
        typical: whether ``deviation`` is that of typical costs, from the median absolute deviation, which a few very
            large costs do not change. Otherwise it is the standard deviation.
    """

    layer: nn.Linear
    inputs: Tensor
    outputs: Tensor
    costs: Tensor
    usable: Tensor
    typical: bool = False

    def is_fresh(self) -> bool:
        """Return whether the layer is untrained.

        The layer counts as untrained if it passes two tests: its weights lie in the range from which ``nn.Linear``
        draws them, and its outputs explain little of the variance of the costs (less than the share ``_LEARNT``). A
        model that is trained on regret may forecast costs badly, and fails the first test. A trained model with small
        weights fails the second.
        """
        bound = self.layer.in_features**-0.5 * 1.001  # rounding
        drawn = all(bool((parameter.abs() <= bound).all()) for parameter in self.layer.parameters())
        error = float(((self.outputs - self.costs) ** 2).mean())
        return drawn and error > (1 - _LEARNT) * _deviation_of_outputs(self.costs) ** 2

    @property
    def deviation(self) -> float:
        """The typical or standard deviation of the costs, as ``typical`` says; 1 if the costs are constant."""
        return self._spread(self.costs) or 1.0

    def _spread(self, rows: Tensor) -> float:
        """Return the typical or standard deviation of all numbers in M rows, (M, out_features).

        It is measured from the median or mean of each column, or from 0 if the layer has no bias.
        """
        centred = self.layer.bias is not None
        if not self.typical:
            return _deviation_of_outputs(rows) if centred else float(rows.square().mean().sqrt())
        apart = (rows - rows.median(0).values).abs() if centred else rows.abs()
        return _NORMAL * float(apart.median()) or float(apart.mean())

    def standardise(self) -> float:
        """Rescale the layer, so that its outputs get the mean and a tenth (``SPREAD``) of the deviation of the costs.

        Without a bias, the outputs get the deviation but not the mean. If all outputs are equal, the weights become
        zero.

        Returns:
            The deviation of the costs.
        """
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
    """Return the last ``nn.Linear`` that a model calls, if its outputs are the forecasts; None for other models.

    The forecasts may be the outputs in another shape.

    Args:
        model: the model, which is called once in evaluation mode.
        features: (N, …) features of the training samples, or a tuple or dict of such tensors.
        costs: (N, n) true costs of the training samples.
        typical: as in ``OutputLayer``.
    """
    called: list[tuple[nn.Linear, Tensor, Tensor]] = []

    def note(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        """Keep the latest call of a layer."""
        assert isinstance(layer, nn.Linear)
        called[:] = [(layer, inputs[0].detach(), output.detach())]

    hooks = [part.register_forward_hook(note) for part in model.modules() if isinstance(part, nn.Linear)]
    try:
        with evaluation_mode(model), torch.no_grad():
            forecast = call_on_features(model, features)
    finally:
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


def has_fresh_output_layer(model: nn.Module, features: Features, costs: Tensor) -> bool | None:
    """Return whether the last layer of a model is untrained; None if ``find_output_layer`` finds none."""
    end = find_output_layer(model, features, costs)
    return None if end is None else end.is_fresh()


def trains_output_layer_alone(model: nn.Module, features: Features, costs: Tensor) -> bool:
    """Return whether a model trains its last layer alone; ridge regression can then fit the layer in closed form."""
    end = find_output_layer(model, features, costs)
    if end is None:
        return False
    own = {id(parameter) for parameter in end.layer.parameters()}
    return {id(parameter) for parameter in model.parameters() if parameter.requires_grad} == own


def standardise_output_layer(model: nn.Module, look: MemorySamples, typical: bool = True) -> dict[str, Any]:
    """Return the weights that an untrained model gets if its last layer is rescaled to the costs of these samples.

    Args:
        model: the untrained model, which is not changed.
        look: the training samples in memory.
        typical: as in ``OutputLayer``.
    """
    model = copy.deepcopy(model)
    end = find_output_layer(model, look.features, look.costs, typical)
    if end is not None:
        end.standardise()
    return model.state_dict()


def fit_output_layer(model: nn.Module, features: Features, costs: Tensor, weight: Tensor | None = None) -> float:
    """Fit the last layer of a model to the costs by ridge regression, and return the strength of the penalty.

    Args:
        model: the model, whose last layer is changed in place.
        features: (N, …) features, or a tuple or dict of such tensors.
        costs: (N, n) true costs.
        weight: (N,) how much each sample counts; None weighs all samples alike.

    Returns:
        The strength of the ridge penalty.
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


def _deviation_of_outputs(rows: Tensor) -> float:
    """Return the root mean square of M rows of n numbers, (M, n), after the mean of each column is subtracted."""
    return float((rows - rows.mean(0)).square().mean().sqrt())
