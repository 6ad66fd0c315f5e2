"""Cut drawn samples into the parts of a split, and x."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from pear.errors import ProblemError
from pear.tasks.task import Samples, Split
from pear_lab.tasks.splits import SharedLinear

Array = NDArray[np.float64]

SIZES = (200, 100, 500)
"""Samples to train on, to choose by and to test on, where a task has no other reason."""

RECOURSE_SIZES = (100, 60, 300)
"""The same where right-hand sides are predicted: what a decision comes to takes more solves."""

DEGENERATE = {"lava": "a vertex has thousands of neighbours here, and finding them takes longer than all other methods"}
"""``PublicTask.unsuited`` of tasks whose vertices are very degenerate."""


def cut_drawn_samples(features: Array, values: Array, sizes: Sequence[int] = SIZES) -> Split:
    """Cut samples, in the order they have, into train, validation and test, in float32.

    Args:
        features: (N, p), or (N, k, p) where every predicted value has features of its own.
        values: (N, k) what is predicted.
        sizes: three counts with a sum of N.

    Example:
        >>> [len(part.costs) for part in cut_drawn_samples(np.zeros((6, 2)), np.zeros((6, 3)), (3, 1, 2))]
        [3, 1, 2]
    """
    first, second, third = sizes
    if first + second + third != len(features):
        raise ProblemError(f"sizes {tuple(sizes)} must have the number of samples as their sum; got {len(features)}")
    X, C = (torch.from_numpy(np.asarray(one, dtype=np.float32)) for one in (features, values))
    cuts = (slice(0, first), slice(first, first + second), slice(first + second, None))
    return Split(*(Samples(X[cut], C[cut]) for cut in cuts))


def shared_linear_forecaster(features: int, values: int) -> nn.Module:
    """One linear model for all predicted values, in float32: (B, k, p) → (B, k) for any k."""
    return SharedLinear(features).float()
