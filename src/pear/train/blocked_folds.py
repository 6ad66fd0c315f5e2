"""``blocked_folds``: splits rows into blocks of consecutive rows, each of which is held out once."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

FOLDS = 5
"""The number of blocks of a cross-validation, and of the blocks that copies of a base forecast."""


def blocked_folds(count: int, folds: int, gap: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield two tensors for each fold: the row numbers to train on, and the held-out row numbers.

    The folds hold out blocks of consecutive rows, the last block first. Neighbouring rows are often alike, as days of
    one week are. If they are held out as a block, the training has not seen rows that are almost the same as the
    held-out rows. A single block of all rows is not held out, and nothing is yielded.

    Args:
        count: the number of rows.
        folds: the number of blocks; with fewer rows than that, each row is a block.
        gap: the number of rows on either side of a held-out block that are not trained on. It is needed if the targets
            of neighbouring rows overlap.

    Example:
        >>> [held_out.tolist() for _, held_out in blocked_folds(5, 2)]
        [[3, 4], [0, 1, 2]]
    """
    rows = torch.arange(count)
    for held_out in reversed(rows.tensor_split(min(folds, count))):
        if len(held_out) < count:
            kept = torch.ones(count, dtype=torch.bool)
            kept[max(int(held_out[0]) - gap, 0) : int(held_out[-1]) + gap + 1] = False
            yield rows[kept], held_out
