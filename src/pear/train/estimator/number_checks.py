"""``check_numbers``: checks that the tables of ``DecisionRegressor`` hold finite numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from pear.errors import ProblemError
from pear.problem.pandas_data import is_pandas_frame
from pear.problem.tensor_conversion import to_numpy
from pear.wording import list_positions


def check_numbers(table: Any, name: str) -> None:
    """Raise ProblemError if a DataFrame holds dates, text, NaN or infinity, or if an array holds NaN or infinity.

    Other properties, such as the shape, are left to the checks of scikit-learn.

    Args:
        table: a DataFrame or an array of floating-point numbers; the masked entries of an array count as NaN. A table
            of another type is not checked.
        name: the name of the table in error messages.

    Example:
        >>> check_numbers(np.array([[1.0], [np.nan]]), "X")
        Traceback (most recent call last):
        pear.errors.ProblemError: X is NaN or infinite in row 1: fill these cells, or drop the rows
    """
    if is_pandas_frame(table):
        for at, column in enumerate(table.columns):
            _check_column_numbers(table.iloc[:, at], f"column {column!r} of {name}", column)
    elif np.ma.is_masked(table) or (isinstance(table, np.ndarray) and table.dtype.kind == "f"):
        _check_finite_numbers(to_numpy(table, name), name)


def _check_column_numbers(column: Any, where: str, label: Any) -> None:
    """Raise ProblemError if a column of a DataFrame holds dates, text, NaN or infinity.

    ``label`` is the name of the column, and ``where`` says in error messages which column of which table it is.
    """
    kind = getattr(column.dtype, "kind", "O")
    if kind in "mM":
        raise ProblemError(
            f"{where} holds dates; make it the index, set_index({label!r}), so that rows are held out in the order of "
            "time, or leave it out"
        )
    if kind == "f":
        _check_finite_numbers(column.to_numpy(dtype=np.float64, na_value=np.nan), where)
    elif kind == "O" and (texts := [one for one in column if isinstance(one, str)]):
        raise ProblemError(
            f"{where} holds text, such as {texts[0]!r}; turn categories into numbers, one column for each, as "
            "pandas.get_dummies does, or leave it out"
        )


def _check_finite_numbers(values: Any, where: str) -> None:
    """Raise ProblemError if numbers are NaN or infinite. The message names the rows."""
    finite = np.isfinite(values)
    if not finite.all():
        rows = np.flatnonzero(~finite.reshape(len(finite), -1).all(1)).tolist()
        raise ProblemError(
            f"{where} is NaN or infinite in {list_positions('row', rows)}: fill these cells, or drop the rows"
        )
