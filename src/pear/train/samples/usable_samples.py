"""Functions that find samples with features or costs that are not finite, and leave them out or refuse them."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from pear.errors import FailedSamplesWarning, ProblemError
from pear.train.samples.features import Features, call_on_features, evaluation_mode, feature_tensors, map_features
from pear.train.samples.sample_rows import Keys
from pear.wording import list_positions


def nonfinite_samples(features: Features) -> Tensor:
    """Return a mask (N,) of the samples that have NaN or infinity in any input."""
    marks = [~part.isfinite() for part in feature_tensors(features)]
    return torch.stack([mark.flatten(1).any(1) if mark.ndim > 1 else mark for mark in marks]).any(0)


def find_unusable_samples(model: nn.Module, features: Features) -> Tensor:
    """Return which samples have features that are not finite and lead to forecasts that are not finite.

    Even if a loss gives such a sample a gradient of zero, the model multiplies this zero by NaN or infinity in the
    features, and every weight becomes NaN. Training must therefore leave the sample out. A model that can handle
    missing features forecasts finite costs, and its samples can be used.

    Args:
        model: maps features to costs. It is called in evaluation mode, only on samples whose features are not finite.
        features: (N, …), or a tuple or dict of such tensors.

    Returns:
        A mask (N,) of the samples that cannot be used.
    """
    suspects = nonfinite_samples(features)
    if not bool(suspects.any()):
        return suspects
    with evaluation_mode(model), torch.no_grad():
        forecast = call_on_features(model, map_features(lambda part: part[suspects], features))
    return suspects.index_put((suspects.nonzero()[:, 0],), ~forecast.isfinite().flatten(1).all(1))


def refuse_unusable_samples(bad: list[int], count: int, loss: Any, whose: str = "training") -> bool:
    """Refuse samples that cannot be used, or warn that they are left out.

    Args:
        bad: the row numbers of the samples that cannot be used.
        count: the number of all samples.
        loss: the loss. If it has ``on_failure="mask"``, the samples are left out.
        whose: "training" or "validation".

    Returns:
        Whether there are samples to leave out.

    Raises:
        ProblemError: a sample cannot be used, and either the loss does not mask failed samples or no sample is left.
    """
    if not bad:
        return False
    message = f"{len(bad)} of {count} rows of the {whose} features hold NaN or infinity: {list_positions('row', bad)}"
    if not masks_unusable_samples(loss):
        raise ProblemError(
            f"{message}. One of them makes every weight NaN: fill or drop them, or make the loss with "
            "on_failure='mask' to have them left out"
        )
    if len(bad) == count:
        raise ProblemError(f"{message}. No sample is left to train on" if whose == "training" else message)
    warnings.warn(f"{message}. They are left out of the {whose}", FailedSamplesWarning, stacklevel=4)
    return True


def masks_unusable_samples(loss: Any) -> bool:
    """Return whether the loss has ``on_failure="mask"``, so that failed samples are left out."""
    return getattr(loss, "on_failure", "raise") == "mask"


def check_usable_costs(costs: Tensor, name: str, loss: Any, keys: Keys | None = None) -> None:
    """Raise ProblemError if costs are not finite, unless the loss leaves failed samples out.

    Args:
        costs: (N, n) the costs.
        name: the name of the samples in the message.
        loss: the loss.
        keys: the N ids of the samples, by which the message names them; None to name their rows.
    """
    bad = nonfinite_samples(costs).nonzero()[:, 0].tolist()
    if bad and not masks_unusable_samples(loss):
        ids = keys.tolist() if isinstance(keys, Tensor) else keys
        named = list_positions("row", bad) if ids is None else list_positions("sample", [str(ids[row]) for row in bad])
        raise ProblemError(
            f"{len(bad)} of {len(costs)} rows of the costs of {name} hold NaN or infinity: {named}. Fill or drop them, "
            "or make the loss with on_failure='mask', which leaves such samples out"
        )
