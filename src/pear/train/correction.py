"""``Correction``: a network whose outputs are added to the forecasts of a base forecaster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from pear.errors import ProblemError
from pear.train.base_forecast import base_forecast_for_fit, forecast_by_base, shape_base_forecast
from pear.train.history import History
from pear.train.samples.memory_samples import MemorySamples
from pear.train.samples.sample_source import read_sample_source


class Correction(nn.Module):
    """A network whose outputs are added to the forecasts of a base; it begins at exactly zero.

    Args:
        network: from features (B, …) to values (B, k); its last layer is an ``nn.Linear``, which is set to zero.
        scale: the size of a typical error of the base. Outputs are multiplied by it, so that a step of training has
            the same effect in every unit of the costs.

    Raises:
        ProblemError: no layer can be set to zero.

    Example:
        >>> corrected = Correction(nn.Linear(2, 3), scale=1.0)
        >>> corrected(torch.ones(1, 2), torch.tensor([[5.0, 6.0, 7.0]])).tolist()
        [[5.0, 6.0, 7.0]]
    """

    begins_at_zero = True
    scale: Tensor

    def __init__(self, network: nn.Module, scale: float = 1.0) -> None:
        super().__init__()
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
        """Features (B, …) and forecasts of the base (B, k) → (B, k)."""
        correction: Tensor = self.network(features)
        return offset + self.scale.to(correction) * correction

    def output_layer(self) -> nn.Linear:
        """The layer whose outputs are the correction, in units of ``scale``.

        Raises:
            ProblemError: it is no ``nn.Linear``, or something comes after it.
        """
        last = list(self.network.modules())[-1]
        if not isinstance(last, nn.Linear):
            raise ProblemError(f"the last layer of a correction must be a torch.nn.Linear; got {type(last).__name__}")
        return last

    def check_start(self, features: Tensor) -> None:
        """Raise ProblemError unless the correction of these features is exactly zero."""
        with torch.no_grad():
            if bool(self.network(features).any()):
                raise ProblemError(
                    "a correction of a base forecaster must begin at zero, and the module predicts something else "
                    "although its last torch.nn.Linear was set to zero; let that layer give the forecasts"
                )


def correction_scale(offset: Tensor, costs: Tensor) -> float:
    """The mean absolute error of forecasts (N, k) where both are finite; 1 where it is zero."""
    errors = (costs - offset).abs()
    return float(errors[errors.isfinite()].mean().nan_to_num()) or 1.0


def fit_correction(
    base: Any, model: nn.Module, train: Any, validation: Any, fit_corrected: Callable[..., History]
) -> History:
    """Train a model as a correction of a base.

    Args:
        base: the forecaster that is corrected.
        model: the model, whose last layer is set to zero.
        train: the training samples.
        validation: None, the share to hold out, or samples of their own.
        fit_corrected: trains a ``Correction`` on samples and validation samples.
    """
    samples, features = _read_correction_samples(train, "train", model)
    offsets, made = base_forecast_for_fit(base, features, samples.costs)
    corrected = Correction(model, correction_scale(offsets, samples.costs)).to(samples.costs)
    last = corrected.output_layer()
    corrected.check_start(features[:1])
    train = MemorySamples(samples.all._replace(features=(features, offsets)))
    if not (validation is None or isinstance(validation, (bool, int, float))):
        held_out, features = _read_correction_samples(validation, "validation", model)
        values = forecast_by_base(made.base, features)
        shape = held_out.costs.shape[0], held_out.costs.shape[1]
        beside = torch.from_numpy(shape_base_forecast(values, shape, "forecasts of the base")).to(held_out.costs)
        validation = MemorySamples(held_out.all._replace(features=(features, beside)))
    history = fit_corrected(corrected, train, validation)
    with torch.no_grad():
        for parameter in last.parameters():
            parameter.mul_(corrected.scale.to(parameter))
    history.note = "; ".join(filter(None, (history.note, made.note)))
    return history


def _read_correction_samples(data: Any, name: str, model: nn.Module) -> tuple[MemorySamples, Tensor]:
    """Read the samples for training with ``base=``, and return them with their features.

    Raises:
        ProblemError: the samples are not in memory, or the model has several inputs.
    """
    samples = read_sample_source(data, name, model)
    if not isinstance(samples, MemorySamples) or not isinstance(samples.features, Tensor):
        raise ProblemError(f"base= needs samples in memory with one input; {name} is something else")
    return samples, samples.features
