"""Names with an index, such as ``charge[3]``, and the arrays whose entries they name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pear.presolving.row_program import Index

_INDEXED = re.compile(r"(?P<name>.+?)(?:\[(?P<square>-?\d+(?:, ?-?\d+)*)\]|\((?P<round>-?\d+(?:, ?-?\d+)*)\))")


class IndexedArray(NamedTuple):
    """An array whose entries have names with an index, such as ``charge[0]`` or ``flow[1,2]``.

    Attributes:
        shape: the shape of the array.
        positions: (entries,) for each entry, row by row, the position of its name in the list that
            ``group_indexed_names`` searched.
    """

    shape: tuple[int, ...]
    positions: Index


def index_names(name: str, shape: Sequence[int]) -> tuple[str, ...]:
    """Return the names of the entries of an array, row by row.

    Args:
        name: the name of the array.
        shape: the shape of the array; () for a single number, whose name has no index.

    Example:
        >>> index_names("level", ()), index_names("price", (2,)), index_names("Sigma", (1, 2))
        (('level',), ('price[0]', 'price[1]'), ('Sigma[0,0]', 'Sigma[0,1]'))
    """
    if not len(shape):
        return (name,)
    return tuple(f"{name}[{','.join(str(i) for i in at)}]" for at in np.ndindex(*shape))


def group_indexed_names(names: Sequence[str]) -> dict[str, IndexedArray]:
    """Return the arrays whose entries a list names, such as ``charge`` for ``charge[0]`` and ``charge[1]``.

    Two or more names with the same word before the index form an array under two conditions: all have the same number
    of indices, and their indices form a complete grid. Indices may be any integers, also with gaps. Names may also
    have round brackets, ``charge(3)``.

    Returns:
        The arrays, by the word before the index. A word that is itself in the list names no array.

    Example:
        >>> group_indexed_names(["charge[1]", "profit", "charge[2]", "flow[0,1]"])
        {'charge': IndexedArray(shape=(2,), positions=array([0, 2]))}
    """
    found: dict[str, dict[tuple[int, ...], int]] = {}
    for position, name in enumerate(names):
        match = _INDEXED.fullmatch(name)
        if match is not None:
            index = tuple(int(part) for part in (match["square"] or match["round"]).split(","))
            found.setdefault(match["name"], {})[index] = position
    plain = set(names)
    arrays = {name: _as_indexed_array(entries) for name, entries in found.items() if name not in plain}
    return {name: array for name, array in arrays.items() if array is not None}


def _as_indexed_array(entries: dict[tuple[int, ...], int]) -> IndexedArray | None:
    """Return the array of names with the same word before the index; None if they form no array.

    Args:
        entries: the position of each name in the list of names, by the indices in the name.
    """
    dimensions = {len(index) for index in entries}
    if len(entries) < 2 or len(dimensions) > 1:
        return None
    shape = tuple(len(set(axis)) for axis in zip(*entries, strict=True))
    if np.prod(shape) != len(entries):
        return None
    return IndexedArray(shape, np.array([entries[index] for index in sorted(entries)]))


def expand_indexed_names(chosen: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return names with each array replaced by the names of its entries, ``charge`` by ``charge[0]``, ``charge[1]``, ….

    Args:
        chosen: the names to replace. A name that is in ``names``, or that is unknown, stays.
        names: the list of names in which arrays are found.
    """
    if set(chosen) <= set(names):
        return list(chosen)
    own, groups = set(names), group_indexed_names(names)
    found: list[str] = []
    for name in chosen:
        grouped = name not in own and name in groups
        found += [names[i] for i in groups[name].positions] if grouped else [name]
    return found


def indexed_layout(names: Sequence[str]) -> dict[str, Tensor]:
    """Return the positions of variables by name, with names that differ only in their index joined to arrays.

    Args:
        names: the names of all variables.

    Returns:
        The positions by name, in the order of ``names``: for an array the positions of its entries, in the shape of the
        array; for any other name one position.
    """
    groups = group_indexed_names(names)
    array_of = {int(i): name for name, array in groups.items() for i in array.positions}
    layout: dict[str, Tensor] = {}
    for i, name in enumerate(names):
        if i not in array_of:
            layout[name] = torch.tensor(i)
        elif array_of[i] not in layout:
            array = groups[array_of[i]]
            layout[array_of[i]] = torch.from_numpy(array.positions.reshape(array.shape))
    return layout
