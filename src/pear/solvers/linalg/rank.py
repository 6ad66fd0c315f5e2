"""The rank of a matrix and its independent rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import qr, solve_triangular

from pear.optimality.rule import RANK

Array = np.ndarray[Any, np.dtype[np.float64]]


def row_rank(matrix: Array) -> tuple[int, Any, Array]:
    """Find independent rows of a matrix (r, n).

    Returns:
        The rank; the order of the rows with independent ones first; (rank, r − rank) coefficients that combine the
        independent rows to the others, for rows divided by their lengths.
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
    """Return (r,) the lengths of the rows of (r, n), with 1 for rows of zeros."""
    sizes: Array = np.sqrt((matrix * matrix).sum(1))
    return np.where(sizes > 0, sizes, 1.0)
