"""``fit_correction``: trains a model as the correction of a forecaster that the user already has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from pear.errors import ProblemError
from pear.train.base_forecast import Correction, as_offsets, forecast_of, offsets_for_fit, typical_error
from pear.train.history import History
from pear.train.samples import as_samples
from pear.train.samples.memory_samples import MemorySamples


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
    samples, features = _read_corrected(train, "train", model)
    offsets, made = offsets_for_fit(base, features, samples.costs)
    corrected = Correction(model, typical_error(offsets, samples.costs)).to(samples.costs)
    last = corrected.output_layer()
    corrected.check_start(features[:1])
    train = MemorySamples(samples.all._replace(features=(features, offsets)))
    if not (validation is None or isinstance(validation, (bool, int, float))):
        held_out, features = _read_corrected(validation, "validation", model)
        values = forecast_of(made.base, features)
        shape = held_out.costs.shape[0], held_out.costs.shape[1]
        beside = torch.from_numpy(as_offsets(values, shape, "forecasts of the base")).to(held_out.costs)
        validation = MemorySamples(held_out.all._replace(features=(features, beside)))
    history = fit_corrected(corrected, train, validation)
    with torch.no_grad():
        for parameter in last.parameters():
            parameter.mul_(corrected.scale.to(parameter))
    history.note = "; ".join(filter(None, (history.note, made.note)))
    return history


def _read_corrected(data: Any, name: str, model: nn.Module) -> tuple[MemorySamples, Tensor]:
    """Read the samples for training with ``base=``, and return them with their features.

    Raises:
        ProblemError: the samples are not in memory, or the model has several inputs.
    """
    samples = as_samples(data, name, model)
    if not isinstance(samples, MemorySamples) or not isinstance(samples.features, Tensor):
        raise ProblemError(f"base= needs samples in memory with one input; {name} is something else")
    return samples, samples.features
