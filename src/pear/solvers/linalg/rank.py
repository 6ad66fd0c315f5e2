"""Which rows of a matrix are independent."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import qr, solve_triangular

from pear.optimality.rule import RANK

Array = np.ndarray[Any, np.dtype[np.float64]]


def row_rank(matrix: Array) -> tuple[int, Any, Array]:
    """The rank of (r, n), the rows with independent ones first, and (rank, r − rank) how these make the others.

    The combinations are those of rows divided by their lengths.
    """
    if not min(matrix.shape):
        return 0, np.arange(matrix.shape[0]), np.zeros((0, matrix.shape[0]))
    R, order = qr((matrix / row_sizes(matrix)[:, None]).T, mode="r", pivoting=True)
    diagonal = np.abs(np.diagonal(R))
    rank = int((diagonal > RANK * diagonal[0]).sum()) if diagonal[0] > 0 else 0
    if not rank:
        return 0, order, np.zeros((0, len(order)))
    return rank, order, solve_triangular(R[:rank, :rank], R[:rank, rank:])


def row_sizes(matrix: Array) -> Array:
    """(r,) the lengths of the rows of (r, n), 1 for those without any."""
    sizes: Array = np.sqrt((matrix * matrix).sum(1))
    return np.where(sizes > 0, sizes, 1.0)
