"""``blocked_folds``: splits rows into blocks of consecutive ones, each of which is held out once."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor


def blocked_folds(count: int, folds: int, gap: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the row numbers to train on and those held out, for each fold, the last rows first.

    Neighbouring rows often belong together, as days of one week do. Held out as a block, they do not tell the training
    about each other.

    Args:
        count: the number of rows.
        folds: the number of blocks; at most one for each row.
        gap: the number of rows next to a block, on either side, that are not trained on; for targets that overlap.

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
