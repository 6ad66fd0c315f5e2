"""``run_identity``: a description of a training run in plain values, by which a checkpoint recognises its run."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pear.problem import Model, Oracle, Penalty, Problem
from pear.problem.constraint_map import SIDES
from pear.problem.matrix import is_sparse_matrix, to_csr_matrix
from pear.problem.problem_fields import FIELDS
from pear.train.fit_config import FitConfig
from pear.train.sample_order import Order
from pear.train.samples.features import feature_tensors
from pear.train.samples.loader_samples import LoaderSamples
from pear.train.samples.sample_source import SampleSource
from pear.train.samples.stream_samples import StreamSamples
from pear.train.training_loss import problem_of_loss

MAY_CHANGE = ("max_epochs", "patience", "time_cap", "data_parallel")
"""The fields of ``FitConfig`` that a resumed run may change: they say when the run ends, but not how it trains."""

_NOT_COMPARED = {
    "solver",
    "on_failure",
    "problem",
}  # a resumed run may change the first two; the problem is compared by a digest


def run_identity(
    model: nn.Module,
    loss: Any,
    optimizer: torch.optim.Optimizer | None,
    train: SampleSource,
    validation: SampleSource | float | None,
    metric: Callable[..., float] | None,
    config: FitConfig,
    order: Order,
) -> dict[str, Any]:
    """Return a description of a call of ``fit`` by everything that its result depends on, except the first weights.

    The first weights are left out, because a resumed call passes a new model.

    Args:
        model: the model that is trained.
        loss: the loss that is minimised.
        optimizer: the optimizer of the user, or None.
        train: the training samples.
        validation: the validation samples, the share of ``train`` that is held out, or None for cross-validation.
        metric: the metric of the user, or None.
        config: the settings.
        order: the order of the samples in an epoch.
    """
    return {
        "model": model_identity(model),
        "loss": loss_identity(loss),
        "optimizer": optimizer_identity(optimizer, config),
        "data": {"train": data_identity(train), "validation": _validation_identity(validation)},
        "config": config_identity(config),
        "metric": None if metric is None else _function_identity(metric),
        "order": _function_identity(order),
    }


def model_identity(model: nn.Module) -> dict[str, Any]:
    """Return the class of a model, and the dtype and shape of each of its tensors."""
    return {"class": type(model).__qualname__, "tensors": tensor_identities(model.state_dict())}


def _validation_identity(validation: SampleSource | float | None) -> Any:
    """Return the identity of validation samples. A share to hold out, and None, are returned unchanged."""
    return validation if validation is None or isinstance(validation, (int, float)) else data_identity(validation)


def loss_identity(loss: Any) -> dict[str, Any]:
    """Return the class of a loss, its settings, and a digest of its problem.

    A setting is a number, a text or a bool that is an argument of the class and also an attribute of that name.
    ``solver`` and ``on_failure`` are left out, because a resumed run may change them. A loss that is no ``nn.Module``
    is described by its name alone.

    Example:
        >>> import pear
        >>> loss_identity(pear.PEARLoss(pear.Problem(lb=0, ub=1, n=2), smoothing=0.5))["settings"]
        {'smoothing': 0.5, 'injection': 0.05, 'guidance': 10.0, 'reduction': 'mean'}
    """
    if not isinstance(loss, nn.Module):
        return {"class": _function_identity(loss), "settings": {}, "problem": None}
    names = [name for name in inspect.signature(type(loss)).parameters if name not in _NOT_COMPARED]
    given = {name: getattr(loss, name) for name in names if hasattr(loss, name)}
    plain = {name: value for name, value in given.items() if isinstance(value, (bool, int, float, str))}
    return {"class": type(loss).__qualname__, "settings": plain, "problem": _problem_identity(problem_of_loss(loss))}


def optimizer_identity(optimizer: torch.optim.Optimizer | None, config: FitConfig) -> dict[str, Any]:
    """Return the class of the user's optimizer, its default settings and the settings of its parameter groups.

    None stands for the Adam that ``fit`` makes from the config. If the config halves learning rates, the rates of the
    groups are left out, because they change during the training.
    """
    if optimizer is None:
        return {"class": "Adam of fit"}
    lowered = {"lr"} if config.halve_after is not None else set()
    groups = [
        {name: group[name] for name in optimizer.defaults if name not in lowered} for group in optimizer.param_groups
    ]
    said = {"defaults": optimizer.defaults, "groups": {str(number): group for number, group in enumerate(groups)}}
    return {"class": type(optimizer).__qualname__, **_plain_identity(said)}


def config_identity(config: FitConfig) -> dict[str, Any]:
    """Return the settings that change how a run trains. A generator is replaced by its seed.

    Example:
        >>> sorted(config_identity(FitConfig()))[:3]
        ['batch_size', 'check_every', 'clip_norm']
    """
    seed = config.seed.initial_seed() if isinstance(config.seed, torch.Generator) else config.seed
    fields = {name: getattr(config, name) for name in config.__dataclass_fields__ if name not in MAY_CHANGE}
    return _plain_identity({**fields, "seed": seed})


def data_identity(samples: SampleSource) -> dict[str, Any]:
    """Return the number of samples, the shapes of one sample, and a digest of the data.

    For samples in memory, the digest covers features, costs, ids and weights, in their order, and forecasts of a base.
    For a DataLoader, it covers costs and ids in any order, because the loader may change features and shuffle samples
    in every pass. For Parquet files, it covers the samples that ``fit`` reads before the first step, the sizes of the
    row groups, and ``buffer``. Ids other than numbers, texts and tuples of these are left out.
    """
    look = samples.look()
    inputs = feature_tensors(look.features)
    said = {"samples": len(samples), "features": [list(part.shape[1:]) for part in inputs]}
    if isinstance(samples, LoaderSamples):
        rows = samples.costs.detach().cpu().flatten(1).contiguous().view(torch.uint8).numpy()
        names = sorted(map(str, _keys_for_identity(samples.keys)))
        found = identity_digest(np.sort(rows.view(f"V{rows.shape[1]}"), axis=0).tobytes(), names)
    elif isinstance(samples, StreamSamples):
        sizes = [group.rows for group in samples.source.groups]
        found = identity_digest(inputs, samples.costs, sizes, samples.source.buffer)
    else:
        weights = () if samples.weight is None else (samples.weight,)
        offsets = () if samples.offsets is None else tuple(samples.offsets.forecasts.values())
        found = identity_digest(inputs, samples.costs, _keys_for_identity(samples.keys), *weights, *offsets)
    return {**said, "costs": samples.costs.shape[-1], "fingerprint": found}


def identity_digest(*values: Any) -> str:
    """Return 16 hexadecimal digits of the SHA-256 checksum of numbers, texts, arrays, tensors and lists of these.

    Example:
        >>> identity_digest(torch.zeros(2)) == identity_digest(torch.zeros(2))
        True
        >>> identity_digest(torch.zeros(2)) == identity_digest(torch.zeros(1, 2))
        False
    """
    found = hashlib.sha256()
    _add_to_identity_digest(found, values)
    return found.hexdigest()[:16]


def _add_to_identity_digest(found: Any, value: Any) -> None:
    """Add a value with its type and shape to a checksum, an object of ``hashlib``."""
    if is_sparse_matrix(value):
        rows = to_csr_matrix(value)
        value = [rows.data, rows.indices, rows.indptr, list(rows.shape)]
    if isinstance(value, (tuple, list)):
        found.update(f"{len(value)} values".encode())
        for one in value:
            _add_to_identity_digest(found, one)
    elif isinstance(value, Tensor):
        flat = value.detach().cpu().contiguous()
        found.update(f"{flat.dtype} {tuple(flat.shape)}".encode())
        found.update(flat.reshape(-1).view(torch.uint8).numpy().data)
    elif hasattr(value, "__array__"):
        array = np.asarray(value)
        found.update(f"{array.dtype} {array.shape}".encode())
        found.update(array.tobytes())
    else:
        found.update(value if isinstance(value, bytes) else repr(value).encode())


def _keys_for_identity(keys: Any) -> list[Any]:
    """Return sample ids as a list; [] without ids, or if an id is not a number, a text or a tuple of these."""
    if keys is None:
        return []
    listed = keys.tolist() if isinstance(keys, Tensor) else list(keys)
    try:
        json.dumps(listed)
    except TypeError:
        return []
    return listed


def _problem_identity(problem: Any) -> str | None:
    """Return the number of variables of a problem and a digest of its data, as one text; None for anything else."""
    model, plain = (problem, problem.problem) if isinstance(problem, Model) else (None, problem)
    if not isinstance(plain, Problem):
        return None
    parts = [plain.sense, *([name, getattr(plain, name)] for name in (*FIELDS, "integer"))]
    if isinstance(plain, Oracle):
        parts.append(["oracle", _function_identity(plain.function), _problem_identity(plain.relaxation)])
    if model is not None and model.cost_map is not None:
        parts.append(["cost map", model.cost_map.M, model.cost_map.known])
    if model is not None and model.curvature_map is not None:
        parts.append(["curvature map", model.curvature_map.M, model.curvature_map.signs])
    if model is not None and model.constraint_map is not None:
        rows, recourse = model.constraint_map, model.recourse
        names = SIDES if isinstance(recourse, Penalty) else ("weights", "price")
        prices = [getattr(recourse, name, None) for name in names]
        maps = [rows.matrix(side) for side in (*SIDES, *rows.matrices)]
        parts.append(["constraint map", maps, type(recourse).__name__, prices])
    return f"{plain.n} variables, {identity_digest(parts)}"


def describe_identity_difference(other: Any, own: Any, where: str = "") -> str:
    """Return words for the first difference of the identity ``other`` from the expected identity ``own``.

    Both may be parts of identities. ``where`` then holds the names that lead to the parts.

    Example:
        >>> describe_identity_difference({"class": "Linear", "bias": True}, {"class": "Linear", "bias": False})
        'its bias is True, and False was expected'
    """
    if isinstance(other, dict) and isinstance(own, dict):
        for name in dict.fromkeys((*own, *other)):
            if other.get(name) != own.get(name):
                return describe_identity_difference(other.get(name), own.get(name), f"{where} {name}")
    return f"its{where} is {str(other)[:80]}, and {str(own)[:80]} was expected"


def tensor_identities(state: Mapping[str, Any]) -> dict[str, str]:
    """Return the dtype and shape of each tensor in a ``state_dict``, and the type of any other value, as texts."""

    def describe(value: Any) -> str:
        if isinstance(value, Tensor):
            return f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"
        return type(value).__name__

    return {name: describe(value) for name, value in state.items()}


def _function_identity(function: Any) -> str:
    """Return the name of a function, or of the class of any other object."""
    return str(getattr(function, "__qualname__", type(function).__qualname__))


def _plain_identity(value: Any) -> Any:
    """Return a setting as numbers, texts, lists and dicts, which a file can hold. A function becomes its name."""
    if isinstance(value, Mapping):
        return {str(name): _plain_identity(one) for name, one in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain_identity(one) for one in value]
    if isinstance(value, (Tensor, np.generic)):
        return value.tolist()
    return value if value is None or isinstance(value, (bool, int, float, str)) else _function_identity(value)
