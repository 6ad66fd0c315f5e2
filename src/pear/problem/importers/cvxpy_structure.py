"""Variables and parameters of CVXPY that are declared symmetric, diagonal or sparse, by their independent entries."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pear.problem.importers.row_limits import Array
from pear.problem.indexed_names import index_names

STRUCTURES = ("symmetric", "diag", "sparsity")
"""The structures that are taken: entries that are equal to others, or always zero."""


def structure_of(leaf: Any) -> NDArray[np.int_]:
    """Number the independent entries of a variable or parameter: equal entries get one number, entries of zero −1.

    Example:
        >>> import cvxpy as cp
        >>> structure_of(cp.Variable((2, 2), symmetric=True)).tolist()
        [[0, 1], [1, 2]]
        >>> structure_of(cp.Variable((2, 2), diag=True)).tolist()
        [[0, -1], [-1, 1]]
    """
    shape, given = leaf.shape, leaf.attributes
    numbers = np.arange(leaf.size).reshape(shape)
    if given.get("symmetric"):
        numbers = np.minimum(numbers, numbers.T)
    zero = np.zeros(shape, dtype=bool)
    if given.get("diag"):
        zero |= ~np.eye(shape[0], dtype=bool)
    if given.get("sparsity"):
        zero[:] = True
        zero[tuple(np.asarray(part) for part in leaf.sparse_idx)] = False
    own = np.unique(numbers[~zero])
    return np.where(zero, -1, np.searchsorted(own, numbers))


def independent_names(leaf: Any) -> list[str]:
    """The names of the independent entries of a variable or parameter, each by the first entry that has it."""
    index, names = structure_of(leaf).reshape(-1), index_names(leaf.name(), leaf.shape)
    _, first = np.unique(index, return_index=True)
    return [names[i] for i in first if index[i] >= 0]


def spread_entries(values: Any, leaf: Any, cvxpy: Any) -> Any:
    """The expression in the shape of ``leaf`` whose independent entries are ``values``, a CVXPY vector."""
    index = structure_of(leaf).reshape(-1)
    at = np.flatnonzero(index >= 0)
    E = sparse.csr_array((np.ones(len(at)), (at, index[at])), shape=(len(index), values.size))
    return cvxpy.reshape(E @ values, leaf.shape, order="C")


def has_structure(leaf: Any) -> bool:
    """Whether some entries of a variable or parameter are equal to others, or always zero."""
    return any(leaf.attributes.get(name) for name in STRUCTURES)


def place_variables(leaf: Any) -> tuple[NDArray[np.int_], int]:
    """For each entry of a structured variable its place among the variables of the copy, and their number.

    Entries that are always zero share one variable, the last one, whose bounds are zero.
    """
    index = structure_of(leaf)
    free = int(index.max(initial=-1)) + 1
    zeros = bool((index < 0).any())
    return np.where(index < 0, free, index), free + zeros


def tighten(lb: Array, ub: Array, at: NDArray[np.int_], least: Array, most: Array) -> None:
    """Tighten bounds (n,) in place by those of entries, several of which may belong to one variable."""
    np.maximum.at(lb, at.reshape(-1), np.broadcast_to(least, at.shape).reshape(-1))
    np.minimum.at(ub, at.reshape(-1), np.broadcast_to(most, at.shape).reshape(-1))
