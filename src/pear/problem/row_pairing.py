"""``check_paired_rows``: tables of pandas whose rows belong together must have the same index.

The rows of all tables are paired by their place, and an index says what stands there. Two tables that are a day apart
would be paired wrongly without a sound. They are refused, and so are tables with the same index in different orders:
nothing is sorted or shifted behind the user's back. The default index 0, 1, 2, … names nothing; a table that has it,
like an array, is taken row by row.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from pear.errors import ProblemError


def has_index(value: Any) -> bool:
    """True for a DataFrame or Series of pandas, which is not imported to find out.

    Example:
        >>> import pandas
        >>> has_index(pandas.Series([1.0])), has_index([1.0])
        (True, False)
    """
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(value, (pandas.DataFrame, pandas.Series))


def check_paired_rows(tables: Mapping[str, Any]) -> None:
    """Check that all tables with an index have the same one, in the same order.

    Args:
        tables: what came, by the name that the user knows it by. Arrays, tensors, lists and None have no index. Of
            ``known`` the tables with as many rows as the first table count: others are those of groups, or are shared.

    Raises:
        ProblemError: two indices differ; the message says where, how many labels match, and what to do.

    Example:
        >>> import pandas
        >>> days = pandas.date_range("2026-01-01", periods=3)
        >>> X, y = pandas.DataFrame({"wind": [1, 2, 3]}, days), pandas.DataFrame({"price": [3, 2, 1]}, days)
        >>> check_paired_rows({"X": X, "y": y})
        >>> check_paired_rows({"X": X, "y": y.to_numpy()})
    """
    indices = {name: table.index for name, table in _tables_with_index(tables).items()}
    labelled = {name: index for name, index in indices.items() if not _is_default(index)}
    if not labelled:
        return
    name, index = next(iter(labelled.items()))
    for other, second in (indices if _reorders_default(index) else labelled).items():
        if not index.equals(second):
            raise ProblemError(_describe_difference(name, index, other, second))


def named_index(*tables: Any) -> Any:
    """The first index of these tables that is not the default one; None where there is none."""
    return next((table.index for table in tables if has_index(table) and not _is_default(table.index)), None)


def shared_index(*tables: Any) -> Any:
    """The index of tables whose rows belong together: the first one that is not pandas' default, else a default one.

    None where no table has an index.

    Example:
        >>> import pandas
        >>> shared_index([[1.0]], pandas.Series([1.0])), shared_index([[1.0]])
        (RangeIndex(start=0, stop=1, step=1), None)
    """
    named = named_index(*tables)
    return next((table.index for table in tables if has_index(table)), None) if named is None else named


def is_frame(value: Any) -> bool:
    """True for a pandas DataFrame; pandas is not imported to find out."""
    return has_index(value) and value.ndim == 2


def as_table(values: np.ndarray[Any, Any], index: Any, name: str) -> Any:
    """Make a Series of values (B,), or a DataFrame of values (B, …) with a column for each entry of a sample.

    Example:
        >>> import pandas
        >>> as_table(np.zeros((2, 1, 2)), pandas.Index(["mon", "tue"]), "flow").columns.tolist()
        [(0, 0), (0, 1)]
    """
    import pandas

    if values.ndim == 1:
        return pandas.Series(values, index, name=name)
    columns: Any = range(values.shape[1]) if values.ndim == 2 else list(np.ndindex(*values.shape[1:]))
    return pandas.DataFrame(values.reshape(len(values), -1), index, columns)


def _tables_with_index(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the pandas tables by name. Parts of ``known`` count only if they have as many rows as the first table."""
    found: dict[str, Any] = {name: table for name, table in tables.items() if name != "known" and has_index(table)}
    count, known = next((len(table) for table in found.values()), 0), tables.get("known")
    parts: Mapping[Any, Any] = known if isinstance(known, Mapping) else {None: known}
    for name, part in parts.items():
        if has_index(part) and len(part) == count:
            found["known" if name is None else f"known[{name!r}]"] = part
    return found


def _is_default(index: Any) -> bool:
    """Whether an index is 0, 1, 2, …, the default of pandas."""
    return bool(index.equals(sys.modules["pandas"].RangeIndex(len(index))))


def _reorders_default(index: Any) -> bool:
    """Whether an index is a permutation of 0, 1, 2, …, such as the index of a shuffled table."""
    return bool(index.dtype.kind in "iu" and np.array_equal(np.sort(index.to_numpy()), np.arange(len(index))))


def _describe_difference(name: str, index: Any, other: str, second: Any) -> str:
    """Say how the indices of two tables differ, and what to do."""
    count = min(len(index), len(second))
    differs = index[:count] != second[:count]
    at = int(np.argmax(differs)) if np.any(differs) else count
    labels = [str(one[at]) if at < len(one) else "nothing" for one in (index, second)]
    place = f"first in row {at}: {labels[0]} in {name}, {labels[1]} in {other}"
    first, table = (given if given.isidentifier() else "table" for given in (name, other))
    same_length, unique = len(index) == len(second), index.is_unique and second.is_unique
    if same_length and bool(index.isin(second).all() and second.isin(index).all()):
        advice = f"pass {table}.loc[{first}.index]" if unique else "sort both in the same way"
        return f"{name} and {other} have the same index in different orders, {place}. Rows are not sorted: {advice}"
    matching = int(index.isin(second).sum())
    both = f"both = {first}.index.intersection({table}.index), {first}.loc[both] and {table}.loc[both]"
    stand = f"; or, where rows belong together as they stand, pass {table}.set_axis({first}.index)"
    return (
        f"the rows of {name} and {other} do not belong together: of the {len(index)} labels in the index of {name}, "
        f"{matching} are among the {len(second)} of {other}; the two differ {place}. Take the rows that both have, "
        f"{both}{stand if same_length else ''}"
    )
