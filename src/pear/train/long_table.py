"""``LongTable``: the groups of a table that has a row for each predicted value, and a group of rows for each sample."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pear.errors import ProblemError
from pear.wording import list_positions

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class LongTable:
    """The groups of a long table: a table with one row for each of the k predicted values of each of the N samples.

    Attributes:
        ids: the ids of the N groups, in the order of their first rows.
        rows: (N, k) the row numbers of each group, in the order of the table.
        name: the name of the pandas Series that held the ids; None if the ids were no Series.

    Example:
        >>> days = group_long_table(["mon", "tue", "mon", "tue"], 4, 2)
        >>> days.ids, days.rows.tolist()
        (('mon', 'tue'), [[0, 2], [1, 3]])
        >>> days.scatter(days.gather(np.array([1.0, 2.0, 3.0, 4.0]))).tolist()
        [1.0, 2.0, 3.0, 4.0]
    """

    ids: tuple[Hashable, ...]
    rows: Array
    name: Hashable = None

    def __len__(self) -> int:
        return len(self.ids)

    def gather(self, values: Array) -> Array:
        """Return values of the N·k rows, (N·k, …), as values of the N groups of k rows, (N, k, …)."""
        return values[self.rows]

    def scatter(self, values: Array) -> Array:
        """Return values of the N groups of k rows, (N, k), as values of the rows in the order of the table, (N·k,)."""
        flat = np.empty(self.rows.size, values.dtype)
        flat[self.rows.ravel()] = values.ravel()
        return flat

    def rows_of_groups(self, groups: Array) -> Array:
        """Return the row numbers of all rows of the groups with these numbers, in ascending order."""
        return np.sort(self.rows[groups].ravel())


def group_long_table(groups: Any, count: int, size: int) -> LongTable:
    """Return the groups of a long table, and the rows of each group.

    Args:
        groups: (N·k,) the id of each row's group, such as a day: an array, a list or a Series. The rows of a group need
            not be consecutive.
        count: the number of rows of the table.
        size: k, the number of rows that every group must have: one for each predicted value of the problem, in the
            order of the problem.

    Raises:
        ProblemError: the number of ids is not the number of rows, an id is missing, or a group does not have k rows.
    """
    if isinstance(groups, str):
        raise ProblemError(
            f"groups must be the ids of the groups, one for each row of X; got {groups!r}: pass the column"
        )
    ids = list(groups) if np.ndim(groups) == 1 else None
    if ids is None or len(ids) != count:
        shape = np.shape(groups)
        raise ProblemError(f"groups must have shape ({count},), an id for each row of X; got {shape}")
    found: dict[Hashable, list[int]] = {}
    for row, one in enumerate(ids):
        if one is None or one != one:  # NaN and NaT differ from themselves
            raise ProblemError(f"groups must name the group of every row; row {row} has {one}: fill or drop it")
        found.setdefault(one, []).append(row)
    for one, rows in found.items():
        if len(rows) != size:
            raise ProblemError(
                f"every group must have exactly {size} rows, one for each predicted value of the problem, in its "
                f"order; group {one} has {len(rows)} ({list_positions('row', rows)}): add the rows that are "
                f"missing, or drop the group"
            )
    return LongTable(tuple(found), np.array(list(found.values())).reshape(-1, size), getattr(groups, "name", None))
