"""Samples that cannot be used for training because their features or costs are not finite."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from pear.errors import FailedSamplesWarning, ProblemError, list_positions
from pear.train.samples.features import Features, call_model, map_features, nonfinite_rows


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


def check_costs(costs: Tensor, name: str, loss: Any) -> None:
    """Raise ProblemError where costs (N, …) are not finite, unless the loss has ``on_failure="mask"``."""
    bad = nonfinite_rows(costs).nonzero()[:, 0].tolist()
    if bad and not masks_failures(loss):
        raise ProblemError(
            f"{len(bad)} of {len(costs)} rows of the costs of {name} hold NaN or infinity: "
            f"{list_positions('row', bad)}. Fill or drop them, or make the loss with on_failure='mask', which "
            "leaves such samples out"
        )


def masks_failures(loss: Any) -> bool:
    """Return whether the loss leaves failed samples out (``on_failure="mask"``)."""
    return getattr(loss, "on_failure", "raise") == "mask"
