"""How a run starts: a fresh last layer on the scale of the costs, and an Adam whose steps have that scale, too."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pear.train.config import FitConfig
from pear.train.samples.features import Features, call

logger = logging.getLogger("pear")

_LEARNT = 0.1
"""Share of the costs' variance that a model explains by more than chance: from here on it is no fresh one."""

_NORMAL = 1.4826
"""What the median distance from the median is multiplied by, so that a normal variable gets its standard deviation."""

SPREAD = 0.1
"""Deviation of the first forecasts beside that of the costs: a random forecast of full size has to be unlearnt."""


def make_optimizer(
    model: nn.Module, features: Features, costs: Tensor, config: FitConfig, keep: bool, typical: bool = False
) -> torch.optim.Adam:
    """Adam over all parameters; a fresh last layer is put on the scale of the costs, unless the model begins as given.

    A step of Adam has the size of the learning rate, whatever the gradient's size. The rate of the last layer is
    multiplied by the costs' deviation, and where costs are small the constant in Adam's denominator shrinks with its
    gradients, so that costs in another unit lead to the same forecasts in that unit.

    Args:
        model: changed in place, its last layer alone, and only where that is fresh.
        features: (N, p) of the training set, or several of them; costs: (N, n).
        config: says the learning rate and the start.
        keep: True where the weights are not to be changed, because they are trained, or a checkpoint replaces them.
        typical: True where the deviation is to be that of typical costs, for a loss of decisions. A squared error has
            to reach the few costs that are far larger than the others, and takes the root of the mean square.

    Returns:
        An optimizer with a parameter group of its own for the last layer, unless that is the whole model. The groups
        depend on the model's architecture alone, so that the state of one run fits the next.
    """
    end = None if config.start == "given" else _output_layer(model, features, costs, typical)
    if end is None:
        return torch.optim.Adam(model.parameters(), lr=config.learning_rate)
    scale = end.deviation if config.start == "mse" else 1.0
    if not keep and end.is_fresh():
        scale = end.standardise()
    own = {id(parameter) for parameter in end.layer.parameters()}
    rest = [parameter for parameter in model.parameters() if id(parameter) not in own]
    groups = [{"params": rest}] if rest else []
    groups.append({"params": list(end.layer.parameters()), "lr": config.learning_rate * scale})  # type: ignore[dict-item]
    optimizer = torch.optim.Adam(groups, lr=config.learning_rate)
    least = float(torch.finfo(costs.dtype).tiny) ** 0.5  # squares of smaller gradients are lost
    for group in optimizer.param_groups:
        # gradients by weights of hidden layers fall with the square of the costs' size under a squared error
        group["eps"] = max(group["eps"] * min(1.0, scale) ** 2, least)
    return optimizer


def is_fresh(model: nn.Module, features: Features, costs: Tensor) -> bool | None:
    """Whether the last layer is as ``nn.Linear`` draws it and forecasts nothing; None where that cannot be told."""
    end = _output_layer(model, features, costs)
    return None if end is None else end.is_fresh()


@dataclass(frozen=True)
class _OutputLayer:
    """The layer whose outputs are the forecasts.

    Attributes:
        layer: the module.
        outputs: (M, out_features) of the training samples; costs: (M, out_features), what they forecast.
        typical: whether a few large costs count no more than others in the deviation.
    """

    layer: nn.Linear
    outputs: Tensor
    costs: Tensor
    typical: bool = False

    def is_fresh(self) -> bool:
        """True where the layer can be as ``nn.Linear`` draws it, and does not explain the costs.

        A model that was trained on regret may forecast the costs badly and decide well: its weights say that it is not
        fresh. Costs that are large beside the outputs need the share: by chance any forecast of them explains a little.
        """
        bound = self.layer.in_features**-0.5 * 1.001  # rounding
        drawn = all(bool((parameter.abs() <= bound).all()) for parameter in self.layer.parameters())
        error = float(((self.outputs - self.costs) ** 2).mean())
        return drawn and error > (1 - _LEARNT) * _deviation(self.costs) ** 2

    @property
    def deviation(self) -> float:
        """Of the costs; 1 where they never change, which leaves nothing to learn."""
        return self._spread(self.costs) or 1.0

    def _spread(self, rows: Tensor) -> float:
        """The deviation of (M, out_features) entries.

        Without a bias the weights have to make the mean, so that sizes take the place of deviations.
        """
        centred = self.layer.bias is not None
        if not self.typical:
            return _deviation(rows) if centred else float(rows.square().mean().sqrt())
        apart = (rows - rows.median(0).values).abs() if centred else rows.abs()
        return _NORMAL * float(apart.median()) or float(apart.mean())

    def standardise(self) -> float:
        """Give the outputs the costs' means, output by output, and a share of their deviation, which is returned."""
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


def _output_layer(model: nn.Module, features: Features, costs: Tensor, typical: bool = False) -> _OutputLayer | None:
    """The last ``nn.Linear`` that is called, where its outputs, reshaped at most, are the forecasts; None elsewhere."""
    called: list[tuple[nn.Linear, Tensor]] = []

    def note(layer: nn.Module, inputs: object, output: Tensor) -> None:
        assert isinstance(layer, nn.Linear)
        called[:] = [(layer, output.detach())]

    hooks = [part.register_forward_hook(note) for part in model.modules() if isinstance(part, nn.Linear)]
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            forecast = call(model, features)
    finally:
        model.train(was_training)
        for hook in hooks:
            hook.remove()
    if not called or forecast.shape != costs.shape or called[0][1].numel() != costs.numel():
        return None
    layer, output = called[0]
    usable = (forecast.isfinite() & costs.isfinite()).flatten(1).all(1)
    if not usable.any() or not torch.equal(output.reshape(costs.shape)[usable], forecast[usable]):
        return None
    shape = (-1, layer.out_features)
    return _OutputLayer(layer, forecast[usable].double().reshape(shape), costs[usable].double().reshape(shape), typical)


def _deviation(rows: Tensor) -> float:
    """Root mean square of the (M, n) entries' distances from their column's mean."""
    return float((rows - rows.mean(0)).square().mean().sqrt())
