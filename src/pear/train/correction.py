"""``Correction``: a network whose outputs are added to the forecasts of another forecaster, the base."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from pear.errors import ProblemError
from pear.train.base_forecast import base_forecast_for_fit, base_forecast_for_validation
from pear.train.history import History, join_history_notes
from pear.train.model_weights import load_model_weights
from pear.train.samples.memory_samples import MemorySamples
from pear.train.samples.sample_source import read_sample_source


class Correction(nn.Module):
    """A network that corrects the forecasts of another forecaster, the base.

    The corrected forecast is base forecast + scale · network(features). The last layer of the network is set to zero,
    so that the first forecasts are exactly those of the base.

    Args:
        network: a network from features (B, …) to k values, (B, k), that contains an ``nn.Linear``. The last
            ``nn.Linear`` is set to zero, in place.
        scale: the size of a typical error of the base. An output of 1 then corrects an error of that size, whatever the
            unit of the costs.
        optional: whether a race may leave the base out.

    Attributes:
        alone: whether the base is left out. The forecast is then network(features), in the unit of the costs.

    Raises:
        ProblemError: the network contains no ``nn.Linear``.

    Example:
        >>> corrected = Correction(nn.Linear(2, 3), scale=1.0)
        >>> corrected(torch.ones(1, 2), torch.tensor([[5.0, 6.0, 7.0]])).tolist()
        [[5.0, 6.0, 7.0]]
    """

    scale: Tensor

    def __init__(self, network: nn.Module, scale: float = 1.0, optional: bool = False) -> None:
        super().__init__()
        self.optional, self.alone = optional, False
        last = [part for part in network.modules() if isinstance(part, nn.Linear)][-1:]
        if not last:
            raise ProblemError(
                "a correction of a base forecaster begins at zero, which needs a last layer that is a torch.nn.Linear; "
                f"{type(network).__name__} has none"
            )
        with torch.no_grad():
            for parameter in last[0].parameters():
                parameter.zero_()
        self.network = network
        self.register_buffer("scale", torch.tensor(float(scale)))

    def forward(self, features: Tensor, offset: Tensor) -> Tensor:
        """Return k corrected forecasts, (B, k), for features (B, …) and base forecasts ``offset`` (B, k)."""
        correction: Tensor = self.network(features)
        if self.alone:
            return correction
        return offset + self.scale.to(correction) * correction

    def leave_base_out(self, weights: Mapping[str, Any]) -> None:
        """Give the network these weights, with which it forecasts costs, and use the base no longer."""
        load_model_weights(self.network, weights)
        self.alone = True

    def output_layer(self) -> nn.Linear:
        """Return the last layer of the network. Its outputs, times ``scale``, are added to the base forecasts.

        Raises:
            ProblemError: the last layer is not an ``nn.Linear``.
        """
        last = list(self.network.modules())[-1]
        if not isinstance(last, nn.Linear):
            raise ProblemError(f"the last layer of a correction must be a torch.nn.Linear; got {type(last).__name__}")
        return last

    def check_start(self, features: Tensor) -> None:
        """Raise ProblemError unless the network returns exactly zero for these features (B, …)."""
        with torch.no_grad():
            if bool(self.network(features).any()):
                raise ProblemError(
                    "a correction of a base forecaster must begin at zero, and the module predicts something else "
                    "although its last torch.nn.Linear was set to zero; let that layer give the forecasts"
                )


def correction_scale(offset: Tensor, costs: Tensor) -> float:
    """Return the mean absolute difference of base forecasts ``offset`` from true costs, both (N, k); 1 if it is zero.

    Entries whose error is not finite do not count.
    """
    errors = (costs - offset).abs()
    return float(errors[errors.isfinite()].mean().nan_to_num()) or 1.0


def fit_correction(
    base: Any, model: nn.Module, train: Any, validation: Any, fit_corrected: Callable[..., History], gap: int = 0
) -> History:
    """Train a model to correct a base: the forecasts become base(x) + model(x), in the unit of the costs.

    Args:
        base: the forecaster that is corrected.
        model: the model, whose last layer is set to zero before the training.
        train: the training samples.
        validation: the validation samples, the share of ``train`` to hold out, or None.
        fit_corrected: a function that trains the ``Correction`` of the model. It gets the ``Correction``, the training
            samples, and the validation samples, share or None. The features of these samples are pairs (features,
            forecasts of the base).
        gap: as in ``make_base_forecast``.

    Returns:
        The history from ``fit_corrected``. Its note also says where the forecasts of the base come from.
    """
    samples, features = _read_correction_samples(train, "train", model)
    offsets, made = base_forecast_for_fit(base, features, samples.costs, gap)
    corrected = Correction(model, correction_scale(offsets, samples.costs)).to(samples.costs)
    last = corrected.output_layer()
    corrected.check_start(features[:1])
    train = MemorySamples(samples.all._replace(features=(features, offsets)), offsets=made.offsets)
    if not (validation is None or isinstance(validation, (bool, int, float))):
        held_out, features = _read_correction_samples(validation, "validation", model)
        offsets = base_forecast_for_validation(made.base, features, held_out.costs)
        validation = MemorySamples(held_out.all._replace(features=(features, offsets)))
    history = fit_corrected(corrected, train, validation)
    with torch.no_grad():
        for parameter in last.parameters():
            parameter.mul_(corrected.scale.to(parameter))
    history.note = join_history_notes(made.note, history.note)
    return history


def _read_correction_samples(data: Any, name: str, model: nn.Module) -> tuple[MemorySamples, Tensor]:
    """Read samples for a training with ``base=``, and return the samples and their features (N, …).

    Raises:
        ProblemError: the samples are not in memory, or the model has several inputs.
    """
    samples = read_sample_source(data, name, model)
    if not isinstance(samples, MemorySamples) or not isinstance(samples.features, Tensor):
        raise ProblemError(f"base= needs samples in memory with one input; {name} is something else")
    return samples, samples.features
