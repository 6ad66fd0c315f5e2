"""``ArrowColumns``: the columns of an Arrow table that hold one input, and their conversion to arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pear.errors import DataError, ProblemError

_REMEDY = "fill it in or leave the row out, or make the loss with on_failure='mask', which leaves such samples out"


class ArrowColumns(NamedTuple):
    """The columns of an Arrow table that hold one input of a model, or the costs.

    A column holds numbers, or lists of numbers that all have the same length.

    Attributes:
        name: the name of the input, or "costs".
        columns: the names of the columns.
        plain: whether a single column of numbers becomes an array (B,) for B rows, for example for an embedding,
            instead of an array (B, 1).
    """

    name: str
    columns: tuple[str, ...]
    plain: bool

    @classmethod
    def of(cls, name: str, columns: str | Sequence[str], plain: bool) -> ArrowColumns:
        """Return the columns of an input.

        Args:
            name: the name of the input.
            columns: the name of one column, or a list of names.
            plain: whether a single column of numbers becomes an array (B,). This applies only if ``columns`` is a name.

        Raises:
            ProblemError: ``columns`` is neither a name nor a list of names, or the list is empty.
        """
        names = (columns,) if isinstance(columns, str) else tuple(columns)
        if not names or not all(isinstance(one, str) for one in names):
            raise ProblemError(f"{name} must be the name of a column, or a list of such names; got {columns!r}")
        return cls(name, names, plain and isinstance(columns, str))


def check_arrow_type(schema: Any, name: str, path: Path) -> Any:
    """Return the Arrow type of a column.

    Args:
        schema: the Arrow schema of a file.
        name: the name of the column.
        path: the path of the file, for error messages.

    Raises:
        DataError: the column is missing, occurs twice, or does not hold numbers or lists of numbers.
    """
    from pyarrow import types

    places = schema.get_all_field_indices(name)
    if len(places) != 1:
        found = f"{len(places)} of that name" if places else f"got {', '.join(map(repr, schema.names[:40]))}"
        raise DataError(f"{path} must have one column {name!r}; {found}")
    kind = schema.field(places[0]).type
    inner = kind.value_type if _is_arrow_list(kind) else kind
    if not (types.is_integer(inner) or types.is_floating(inner) or types.is_boolean(inner)):
        raise DataError(
            f"column {name!r} of {path} holds {kind}, and a model takes numbers, or lists of numbers; encode or cast it"
        )
    return kind


def arrow_list_width(column: Any, name: str, place: str) -> int | None:
    """Return the length of the list in the first row of an Arrow column; None for a column of numbers."""
    if not _is_arrow_list(column.type):
        return None
    if not column[0].is_valid:
        raise DataError(f"column {name!r} has no value in the first row of {place}, which says how long its lists are")
    return len(column[0])


def join_arrow_columns(
    one: ArrowColumns, batch: Any, widths: Mapping[str, int | None], place: str | None
) -> NDArray[Any]:
    """Return the columns of an input as one array (B, …).

    Args:
        one: the columns of the input.
        batch: an Arrow record batch with B rows.
        widths: the length of the lists in each column; None for a column of numbers.
        place: the file and row group of the batch, for error messages. If it is None, values that are not finite are
            allowed, and missing values become NaN.

    Raises:
        DataError: a value is missing, NaN or infinite although ``place`` is given, or a list has another length than
            ``widths`` says.
    """
    parts = []
    for name in one.columns:
        values = _arrow_column_values(batch.column(name), widths[name], f"column {name!r} of {place or 'a row group'}")
        if place is not None and not np.isfinite(values).all():
            row = int(np.flatnonzero(~np.isfinite(values).reshape(len(values), -1).all(1))[0])
            raise DataError(f"column {name!r} of {place}: a value of row {row} is missing, NaN or infinite; {_REMEDY}")
        parts.append(values)
    if one.plain:
        return parts[0]
    tables = [part.reshape(len(part), -1) for part in parts]
    return tables[0] if len(tables) == 1 else np.concatenate(tables, 1)


def _is_arrow_list(kind: Any) -> bool:
    """Return whether an Arrow type is that of a column of lists."""
    from pyarrow import types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _arrow_column_values(column: Any, width: int | None, place: str) -> NDArray[Any]:
    """Convert an Arrow column to an array: (B,) for numbers, (B, width) for lists. Missing values become NaN."""
    if width is None:
        return _arrow_column_numbers(column)
    there = column.is_valid().to_numpy(zero_copy_only=False)
    lengths = column.value_lengths().to_numpy(zero_copy_only=False)
    other = np.flatnonzero(there & (lengths != width))
    if len(other):
        raise DataError(
            f"{place}: the list of row {other[0]} has {int(lengths[other[0]])} numbers, and the others {width}; all "
            "lists of a column must have one length"
        )
    flat = _arrow_column_numbers(column.flatten()).reshape(-1, width)
    if there.all():
        return flat
    filled = np.full((len(column), width), np.nan)
    filled[there] = flat
    return filled


def _arrow_column_numbers(column: Any) -> NDArray[Any]:
    """Convert an Arrow column of numbers or bools to an array (B,)."""
    from pyarrow import float32, types

    column = column.cast(float32()) if types.is_boolean(column.type) else column
    return np.asarray(column.to_numpy(zero_copy_only=False))
