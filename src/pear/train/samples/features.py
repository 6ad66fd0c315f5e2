"""Features, costs and sample ids as tensors: their conversion, and the rows that are not finite."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pear.errors import FailedSamplesWarning, ProblemError
from pear.problem.array_conversion import to_tensor
from pear.problem.row_pairing import check_paired_rows
from pear.wording import list_positions

Features = Tensor | tuple[Tensor, ...] | dict[str, Tensor]
"""(N, …) for a model with one input; a tuple or a dict of such tensors for a model with several."""

Keys = Tensor | list[Hashable]
"""(N,) sample ids: row numbers, or names."""


def call_model(model: nn.Module, features: Features) -> Any:
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


def input_tensors(features: Features) -> list[Tensor]:
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
        several: Features = {str(key): read_rows(part, f"input {key!r} of {name}") for key, part in value.items()}
    elif _is_several_inputs(value):
        several = tuple(read_rows(part, f"input {number} of {name}") for number, part in enumerate(value))
    else:
        return read_rows(value, name)
    if not several:
        raise ProblemError(f"{name} must hold one input at least; got an empty {type(value).__name__}")
    return several


def read_rows(value: Any, name: str) -> Tensor:
    """Convert to a tensor with a row for each sample; a Series becomes one column.

    Raises:
        ProblemError: there are no numbers in it; names the column of a table.
    """
    # pandas, which need not be installed, has iloc
    tensor = (
        torch.from_numpy(_frame_to_array(value, name)) if hasattr(value, "iloc") else to_tensor(name, value).detach()
    )
    if not tensor.ndim:
        raise ProblemError(f"{name} must have a row for each sample; got a single number")
    return tensor


def read_keys(value: Any, count: int, name: str) -> Keys:
    """Convert N sample ids: whole numbers to a tensor, anything else to a list.

    Raises:
        ProblemError: they are not ids, not as many as samples, or one comes twice.
    """
    ids = value.tolist() if hasattr(value, "tolist") else list(value)
    if any(isinstance(one, (list, float)) for one in ids):
        kind = f"an array of shape {tuple(value.shape)}" if hasattr(value, "shape") else repr(ids[0])
        raise ProblemError(
            f"the third entry of {name} must be sample ids, a whole number or a name for each; got {kind}. Several "
            "inputs of a model go together: ((a, b), costs)"
        )
    if len(ids) != count:
        raise ProblemError(f"{name} must have an id for each sample: expected {count}, got {len(ids)}")
    _check_distinct(ids, name)
    return torch.tensor(ids) if all(isinstance(one, int) for one in ids) else ids


def _check_distinct(ids: list[Hashable], name: str) -> None:
    """Raise ProblemError where an id occurs twice."""
    if len(set(ids)) == len(ids):
        return
    seen: set[Hashable] = set()
    twice = next(one for one in ids if one in seen or seen.add(one))  # type: ignore[func-returns-value]
    raise ProblemError(
        f"the sample ids of {name} must be distinct, and {twice!r} comes twice; number the samples, or leave the ids "
        "away (as with a sampler that draws with replacement)"
    )


def check_sample_rows(features: Any, costs: Any, ids: Any = None, sample_weight: Any = None) -> None:
    """Raise ProblemError where features of one input or several, costs, ids and weights have indices that differ."""
    if isinstance(features, Mapping):
        inputs = {f"input {name!r}": part for name, part in features.items()}
    elif isinstance(features, (tuple, list)):
        inputs = {f"input {number}": part for number, part in enumerate(features)}
    else:
        inputs = {"features": features}
    check_paired_rows({**inputs, "costs": costs, "ids": ids, "sample_weight": sample_weight})


def check_weight_rows(data: Any, weight: Any, name: str) -> None:
    """Raise ProblemError where weights have an index that differs from that of the samples, or samples have none.

    Args:
        data: the samples, as ``fit`` takes them.
        weight: (N,) weights, or None.
        name: the name of the weights in messages.
    """
    if weight is None:
        return
    if data is None or isinstance(data, (bool, int, float)):
        raise ProblemError(f"{name} came without samples; pass validation=(X, C), whose samples it weighs")
    if isinstance(data, (tuple, list)) and len(data) > 1:
        check_sample_rows(data[0], data[1], None, weight)


def nonfinite_rows(features: Features) -> Tensor:
    """Return which samples have NaN or infinity in an input, (N,) bool."""
    marks = [~part.isfinite() for part in input_tensors(features)]
    return torch.stack([mark.flatten(1).any(1) if mark.ndim > 1 else mark for mark in marks]).any(0)


def find_unusable(model: nn.Module, features: Features) -> Tensor:
    """Find samples whose features are not finite and from which the model predicts nothing finite.

    A loss may mask such a sample and give it a gradient of zero. The model still multiplies that zero by the features,
    and zero times NaN is NaN in every weight, so that the model must not be called with such a sample. A model that
    handles missing features predicts finite costs; its samples stay.

    Args:
        model: maps features to costs; it is called with the rows in question alone, in evaluation mode.
        features: (N, …), or a tuple or dict of such tensors.

    Returns:
        (N,) bool.
    """
    suspects = nonfinite_rows(features)
    if not bool(suspects.any()):
        return suspects
    was_training = model.training
    model.eval()
    with torch.no_grad():
        finite = call_model(model, map_features(lambda part: part[suspects], features)).isfinite().flatten(1).all(1)
    model.train(was_training)
    return suspects.index_put((suspects.nonzero()[:, 0],), ~finite)


def refuse_or_warn(bad: list[int], count: int, loss: Any, whose: str = "training") -> bool:
    """Warn of unusable rows where the loss masks failures, otherwise raise; returns whether there are such rows.

    Args:
        bad: the numbers of the unusable rows.
        count: the number of all samples.
        loss: the loss; with ``on_failure="mask"`` the rows are left out.
        whose: "training" or "validation".

    Raises:
        ProblemError: there are such rows, and the loss does not mask; names them.
    """
    if not bad:
        return False
    message = f"{len(bad)} of {count} rows of the {whose} features hold NaN or infinity: {list_positions('row', bad)}"
    if not masks_failures(loss):
        raise ProblemError(
            f"{message}. One of them makes every weight NaN: fill or drop them, or make the loss with "
            "on_failure='mask' to have them left out"
        )
    if len(bad) == count:
        raise ProblemError(f"{message}. No sample is left to train on" if whose == "training" else message)
    warnings.warn(f"{message}. They are left out of the {whose}", FailedSamplesWarning, stacklevel=4)
    return True


def masks_failures(loss: Any) -> bool:
    """Whether the loss leaves failed samples out (``on_failure="mask"``)."""
    return getattr(loss, "on_failure", "raise") == "mask"


def check_costs(costs: Tensor, name: str, loss: Any) -> None:
    """Raise ProblemError where costs (N, …) are not finite, unless the loss has ``on_failure="mask"``."""
    bad = nonfinite_rows(costs).nonzero()[:, 0].tolist()
    if bad and not masks_failures(loss):
        raise ProblemError(
            f"{len(bad)} of {len(costs)} rows of the costs of {name} hold NaN or infinity: "
            f"{list_positions('row', bad)}. Fill or drop them, or make the loss with on_failure='mask', which "
            "leaves such samples out"
        )


def _is_several_inputs(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(hasattr(part, "shape") for part in value)
    return isinstance(value, list) and len(value) > 0 and all(isinstance(part, Tensor) for part in value)


def _frame_to_array(value: Any, name: str) -> np.ndarray[Any, Any]:
    """Convert a DataFrame to an array (N, columns), or a Series to (N, 1); missing values become NaN."""
    columns = list(value.items()) if value.ndim == 2 else [(value.name, value)]
    for column, content in columns:
        if getattr(content.dtype, "kind", "O") not in "biuf":
            raise ProblemError(
                f"column {column!r} of {name} holds {content.dtype}, and a model takes numbers; encode it, for example "
                "by pandas.get_dummies, or drop it"
            )
    parts = [content.to_numpy(dtype=float, na_value=np.nan) for _, content in columns]
    return np.stack(parts, 1) if parts else np.zeros((len(value), 0))
