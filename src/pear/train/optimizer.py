"""``make_optimizer``: makes an Adam whose steps for the last layer have the scale of the costs."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pear.train.correction import Correction
from pear.train.fit_config import FitConfig
from pear.train.output_layer import find_output_layer
from pear.train.samples.features import Features

STANDARDISED = "the last layer began at the mean of the training costs with a tenth of their deviation"
"""The sentence in ``History.start`` if ``make_optimizer`` has changed the last layer."""


def make_optimizer(
    model: nn.Module,
    features: Features,
    costs: Tensor,
    config: FitConfig,
    keep: bool,
    typical: bool = False,
    decay: float = 0.0,
) -> torch.optim.Adam | torch.optim.AdamW:
    """Make an Adam (or AdamW, with decay) over all parameters, and rescale an untrained last layer to the costs.

    A step of Adam has the size of the learning rate, whatever the size of the gradient. The learning rate of the last
    layer, whose outputs are the forecasts, is therefore multiplied by the standard deviation of the costs. If costs are
    small, ε in Adam's denominator is made smaller, too. The same costs in another unit thus lead to the same forecasts
    in that unit. All layers have the same learning rate if ``config.start`` is "given", if it is "standardised" and the
    last layer is not rescaled, or if ``find_output_layer`` finds no last layer.

    Args:
        model: the model. Its last layer is rescaled in place if the layer is untrained, ``keep`` is False and
            ``config.start`` is not "given".
        features: (N, p), p features of each training sample, or a tuple or dict of such tensors.
        costs: (N, n) true costs of the training samples.
        config: the settings, with the learning rate and the start.
        keep: whether the weights must stay as they are, because they are trained, or because a checkpoint replaces
            them.
        typical: whether the standard deviation is that of typical costs (``OutputLayer``). True for a loss of
            decisions, for which a few very large costs must not matter; False for the squared error, which must also
            reach the very large costs.
        decay: the weight decay of each step, as a share of the learning rate; with 0 the optimizer is a plain Adam.

    Returns:
        The optimizer. A last layer that ``find_output_layer`` finds and the rest of the model are separate parameter
        groups. The groups depend only on the architecture of the model and ``config.start``, so that the saved state of
        one optimizer fits that of a later run.
    """
    end = None if config.start == "given" else find_output_layer(model, features, costs, typical)
    kind = torch.optim.AdamW if decay else torch.optim.Adam
    plain = all(parameter.is_cpu and parameter.is_floating_point() for parameter in model.parameters())
    fused = True if plain else None  # one compiled step on the CPU, instead of a dozen operations for each parameter
    if end is None:
        optimizer = kind(model.parameters(), lr=config.learning_rate, weight_decay=decay, fused=fused)
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
    optimizer = kind(groups, lr=config.learning_rate, weight_decay=decay, fused=fused)
    shrink_optimizer_eps(optimizer, scale, costs.dtype)
    return optimizer


def shrink_optimizer_eps(optimizer: torch.optim.Optimizer, scale: float, dtype: torch.dtype) -> None:
    """Make ε in Adam's denominator small compared with the gradients if the size of the costs, ``scale``, is small."""
    least = float(torch.finfo(dtype).tiny) ** 0.5  # squares of smaller gradients are lost
    for group in optimizer.param_groups:
        # gradients in the weights of hidden layers fall with the square of the costs' size under a squared error
        group["eps"] = max(group["eps"] * min(1.0, scale) ** 2, least)
