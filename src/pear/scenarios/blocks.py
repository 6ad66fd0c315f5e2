"""Blocks of matrices. A matrix made of blocks is sparse if all samples share it, and dense otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from pear.problem.matrix import to_csr_matrix


class Block(NamedTuple):
    """A block of a larger matrix.

    Attributes:
        matrix: the entries, dense or sparse: r rows and c columns, (r, c), or (N, r, c) if N samples have their own.
        rows: (r,) the numbers of the block's rows in the larger matrix.
        columns: (c,) the numbers of the block's columns in the larger matrix.
    """

    matrix: Any
    rows: Tensor
    columns: Tensor


def assemble_blocks(blocks: Sequence[Block], rows: int, columns: int) -> Any:
    """Return a matrix made of blocks. Entries of blocks that overlap are added.

    Args:
        blocks: the blocks.
        rows, columns: the numbers of rows and columns of the matrix.

    Returns:
        A sparse matrix (rows, columns) in CSR form, or a tensor (N, rows, columns) if a block differs by sample.

    Example:
        >>> import torch
        >>> corner = Block(torch.ones(1, 1), torch.tensor([1]), torch.tensor([0]))
        >>> assemble_blocks([corner, corner], 2, 2).toarray().tolist()
        [[0.0, 0.0], [2.0, 0.0]]
    """
    samples = {len(block.matrix) for block in blocks if block.matrix.ndim == 3}
    if samples:
        whole = torch.zeros(max(samples), rows, columns, dtype=torch.float64)
        for block in blocks:
            whole[:, block.rows[:, None], block.columns[None]] += block.matrix
        return whole
    parts = [to_csr_matrix(block.matrix).tocoo() for block in blocks]
    at = [
        (block.rows.numpy()[part.coords[0]], block.columns.numpy()[part.coords[1]])
        for block, part in zip(blocks, parts, strict=True)
    ]
    if not parts:
        return sparse.csr_array((rows, columns))
    entries = np.concatenate([part.data for part in parts])
    places = tuple(np.concatenate([place[axis] for place in at]) for axis in (0, 1))
    whole = sparse.csr_array(sparse.coo_array((entries, places), shape=(rows, columns)))
    whole.eliminate_zeros()
    return whole


def select_block(matrix: Any, rows: Tensor, columns: Tensor) -> Any:
    """Return the entries in the given rows and columns of a matrix (r, c), or of matrices (N, r, c) of N samples."""
    if matrix.is_sparse:
        return matrix.csr[rows.numpy()][:, columns.numpy()]
    return matrix[..., rows[:, None], columns[None]]
