"""``Features``: the inputs of a model, which may have several inputs, and functions that read, join and map them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from pear.errors import ProblemError
from pear.train.samples.sample_rows import read_sample_rows

Features = Tensor | tuple[Tensor, ...] | dict[str, Tensor]
"""The features of N samples: a tensor (N, …) for a model with one input, or a tuple or a dict of such tensors."""


def call_on_features(model: nn.Module, features: Features) -> Any:
    """Return ``model(x)`` for features x; ``model(*x)`` if x is a tuple of inputs, ``model(**x)`` if it is a dict."""
    if isinstance(features, tuple):
        return model(*features)
    return model(**features) if isinstance(features, dict) else model(features)


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Make a context in which the model is in evaluation mode. In the end it has the mode that it had before."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


def map_features(change: Callable[[Tensor], Tensor], features: Features) -> Features:
    """Return the features after the function ``change`` was applied to the tensor of each input."""
    if isinstance(features, tuple):
        return tuple(change(part) for part in features)
    if isinstance(features, dict):
        return {name: change(part) for name, part in features.items()}
    return change(features)


def feature_tensors(features: Features) -> list[Tensor]:
    """Return a list with the tensor of each input."""
    if isinstance(features, Tensor):
        return [features]
    return list(features.values() if isinstance(features, dict) else features)


def read_features(value: Any, name: str) -> Features:
    """Convert the features of the user to tensors: one tensor for one input, a tuple or a dict of them for several.

    A dict, a tuple of tensors (or of arrays or tables) and a list of tensors have several inputs. Torch makes such
    lists when it collates samples.

    Args:
        value: the features.
        name: the name of the features in error messages.
    """
    if isinstance(value, Mapping):
        several: Features = {
            str(key): read_sample_rows(part, f"input {key!r} of {name}") for key, part in value.items()
        }
    elif _has_several_features(value):
        several = tuple(read_sample_rows(part, f"input {number} of {name}") for number, part in enumerate(value))
    else:
        return read_sample_rows(value, name)
    if not several:
        raise ProblemError(f"{name} must hold one input at least; got an empty {type(value).__name__}")
    return several


def _has_several_features(value: Any) -> bool:
    """Return whether a tuple or a list holds the features of several inputs."""
    if isinstance(value, tuple):
        return all(hasattr(part, "shape") for part in value)
    return isinstance(value, list) and len(value) > 0 and all(isinstance(part, Tensor) for part in value)


def join_features(parts: list[Features]) -> Features:
    """Return the features of several batches, one after the other, as those of one batch."""
    columns = [torch.cat(column) for column in zip(*map(feature_tensors, parts), strict=True)]
    if isinstance(parts[0], Tensor):
        return columns[0]
    return dict(zip(parts[0], columns, strict=True)) if isinstance(parts[0], dict) else tuple(columns)
