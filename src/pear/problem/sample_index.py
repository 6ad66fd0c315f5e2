"""``sample_index``: the positions of samples, in any form that users pass, as an index of tensors."""

from __future__ import annotations

import torch
from torch import Tensor

from pear.problem.tensor_conversion import ArrayLike, tensor_shape, to_tensor


def sample_index(index: ArrayLike, batch: int, device: torch.device) -> slice | Tensor:
    """Convert the positions of samples to a slice or a tensor. Indexing with the result keeps the batch dimension.

    Args:
        index: an int, a slice, a list or tensor of ints, or a bool mask (batch,).
        batch: the number of samples.
        device: the device of the result.

    Raises:
        IndexError: a position is out of range, or ``index`` is of another kind.
    """
    if isinstance(index, slice):
        return index if (index.step or 1) > 0 else torch.tensor(range(batch)[index], dtype=torch.int64, device=device)
    rows = to_tensor("index", index).to(device)
    if rows.dtype == torch.bool and rows.ndim == 1:
        if len(rows) != batch:
            raise IndexError(f"the mask has {len(rows)} entries but the problem has {batch} samples")
        return rows
    if rows.ndim == 1 and len(rows) == 0:
        return slice(0, 0)
    if rows.ndim > 1 or rows.dtype == torch.bool or rows.is_floating_point():
        raise IndexError(
            "samples are selected by an int, a slice, a list of ints or a bool mask; "
            f"got shape {tensor_shape(rows)} of {str(rows.dtype).removeprefix('torch.')}"
        )
    rows = rows.to(torch.int64).reshape(-1)
    outside = rows[(rows < -batch) | (rows >= batch)]
    if len(outside):
        raise IndexError(f"sample {int(outside[0])} is out of range; the problem has {batch} samples")
    return rows
