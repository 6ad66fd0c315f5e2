"""Samples that nothing can be learnt from, because the model predicts nothing finite from them."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from pear.errors import FailedSamplesWarning, ProblemError, listed
from pear.train.samples.arrays import Features, call, mapped, nonfinite_rows


def unusable(model: nn.Module, features: Features) -> Tensor:
    """(N,) bool: samples with features that are not finite, from which the model predicts nothing finite.

    A loss may mask such a sample and give it a gradient of zero. The model still multiplies that by the features, and
    zero times NaN is NaN in every weight, so that the model must not see them. A model that knows what to do with them,
    because its predictions are finite, does see them.

    Args:
        model: maps features to costs; it is asked about the rows in question alone, in evaluation mode.
        features: (N, …), or several of them.
    """
    suspects = nonfinite_rows(features)
    if not bool(suspects.any()):
        return suspects
    was_training = model.training
    model.eval()
    with torch.no_grad():
        finite = call(model, mapped(lambda part: part[suspects], features)).isfinite().flatten(1).all(1)
    model.train(was_training)
    return suspects.index_put((suspects.nonzero()[:, 0],), ~finite)


def refuse_or_warn(bad: list[int], count: int, loss: Any, whose: str = "training") -> bool:
    """Whether these rows, of ``count``, are to be left out of training or validation; warns of them.

    Args:
        bad: row numbers.
        count: of all samples.
        loss: where it says ``on_failure="mask"`` the rows are left out.
        whose: "training" or "validation".

    Raises:
        ProblemError: there are such rows, and the loss does not mask; names them.
    """
    if not bad:
        return False
    message = f"{len(bad)} of {count} rows of the {whose} features hold NaN or infinity: {listed('row', bad)}"
    if not masks(loss):
        raise ProblemError(
            f"{message}. One of them makes every weight NaN: fill or drop them, or make the loss with "
            "on_failure='mask' to have them left out"
        )
    if len(bad) == count:
        raise ProblemError(f"{message}. No sample is left to train on" if whose == "training" else message)
    warnings.warn(f"{message}. They are left out of the {whose}", FailedSamplesWarning, stacklevel=4)
    return True


def check_costs(costs: Tensor, name: str, loss: Any) -> None:
    """Refuse costs (N, …) that are missing, unless the loss says ``on_failure="mask"``."""
    bad = nonfinite_rows(costs).nonzero()[:, 0].tolist()
    if bad and not masks(loss):
        raise ProblemError(
            f"{len(bad)} of {len(costs)} rows of the costs of {name} hold NaN or infinity: {listed('row', bad)}. Fill "
            "or drop them, or make the loss with on_failure='mask', which leaves such samples out"
        )


def masks(loss: Any) -> bool:
    """Whether the loss leaves failed samples out."""
    return getattr(loss, "on_failure", "raise") == "mask"
