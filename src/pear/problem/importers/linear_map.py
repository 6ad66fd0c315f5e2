"""``linear_map``: the matrix of a linear function, found by calls of the function."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import sparse

from pear.presolving.row_program import Array

_ROUNDING = 1e-12  # relative to the largest value; smaller differences are rounding


def linear_map(function: Callable[[Array], Array], k: int) -> sparse.csr_array | None:
    """Find the matrix M (n, k) with ``function(y) = M y``; None if the function is not linear.

    Most cost maps have at most one entry in each row of M. Then three calls are enough: y = (1, …, 1) gives the
    entries, y = (1, 2, …, k) their columns, and a random y confirms both. For other maps the function is called once
    for every column.

    Args:
        function: a function from y (k,) to an array (n,).
        k: the length of y.

    Example:
        >>> import numpy as np
        >>> linear_map(lambda y: np.array([2 * y[1], -y[0], 0.0]), k=2).toarray().tolist()
        [[0.0, 2.0], [-1.0, 0.0], [0.0, 0.0]]
        >>> linear_map(lambda y: y**2, k=2) is None
        True
    """
    if not k:
        return sparse.csr_array((len(function(np.zeros(0))), 0))
    # These values are exact in float32, to which some functions round.
    values = np.random.default_rng(0).integers(1, 2**20, k) / 2.0**10
    expected = function(values)
    entries, numbered = function(np.ones(k)), function(np.arange(1.0, k + 1))
    rows = np.flatnonzero(entries)
    columns = (numbered[rows] / entries[rows]).round().astype(int) - 1
    if ((columns >= 0) & (columns < k)).all():
        M = sparse.csr_array((entries[rows], (rows, columns)), shape=(len(entries), k))
        if _is_linear_map(M, values, expected):
            return M
    M = sparse.csr_array(sparse.hstack([sparse.csc_array(function(unit)[:, None]) for unit in np.eye(k)]))
    return M if _is_linear_map(M, values, expected) else None


def _is_linear_map(M: sparse.csr_array, values: Array, expected: Array) -> bool:
    """Return True if the product ``M values`` equals ``expected`` up to rounding."""
    scale = (abs(M) @ np.abs(values)).max(initial=0.0)
    return bool(np.abs(M @ values - expected).max(initial=0.0) <= _ROUNDING * scale)
