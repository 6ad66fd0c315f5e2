"""Checks and conversions of the pandas tables that users pass.

The rows of several tables are paired by position, and nothing is sorted or shifted. Two tables whose indices are a day
apart would be paired wrongly. Tables with different indices are therefore refused, as are tables with the same index in
another order. The default index 0, 1, 2, … does not tell what a row is about. A table with this index is therefore
paired by position, as an array is, unless the index of another table has the numbers 0, 1, 2, … in another order.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pear.errors import ProblemError

if TYPE_CHECKING:
    from pear.problem.model import Model
    from pear.problem.problem import Problem


def has_pandas_index(value: Any) -> bool:
    """Return True for a pandas DataFrame or Series. Pandas is not imported for this test.

    Example:
        >>> import pandas
        >>> has_pandas_index(pandas.Series([1.0])), has_pandas_index([1.0])
        (True, False)
    """
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(value, (pandas.DataFrame, pandas.Series))


def is_pandas_frame(value: Any) -> bool:
    """Return True for a pandas DataFrame. Pandas is not imported for this test."""
    return has_pandas_index(value) and value.ndim == 2


def pandas_to_numpy(table: Any, name: str) -> np.ndarray[Any, Any]:
    """Convert a DataFrame (N, columns), or a Series (N,), of numbers to an array. Missing values become NaN.

    Types that allow missing values (``Int64``, ``boolean``, those of pyarrow) are converted as well.

    Args:
        table: the DataFrame or Series.
        name: the name of the table in error messages.

    Raises:
        ProblemError: a column holds no numbers.

    Example:
        >>> import pandas
        >>> pandas_to_numpy(pandas.DataFrame({"wind": [0.5, 1.5], "open": [True, None]}).convert_dtypes(), "X")
        array([[0.5, 1. ],
               [1.5, nan]])
    """
    series = table.ndim == 1
    columns = [(table.name, table)] if series else list(table.items())
    for column, content in columns:
        if getattr(content.dtype, "kind", "O") not in "biuf":
            raise ProblemError(
                f"{name if series else f'column {column!r} of {name}'} holds {content.dtype}; expected numbers: "
                "convert it, for example by pandas.to_numeric, encode it, for example by pandas.get_dummies, or drop it"
            )
    if all(isinstance(content.dtype, np.dtype) for _, content in columns) and len({c.dtype for _, c in columns}) == 1:
        return np.asarray(table)
    parts = [content.to_numpy(dtype=np.float64, na_value=np.nan) for _, content in columns]
    return parts[0] if series else np.stack(parts, 1) if parts else np.zeros(table.shape)


def series_as_sample_row(value: Any) -> Any:
    """Return a Series, which holds one sample, as a DataFrame with one row. Any other value is returned unchanged.

    Example:
        >>> import pandas
        >>> series_as_sample_row(pandas.Series([2.0, 1.0], ["wind", "sun"], name="monday")).columns.tolist()
        ['wind', 'sun']
    """
    return value.to_frame().T if has_pandas_index(value) and value.ndim == 1 else value


def to_pandas(values: np.ndarray[Any, Any], index: Any, name: str) -> Any:
    """Return values (B,) as a Series, or values (B, …) as a DataFrame with one column for each entry of a sample.

    Args:
        values: (B,) or (B, …).
        index: the index of the B rows.
        name: the name of the Series.

    Example:
        >>> import pandas
        >>> to_pandas(np.zeros((2, 1, 2)), pandas.Index(["mon", "tue"]), "flow").columns.tolist()
        [(0, 0), (0, 1)]
    """
    import pandas

    if values.ndim == 1:
        return pandas.Series(values, index, name=name)
    columns: Any = range(values.shape[1]) if values.ndim == 2 else list(np.ndindex(*values.shape[1:]))
    return pandas.DataFrame(values.reshape(len(values), -1), index, columns)


def check_pandas_rows(tables: Mapping[str, Any]) -> None:
    """Check that all tables with an index have the same index in the same order.

    Tables with the default index 0, 1, 2, … pass, unless another index has these numbers in another order.

    Args:
        tables: the values that the user passed, by argument name. Arrays, tensors, lists and None have no index and
            pass. A table in the argument ``known`` is checked only if it has as many rows as the first table of the
            other arguments, because otherwise its rows are not the samples.

    Raises:
        ProblemError: two indices differ. The message says in which row, how many labels match, and what to do.

    Example:
        >>> import pandas
        >>> days = pandas.date_range("2026-01-01", periods=3)
        >>> X, y = pandas.DataFrame({"wind": [1, 2, 3]}, days), pandas.DataFrame({"price": [3, 2, 1]}, days)
        >>> check_pandas_rows({"X": X, "y": y})
        >>> check_pandas_rows({"X": X, "y": y.to_numpy()})
    """
    if len([name for name, table in tables.items() if table is not None]) < 2:
        return  # nothing to compare
    indices = {name: table.index for name, table in _indexed_pandas_tables(tables).items()}
    labelled = {name: index for name, index in indices.items() if not _is_default_pandas_index(index)}
    if not labelled:
        return
    name, index = next(iter(labelled.items()))
    for other, second in (indices if _reorders_default_pandas_index(index) else labelled).items():
        if not index.equals(second):
            raise ProblemError(_describe_pandas_difference(name, index, other, second))


def named_pandas_index(*tables: Any) -> Any:
    """Return the first index of these tables that is not pandas' default 0, 1, 2, …; None if there is none."""
    indices = (table.index for table in tables if has_pandas_index(table))
    return next((index for index in indices if not _is_default_pandas_index(index)), None)


