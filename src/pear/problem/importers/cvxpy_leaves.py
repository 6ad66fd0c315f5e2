"""Entries, signs, bounds and structure of the leaves of CVXPY expressions. A leaf is a variable or a parameter.

A leaf has a structure if it is declared symmetric, diagonal or sparse. Some of its entries are then always zero, or
equal to entries before them; the remaining entries are called independent.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from pear.errors import DataError
from pear.presolving.row_program import Array, Index
from pear.problem.importers.cvxpy_names import WHERE
from pear.problem.indexed_names import index_names

STRUCTURES = ("symmetric", "diag", "sparsity")
"""The attributes of CVXPY that declare a structure which the importer supports."""


def leaf_has_structure(leaf: Any) -> bool:
    """Return True if a leaf is declared symmetric, diagonal or sparse."""
    return any(leaf.attributes.get(name) for name in STRUCTURES)


def leaf_structure(leaf: Any) -> Index:
    """Return a number for each entry of a leaf, in the shape of the leaf.

    The independent entries are numbered row by row. An entry that always equals an earlier one has its number. Entries
    that are always zero have the number −1.

    Example:
        >>> import cvxpy as cp
        >>> leaf_structure(cp.Variable((2, 2), symmetric=True)).tolist()
        [[0, 1], [1, 2]]
        >>> leaf_structure(cp.Variable((2, 2), diag=True)).tolist()
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


def leaf_entry_names(leaf: Any) -> list[str]:
    """Return the names of all entries of a leaf, row by row, such as price[0,1]."""
    return list(index_names(leaf.name(), leaf.shape))


def independent_leaf_names(leaf: Any) -> list[str]:
    """Return the names of the independent entries of a leaf, in order. Of equal entries, the first gives the name."""
    index, names = leaf_structure(leaf).reshape(-1), leaf_entry_names(leaf)
    _, first = np.unique(index, return_index=True)
    return [names[i] for i in first if index[i] >= 0]


def spread_leaf_entries(values: Any, leaf: Any, cvxpy: Any) -> Any:
    """Return an expression in the shape of a leaf with the given independent entries.

    Args:
        values: a CVXPY vector that begins with the independent entries. Further entries are ignored.
        leaf: a leaf with a structure.
        cvxpy: the module.
    """
    index = leaf_structure(leaf).reshape(-1)
    at = np.flatnonzero(index >= 0)
    E = sparse.csr_array((np.ones(len(at)), (at, index[at])), shape=(len(index), values.size))
    return cvxpy.reshape(E @ values, leaf.shape, order="C")


def place_leaf_entries(leaf: Any) -> tuple[Index, int]:
    """Find where the entries of a structured leaf are in the vector that stands for the leaf in a ``CvxpyCopy``.

    The vector has one entry for each independent entry of the leaf. If some entries of the leaf are always zero, one
    more entry at the end of the vector stands for them.

    Returns:
        In the shape of the leaf, the position of each entry in the vector; and the length of the vector.
    """
    index = leaf_structure(leaf)
    free = int(index.max(initial=-1)) + 1
    zeros = bool((index < 0).any())
    return np.where(index < 0, free, index), free + zeros


def leaf_sign(leaf: Any) -> int:
    """Return 1 for a leaf that is declared not negative, −1 for one that is declared not positive, 0 for others."""
    return bool(leaf.is_nonneg()) - bool(leaf.is_nonpos())  # some versions of CVXPY return a list


def integer_leaf_entries(leaf: Any, name: str) -> Any:
    """Return a mask of the entries of a variable that are declared boolean, or of those that are declared integer.

    Args:
        leaf: the variable.
        name: the attribute that declares them, "boolean" or "integer".

    Returns:
        A bool array in the shape of the variable.
    """
    given = leaf.attributes[name]
    found = np.full(leaf.shape, given is True)
    if isinstance(given, bool):
        return found
    try:
        found[tuple(np.asarray(positions) for positions in given)] = True
    except IndexError as error:
        raise DataError(
            f"{WHERE}: {name}={given} of variable {leaf.name()} does not fit its shape {leaf.shape}; CVXPY "
            f"takes one list of positions for each dimension, as NumPy does: {name}=[[0, 2]], for example"
        ) from error
    return found


def leaf_bounds(leaf: Any) -> tuple[Array, Array]:
    """Return the lower and upper bounds of a variable in its shape; infinity means no bound."""
    low = np.full(leaf.shape, 0.0 if leaf.is_nonneg() else -np.inf)
    high = np.full(leaf.shape, 0.0 if leaf.is_nonpos() else np.inf)
    given = leaf.attributes.get("bounds") or (None, None)
    sides = [None if side is None else getattr(side, "value", side) for side in given]
    low = low if sides[0] is None else np.maximum(low, np.broadcast_to(sides[0], low.shape))
    high = high if sides[1] is None else np.minimum(high, np.broadcast_to(sides[1], high.shape))
    binary = integer_leaf_entries(leaf, "boolean")
    return np.where(binary, np.maximum(low, 0.0), low), np.where(binary, np.minimum(high, 1.0), high)


def tighten_leaf_bounds(lb: Array, ub: Array, at: Index, least: Array, most: Array) -> None:
    """Tighten the bounds of all variables in place by the bounds of the entries of one leaf.

    Args:
        lb: (n,) lower bounds.
        ub: (n,) upper bounds.
        at: the variable of each entry, in the shape of the leaf. Several entries may have the same variable.
        least: the lower bound of each entry, in the shape of the leaf.
        most: the upper bound of each entry, in the shape of the leaf.
    """
    np.maximum.at(lb, at.reshape(-1), np.broadcast_to(least, at.shape).reshape(-1))
    np.minimum.at(ub, at.reshape(-1), np.broadcast_to(most, at.shape).reshape(-1))
