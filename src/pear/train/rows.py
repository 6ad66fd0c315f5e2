"""Samples that nothing can be learnt from, because the model predicts nothing finite from them."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from pear.errors import FailedSamplesWarning, ProblemError, listed


def unusable_rows(model: nn.Module, loss: Any, features: Tensor) -> Tensor | None:
    """(N,) bool: rows to leave out of training; None where all can be used.

    A loss may mask such a sample and give it a gradient of zero. The model still multiplies that by the features, and
    zero times NaN is NaN in every weight, so that the model must not see them. A model that knows what to do with them,
    because its predictions are finite, does see them.

    Args:
        model: maps features to costs; it is asked about the rows in question alone, in evaluation mode.
        loss: where it says ``on_failure="mask"`` the rows are left out with a warning.
        features: (N, p).

    Raises:
        ProblemError: there are such rows, and the loss does not mask; names them.
    """
    suspects = (~features.isfinite().flatten(1).all(1)).nonzero()[:, 0]
    if not len(suspects):
        return None
    was_training = model.training
    model.eval()
    with torch.no_grad():
        finite = model(features[suspects]).isfinite().flatten(1).all(1)
    model.train(was_training)
    bad = suspects[~finite]
    if not len(bad):
        return None
    named = listed("row", bad.tolist())
    message = f"{len(bad)} of {len(features)} rows of the training features hold NaN or infinity: {named}"
    if getattr(loss, "on_failure", "raise") != "mask":
        raise ProblemError(
            f"{message}. One of them makes every weight NaN: fill or drop them, or make the loss with "
            "on_failure='mask' to have them left out"
        )
    if len(bad) == len(features):
        raise ProblemError(f"{message}. No sample is left to train on")
    warnings.warn(f"{message}. They are left out of the training", FailedSamplesWarning, stacklevel=3)
    left_out = torch.zeros(len(features), dtype=torch.bool, device=features.device)
    left_out[bad] = True
    return left_out
