"""Samples that training cannot use, because their features or costs are not finite."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from pear.errors import FailedSamplesWarning, ProblemError
from pear.train.samples.features import Features, call_on_features, feature_tensors, map_features
from pear.wording import list_positions


def nonfinite_samples(features: Features) -> Tensor:
    """Return which samples have NaN or infinity in an input, (N,) bool."""
    marks = [~part.isfinite() for part in feature_tensors(features)]
    return torch.stack([mark.flatten(1).any(1) if mark.ndim > 1 else mark for mark in marks]).any(0)


def find_unusable_samples(model: nn.Module, features: Features) -> Tensor:
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
    suspects = nonfinite_samples(features)
    if not bool(suspects.any()):
        return suspects
    was_training = model.training
    model.eval()
    with torch.no_grad():
        finite = (
            call_on_features(model, map_features(lambda part: part[suspects], features)).isfinite().flatten(1).all(1)
        )
    model.train(was_training)
    return suspects.index_put((suspects.nonzero()[:, 0],), ~finite)


def refuse_unusable_samples(bad: list[int], count: int, loss: Any, whose: str = "training") -> bool:
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
    """Whether the loss leaves failed samples out (``on_failure="mask"``)."""
    return getattr(loss, "on_failure", "raise") == "mask"


def check_usable_costs(costs: Tensor, name: str, loss: Any) -> None:
    """Raise ProblemError where costs (N, …) are not finite, unless the loss has ``on_failure="mask"``."""
    bad = nonfinite_samples(costs).nonzero()[:, 0].tolist()
    if bad and not masks_unusable_samples(loss):
        raise ProblemError(
            f"{len(bad)} of {len(costs)} rows of the costs of {name} hold NaN or infinity: "
            f"{list_positions('row', bad)}. Fill or drop them, or make the loss with on_failure='mask', which "
            "leaves such samples out"
        )
