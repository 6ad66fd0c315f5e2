"""Output files and folders of commands, created and tested for writing before the work starts."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pear.errors import OutputError, name_output_in_errors

if TYPE_CHECKING:
    import pandas

_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # how a cell begins that a spreadsheet runs


def writable_output_folder(path: Path) -> Path:
    """Make the folder and try to write into it.

    Raises:
        OutputError: the path is not a folder, or nothing can be written there.
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
    """Make the folder of a file and try to write there; the file itself is not touched.

    Raises:
        OutputError: the path is a folder, or nothing can be written there.
    """
    if path.is_dir():
        raise OutputError(f"cannot write to {path}: it is a folder, and a file is needed; name another with --out")
    writable_output_folder(path.parent)
    return path


def write_output_json(path: Path, data: Any) -> Path:
    """Write plain data as indented JSON."""
    with name_output_in_errors(path):
        path.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    return path


def write_output_csv(table: pandas.DataFrame, path: Path, index: bool = True) -> Path:
    """Write a table as CSV; texts that a spreadsheet would run as a formula get an apostrophe in front.

    Args:
        table: the table. Numbers are written as they are.
        path: the file.
        index: whether the index is written.
    """
    safe = table.rename(columns=escape_formula, index=escape_formula)
    safe.index.names = [escape_formula(name) for name in safe.index.names]
    for name in safe.columns[[not hasattr(kind, "kind") or kind.kind not in "biufM" for kind in safe.dtypes]]:
        safe[name] = safe[name].map(escape_formula)
    with name_output_in_errors(path):
        safe.to_csv(path, index=index)
    return path


def escape_formula(cell: Any) -> Any:
    """Put an apostrophe before a text that a spreadsheet would run; numbers, also as text, stay as they are.

    Example:
        >>> escape_formula("=1+1"), escape_formula("-2.5"), escape_formula(-2.5), escape_formula("tent")
        ("'=1+1", '-2.5', -2.5, 'tent')
    """
    if not isinstance(cell, str) or not cell.startswith(_FORMULA):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell
