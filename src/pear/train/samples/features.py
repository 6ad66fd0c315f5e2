"""Features, costs and sample ids as tensors: their conversion, and the rows that are not finite."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from pear.errors import ProblemError
from pear.train.samples.sample_rows import read_sample_rows

Features = Tensor | tuple[Tensor, ...] | dict[str, Tensor]
"""(N, …) for a model with one input; a tuple or a dict of such tensors for a model with several."""


def call_on_features(model: nn.Module, features: Features) -> Any:
    """Call ``model(x)``; for a tuple ``model(*x)``, for a dict ``model(**x)``."""
    if isinstance(features, tuple):
        return model(*features)
    return model(**features) if isinstance(features, dict) else model(features)


def map_features(change: Callable[[Tensor], Tensor], features: Features) -> Features:
    """Apply a function to the tensor of every input."""
    if isinstance(features, tuple):
        return tuple(change(part) for part in features)
    if isinstance(features, dict):
        return {name: change(part) for name, part in features.items()}
    return change(features)


def feature_tensors(features: Features) -> list[Tensor]:
    """Return the tensors of all inputs in a list."""
    if isinstance(features, Tensor):
        return [features]
    return list(features.values() if isinstance(features, dict) else features)


def read_features(value: Any, name: str) -> Features:
    """Convert the features of a model with one input or several.

    Several inputs are a dict, a tuple of tensors, arrays or tables, or a list of tensors, as torch collates them.

    Args:
        value: what the user gave.
        name: the name of the features, for error messages.
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
    if isinstance(value, tuple):
        return all(hasattr(part, "shape") for part in value)
    return isinstance(value, list) and len(value) > 0 and all(isinstance(part, Tensor) for part in value)


def join_features(parts: list[Features]) -> Features:
    """Join the features of several batches to those of one."""
    columns = [torch.cat(column) for column in zip(*map(feature_tensors, parts), strict=True)]
    if isinstance(parts[0], Tensor):
        return columns[0]
    return dict(zip(parts[0], columns, strict=True)) if isinstance(parts[0], dict) else tuple(columns)