def shared_pandas_index(*tables: Any) -> Any:
    """Return the index of several tables with the same samples in their rows.

    Returns:
        The first index that is not pandas' default 0, 1, 2, …. If there is none, the first index. None if no table has
        an index.

    Example:
        >>> import pandas
        >>> shared_pandas_index([[1.0]], pandas.Series([1.0])), shared_pandas_index([[1.0]])
        (RangeIndex(start=0, stop=1, step=1), None)
    """
    named = named_pandas_index(*tables)
    return next((table.index for table in tables if has_pandas_index(table)), None) if named is None else named


def pandas_columns(value: Any) -> tuple[Any, ...] | None:
    """Return the column names of a DataFrame; None for any other value."""
    return tuple(value.columns) if is_pandas_frame(value) else None


def check_pandas_columns(problem: Problem | Model, columns: Sequence[Any] | None, name: str = "C") -> None:
    """Check that the columns of a table, if they have the names of the predicted values, are in the model's order.

    Columns with other names pass.

    Args:
        problem: a model or a problem. The predicted values of a problem are called x0, x1, ….
        columns: the column names of a table; None for an array, which passes.
        name: the name of the table in error messages.

    Raises:
        ProblemError: the columns have the names of the predicted values in another order.
    """
    if columns is None:
        return
    names = problem.names if hasattr(problem, "names") else tuple(f"x{i}" for i in range(problem.n))
    if tuple(columns) != names and set(columns) == set(names):
        raise ProblemError(
            f"the columns of {name} are named as the values of the model, but in another order: {list(columns)[:5]} "
            f"for {list(names)[:5]}; pass {name}[list(model.names)]"
        )


def check_pandas_order(problem: Problem | Model, predicted: Any, true: Any) -> None:
    """Check that DataFrames of predicted and true values have the same columns and rows in the same order.

    Args:
        problem: a model or a problem. The columns must be in the order of its predicted values.
        predicted: the predicted values, in any form. Other forms than DataFrames have no columns to check.
        true: the true values, in any form.

    Raises:
        ProblemError: the columns or the indices of the two tables differ, so that wrong pairs would be compared.
    """
    columns = [pandas_columns(table) for table in (predicted, true)]
    for name, own in zip(("predicted", "true"), columns, strict=True):
        check_pandas_columns(problem, own, name)
    if None not in columns and columns[0] != columns[1]:
        same = set(columns[0] or ()) == set(columns[1] or ())
        advice = "pass predicted[true.columns]" if same else "give both the names of the predicted values"
        raise ProblemError(
            f"predicted and true must have the same columns in the same order; got {list(columns[0] or ())[:5]} and "
            f"{list(columns[1] or ())[:5]}: {advice}"
        )
    check_pandas_rows({"true": true, "predicted": predicted})


def _indexed_pandas_tables(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return those values that are pandas tables, by name.

    The value of ``known`` may be a table or a dictionary of tables. Each of these tables is returned only if it is as
    long as the first table of the other arguments, because otherwise its rows are not the samples.
    """
    found: dict[str, Any] = {
        name: table for name, table in tables.items() if name != "known" and has_pandas_index(table)
    }
    count, known = next((len(table) for table in found.values()), 0), tables.get("known")
    parts: Mapping[Any, Any] = known if isinstance(known, Mapping) else {None: known}
    for name, part in parts.items():
        if has_pandas_index(part) and len(part) == count:
            found["known" if name is None else f"known[{name!r}]"] = part
    return found


def _is_default_pandas_index(index: Any) -> bool:
    """Return True if an index is 0, 1, 2, …, the default of pandas."""
    return bool(index.equals(sys.modules["pandas"].RangeIndex(len(index))))


def _reorders_default_pandas_index(index: Any) -> bool:
    """Return True if an index is a permutation of 0, 1, 2, …, such as the index of a shuffled table."""
    return bool(index.dtype.kind in "iu" and np.array_equal(np.sort(index.to_numpy()), np.arange(len(index))))


def _describe_pandas_difference(name: str, index: Any, other: str, second: Any) -> str:
    """Return the error message about two different indices: how they differ, and what to do.

    Args:
        name: the name of the first table.
        index: the index of the first table.
        other: the name of the second table.
        second: the index of the second table.
    """
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
