"""Long CSV tables, which have a row for each predicted value instead of a row for each sample."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pear.cli.csv_table import csv_line_numbers
from pear.errors import DataError
from pear.wording import suggest_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas


class LongColumns(NamedTuple):
    """The columns that describe the rows of a long table.

    Attributes:
        groups: the column that says which rows belong to one sample.
        variables: the column that names the predicted value of each row; None if the rows of a sample are in the order
            of the model's values.
    """

    groups: str
    variables: str | None


def variables_in_long_table(
    table: pandas.DataFrame, long: LongColumns, variables: Sequence[str], path: Path
) -> list[str]:
    """Return the variables of the model that a long table predicts, in the order of the model.

    If ``long`` has no column of variables, these are all variables.

    Args:
        table: the long table.
        long: the columns of groups and variables.
        variables: the variables of the model.
        path: the file of the table, for error messages.

    Raises:
        DataError: an entry of the column of variables is not the name of a variable.
    """
    if long.variables is None:
        return list(variables)
    _require_long_column(table, long.variables, "--variables", path)
    found = [str(name) for name in dict.fromkeys(table[long.variables])]
    for name in found:
        if name not in variables:
            raise DataError(
                f"column {long.variables!r} of {path} names {name!r}, which is no variable of the "
                f"model{suggest_name(name, list(variables))}"
            )
    return [name for name in variables if name in found]


def order_long_csv_table(
    table: pandas.DataFrame, long: LongColumns, names: Sequence[str], path: Path
) -> pandas.DataFrame:
    """Return a long table with the rows of each group together, in the order of the predicted values.

    The groups are in the order of their first lines.

    Args:
        table: the result of ``read_csv_table``, whose index counts the rows.
        long: the columns of groups and names.
        names: names of the predicted values, in their order.
        path: the file of the table, for error messages.

    Raises:
        DataError: a cell of a column in ``long`` is empty, a row belongs to no predicted value, or a group has two rows
            for one value; or ``long.variables`` is None, and a column contains ``names`` in another order.
        ProblemError: a group lacks a row for a value.
    """
    from pear.train.long_table import group_long_table

    _require_long_column(table, long.groups, "--groups", path)
    if long.variables is not None:
        _require_long_column(table, long.variables, "--variables", path)
        places = table[long.variables].astype(str).map({name: place for place, name in enumerate(names)})
        if places.isna().any():
            at = int(places.isna().to_numpy().argmax())
            name = str(table[long.variables].iloc[at])
            raise DataError(
                f"line {csv_line_numbers(path, [at])[0]} of {path} is a row of {name!r}, which is not predicted"
                f"{suggest_name(name, list(names))}"
            )
        table = table.iloc[places.argsort(kind="stable")]
        if (twice := table.duplicated([long.groups, long.variables])).any():
            group, name = table.loc[twice, [long.groups, long.variables]].iloc[0]
            raise DataError(f"group {group} of {path} has {name!r} twice; keep one row of each")
    found = group_long_table(table[long.groups], len(table), len(names))
    if long.variables is None:
        _check_unnamed_long_order(table, found.rows, names, path)
    first = sorted(range(len(found)), key=lambda group: int(table.index[found.rows[group]].min()))
    return table.iloc[found.rows[first].ravel()]


def _check_unnamed_long_order(table: pandas.DataFrame, rows: Any, names: Sequence[str], path: Path) -> None:
    """Raise ``DataError`` if a column names the predicted values of a long table in another order than the model.

    Args:
        table: the table. The user has named no column of variables (``--variables``).
        rows: (N, k) the row numbers of each group.
        names: the names of the k predicted values.
        path: the file of the table, for error messages.
    """
    for column in table.columns:
        entries = table[column].astype(str).to_numpy(dtype=object)
        if set(entries) != set(names):
            continue
        wrong = entries[rows] != list(names)
        if wrong.any():
            line = csv_line_numbers(path, [rows[wrong].min()])[0]
            raise DataError(
                f"column {column!r} of {path} names the values of the model, and line {line} is not in their order; "
                f"match rows by their names: --variables {column}"
            )


def _require_long_column(table: pandas.DataFrame, name: str, option: str, path: Path) -> None:
    """Raise ``DataError`` if the column ``name``, which ``option`` names, is missing or has empty cells."""
    if name not in table.columns:
        raise DataError(f"{option}: {path} has no column {name!r}{suggest_name(name, list(table.columns))}")
    if table[name].isna().any():
        line = csv_line_numbers(path, [table[name].isna().to_numpy().argmax()])[0]
        raise DataError(f"{option}: column {name!r} of {path} is empty in line {line}; fill it, or drop the row")
