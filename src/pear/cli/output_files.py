"""Output files of commands: how they are written, and checks beforehand that this is possible."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pear.errors import OutputError, name_output_in_errors

if TYPE_CHECKING:
    import pandas

STANDARD_OUTPUT = Path("-")
"""The name of the standard output in ``--out`` of commands that write a CSV file."""

_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet runs cells that begin like this


def writable_output_folder(path: Path) -> Path:
    """Make an output folder if it does not exist, and check that files can be written there. Return its path.

    Raises:
        OutputError: the path is not a folder, or files cannot be written there.
    """
    if path.exists() and not path.is_dir():
        raise OutputError(f"cannot write to {path}: it is a file, and a folder is needed; name another with --out")
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise OutputError(
            f"cannot write to {path}: {error.strerror or error}; name another folder with --out"
        ) from error
    return path


def writable_output_file(path: Path) -> Path:
    """Check that an output file can be written, and make its folder if it does not exist. Return the file's path.

    Raises:
        OutputError: the path is a folder, or files cannot be written there.
    """
    if path.is_dir():
        raise OutputError(f"cannot write to {path}: it is a folder, and a file is needed; name another with --out")
    writable_output_folder(path.parent)
    return path


def write_output_json(path: Path, data: Any) -> Path:
    """Write data as indented JSON, and return the path."""
    with name_output_in_errors(path):
        path.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    return path


def write_output_csv(table: pandas.DataFrame, path: Path, index: bool = True) -> Path:
    """Write a table as CSV, and return the path. Texts that a spreadsheet would run get an apostrophe in front.

    Args:
        table: the table.
        path: the file, or "-" for the standard output.
        index: whether to write the index.
    """
    safe = table.rename(columns=escape_output_formula, index=escape_output_formula)
    safe.index.names = [escape_output_formula(name) for name in safe.index.names]
    for name in safe.columns[[not hasattr(kind, "kind") or kind.kind not in "biufM" for kind in safe.dtypes]]:
        safe[name] = safe[name].map(escape_output_formula)
    if path == STANDARD_OUTPUT:
        sys.stdout.write(safe.to_csv(index=index))
        return path
    with name_output_in_errors(path):
        safe.to_csv(path, index=index)
    return path


def escape_output_formula(cell: Any) -> Any:
    """Put an apostrophe in front of a text that a spreadsheet would run as a formula.

    Everything else is returned unchanged, also texts that are numbers.

    Example:
        >>> [escape_output_formula(cell) for cell in ("=1+1", "-2.5", -2.5, "tent")]
        ["'=1+1", '-2.5', -2.5, 'tent']
    """
    if not isinstance(cell, str) or not cell.startswith(_FORMULA):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell
