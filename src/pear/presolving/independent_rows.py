"""Independent rows of a dense matrix, by a rank-revealing QR factorisation."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import qr, solve_triangular

from pear.presolving.row_program import Array


def independent_rows(matrix: Array, tolerance: float) -> tuple[int, Any, Array]:
    """Find a largest set of independent rows of a matrix, and the combinations of them that give the other rows.

    Args:
        matrix: (r, n) the rows. They are divided by their lengths before the factorisation.
        tolerance: a pivot of the factorisation that is smaller than this fraction of the largest one counts as zero.

    Returns:
        The rank k; an order (r,) of the row numbers, in which k independent rows come first; and coefficients K
        (k, r − k). ``Kᵀ`` times the independent rows gives the other rows, all rows divided by their lengths.
    """
    if not min(matrix.shape):
        return 0, np.arange(matrix.shape[0]), np.zeros((0, matrix.shape[0]))
    R, order = qr((matrix / row_lengths(matrix)[:, None]).T, mode="r", pivoting=True)
    diagonal = np.abs(np.diagonal(R))
    rank = int((diagonal > tolerance * diagonal[0]).sum()) if diagonal[0] > 0 else 0
    if not rank:
        return 0, order, np.zeros((0, len(order)))
    return rank, order, solve_triangular(R[:rank, :rank], R[:rank, rank:])


def row_lengths(matrix: Array) -> Array:
    """Return the Euclidean lengths (r,) of the rows of a matrix (r, n), with 1 for a row of zeros."""
    lengths: Array = np.linalg.norm(matrix, axis=1)
    return np.where(lengths > 0, lengths, 1.0)
