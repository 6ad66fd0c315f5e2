"""The start of a run: rescales an untrained last layer to the costs, and makes an Adam with steps of that scale."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pear.train.correction import Correction
from pear.train.fit_config import FitConfig
from pear.train.output_layer import find_output_layer
from pear.train.samples.features import Features

STANDARDISED = "the last layer began at the mean of the training costs with a tenth of their deviation"
"""What ``History.start`` says where ``make_optimizer`` has changed the last layer."""


def make_optimizer(
    model: nn.Module,
    features: Features,
    costs: Tensor,
    config: FitConfig,
    keep: bool,
    typical: bool = False,
    decay: float = 0.0,
) -> torch.optim.Adam:
    """Make an Adam over all parameters, and put a fresh last layer on the scale of the costs.

    A step of Adam has the size of the learning rate, whatever the size of the gradient. The rate of the last layer is
    therefore multiplied by the costs' deviation. Where costs are small, the constant in Adam's denominator shrinks with
    the gradients. Costs in another unit thus lead to the same forecasts in that unit.

    Args:
        model: its last layer is changed in place where that is fresh, ``keep`` is False and the start is not "given".
        features: (N, p) of the training set, or a tuple or dict of such tensors.
        costs: (N, n) true costs.
        config: holds the learning rate and the start.
        keep: True where the weights must stay: they are trained, or a checkpoint replaces them.
        typical: True for a loss of decisions, where a few very large costs must not dominate the deviation. A squared
            error has to reach those costs, too, and takes the root of the mean square.
        decay: the weight decay, as a share of the learning rate; with 0 the optimizer is a plain Adam.

    Returns:
        An optimizer with a parameter group of its own for the last layer, unless that is the whole model. The groups
        depend on the model's architecture alone, so that the state of one run fits the next.
    """
    end = None if config.start == "given" else find_output_layer(model, features, costs, typical)
    kind = torch.optim.AdamW if decay else torch.optim.Adam
    if end is None:
        optimizer = kind(model.parameters(), lr=config.learning_rate, weight_decay=decay)
        if isinstance(model, Correction):  # whose gradients have the size of the errors that it corrects
            shrink_optimizer_eps(optimizer, float(model.scale), costs.dtype)
        return optimizer
    scale = end.deviation if config.start in ("race", "mse") else 1.0
    if not keep and end.is_fresh():
        scale = end.standardise()
    own = {id(parameter) for parameter in end.layer.parameters()}
    rest = [parameter for parameter in model.parameters() if id(parameter) not in own]
    groups = [{"params": rest}] if rest else []
    groups.append({"params": list(end.layer.parameters()), "lr": config.learning_rate * scale})  # type: ignore[dict-item]
    if decay:  # AdamW multiplies the decay by the learning rate, which has the unit of the costs
        groups[-1]["weight_decay"] = decay / scale  # type: ignore[assignment]
    optimizer = kind(groups, lr=config.learning_rate, weight_decay=decay)
    shrink_optimizer_eps(optimizer, scale, costs.dtype)
    return optimizer


def shrink_optimizer_eps(optimizer: torch.optim.Adam, scale: float, dtype: torch.dtype) -> None:
    """Make the constant in Adam's denominator small compared with the gradients if costs are small."""
    least = float(torch.finfo(dtype).tiny) ** 0.5  # squares of smaller gradients are lost
    for group in optimizer.param_groups:
        # gradients in the weights of hidden layers fall with the square of the costs' size under a squared error
        group["eps"] = max(group["eps"] * min(1.0, scale) ** 2, least)
