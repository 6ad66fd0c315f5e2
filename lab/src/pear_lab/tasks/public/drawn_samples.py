"""Drawn samples in three parts, for training, validation and test, and the usual sizes of the parts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from pear.errors import ProblemError
from pear.tasks.task import Samples, Split

Array = NDArray[np.float64]

SIZES = (200, 100, 500)
"""The usual numbers of samples for training, for validation and for the test."""

RECOURSE_SIZES = (100, 60, 300)
"""The usual numbers of samples if right-hand sides are predicted, which need more solves for each regret."""

DEGENERATE = {"lava": "a vertex has thousands of neighbours here, and finding them takes longer than all other methods"}
"""The value of ``PublicTask.unsuited`` for tasks whose vertices are very degenerate."""


def cut_drawn_samples(features: Array, values: Array, sizes: Sequence[int] = SIZES) -> Split:
    """Cut samples, in the given order, into training, validation and test samples in float32.

    Args:
        features: (N, p) the features of N samples, or (N, k, p) if each of k predicted values has its own features.
        values: (N, k) the true values of the k predicted quantities.
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
